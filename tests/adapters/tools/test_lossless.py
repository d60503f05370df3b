"""Whatever runs ahead: the same outputs, the same state, the same writes, no call later, no dollar over a cap."""

import pytest
from kit.tool_episodes import run_episode


def differences(seeds, **how):
    found, hits = [], 0
    for seed in seeds:
        bare, ahead = run_episode(seed, speculates=False, **how), run_episode(seed, speculates=True, **how)
        if (bare.outputs, bare.state, bare.writes) != (ahead.outputs, ahead.state, ahead.writes):
            found.append(seed)
        assert bare.counts.get("started", 0) == 0
        hits += ahead.counts.get("ready", 0) + ahead.counts.get("joined", 0)
    return found, hits


def later_starts(seeds):
    found = []
    for seed in seeds:
        bare, ahead = (run_episode(seed, speculates=one, faults=False) for one in (False, True))
        pairs = zip(ahead.starts, bare.starts, strict=True)
        if any(mine > theirs for mine, theirs in pairs) or ahead.ends_s > bare.ends_s:
            found.append(seed)
    return found


def overspent(seeds):
    found, ahead_usd = [], 0.0
    for seed in seeds:
        out = run_episode(seed, speculates=True, cost_usd=0.01, cap_usd=0.07)
        found += [seed for guard in out.guards if guard.spent_usd + guard.reserved_usd > 0.07 + 1e-12]
        found += [seed for usd in out.highest if usd > 0.07 + 1e-12]
        found += [seed for guard in out.guards if guard.reserved_usd]
        ahead_usd += 0.01 * sum(one[0] and one[1] == "get" for one in out.executions)
    return found, ahead_usd


def test_nothing_differs_in_random_episodes():
    found, hits = differences(range(80))
    assert found == []
    assert hits > 30


def test_no_call_starts_later_in_virtual_time():
    assert later_starts(range(1000, 1040)) == []


def test_no_cap_is_broken_and_every_call_pays_once():
    found, ahead_usd = overspent(range(2000, 2060))
    assert found == []
    assert ahead_usd > 0.2


@pytest.mark.long
def test_ten_thousand_episodes():
    assert differences(range(10_000))[0] == []
    assert later_starts(range(10_000, 20_000)) == []
    assert overspent(range(20_000, 30_000))[0] == []


def test_each_execution_of_a_priced_tool_is_paid_exactly_once():
    for seed in range(3000, 3020):
        out = run_episode(seed, speculates=True, cost_usd=0.01, cap_usd=100.0)
        models = sum(guard.settled_usd for guard in out.guards) - 0.01 * sum(one[1] == "get" for one in out.executions)
        alone = run_episode(seed, speculates=True, cost_usd=0.0, cap_usd=100.0)
        assert models == pytest.approx(sum(guard.settled_usd for guard in alone.guards), abs=1e-9)

"""The soak test's own bookkeeping finds what it is to find, and one minute of it passes."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import soak
from attack_paths import ATTACKS
from soak_parts import bookkeeping as books
from soak_parts import faults, stepped_clock

USD = {"small": 1.0, "large": 5.0}


def row(request, *prefix, usd=None, failure=None):
    return SimpleNamespace(request_id=request, prefix=prefix, cost_usd=USD[prefix[-1]] if usd is None else usd, failure=failure)


def asked(name="r1", **changed):
    one = books.Asked(name, "", "0.0", 10.0, 11.0, "ok", paths=(("small",), ("small", "large")))
    return replace(one, **changed)


def call(model, at=10.5, *, request="r1", answer=True, engine="east", bare=False):
    return books.Call(at, engine, model, request, "", bare, answer)


def audit(rows, *, one=None, killed=None, outages=None, calls=None):
    calls = [call("small"), call("large")] if calls is None else calls
    return books.audit_rows([one or asked()], rows, calls, USD, killed=killed or {}, outages=outages or {})


GOOD = [row("r1", "small"), row("r1", "small", "large")]


def test_rows_that_agree_with_the_answers_are_no_breach():
    found = audit(GOOD)
    assert (found.rows, found.expected) == (2, 2)
    assert not (found.lost)
    assert not (found.double)
    assert not (found.wrong_usd)
    assert not (found.forgiven)


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (GOOD[:1], "lost"),
        ([*GOOD, GOOD[0]], "double"),
        ([*GOOD, row("r1", "small", "small")], "double"),
        ([*GOOD, row("nobody", "small")], "double"),
        ([GOOD[0], row("r1", "small", "large", usd=4.0)], "wrong_usd"),
    ],
)
def test_a_row_that_is_missing_twice_there_or_wrong_is_told(rows, what):
    found = audit(rows)
    assert len(getattr(found, what)) >= 1


def test_a_row_without_an_answer_of_an_engine_is_told():
    found = audit(GOOD, calls=[call("small")])
    assert found.double == ["r1 large: 1 rows more than answers"]


def test_a_killed_process_may_lose_the_rows_of_its_last_moments_only():
    late = audit([], killed={"0.0": 12.0})
    assert (late.lost, late.forgiven) == ([], 2)
    early = audit([], killed={"0.0": 20.0})
    assert (len(early.lost), early.forgiven) == (2, 0)
    other = audit([], killed={"1.0": 12.0})
    assert len(other.lost) == 2


def test_what_an_engine_sent_when_it_was_killed_is_not_certain():
    cheap = [GOOD[0], row("r1", "small", "large", usd=4.0)]
    assert not audit(cheap, outages={"east": [(11.0, 12.0)]}).wrong_usd
    assert audit(cheap, outages={"east": [(30.0, 31.0)]}).wrong_usd


def test_an_attempt_that_was_cut_may_count_at_its_bound_but_never_below():
    dear, cheap = ([GOOD[0], row("r1", "small", "large", usd=usd)] for usd in (50.0, 0.5))
    calls = [call("small"), call("large")]
    away = {"west-a": [(10.4, 10.6)]}  # another engine: the cut attempt never reached it
    assert not audit(dear, calls=calls, outages=away).wrong_usd
    assert audit(dear, calls=calls).wrong_usd
    assert audit(cheap, calls=[replace(one, engine="east") for one in calls], outages=away).wrong_usd


def test_a_failed_request_is_a_breach_if_the_bare_application_had_its_engine():
    failed = asked(outcome="failed", paths=())
    assert books.unserved([failed], []) == ["r1 "]
    assert books.unserved([failed], [(10.9, 12.0)]) == []
    assert books.unserved([asked(), replace(failed, outcome="died")], []) == []


def test_a_refusal_is_a_breach_if_the_tenant_has_dollars_and_redis_is_there():
    refused = asked(outcome="refused", tenant="acme", paths=())
    assert books.refused_wrongly([refused], "acme", [], 5.0)
    assert not books.refused_wrongly([refused], "acme", [(3.0, 6.0)], 5.0)
    assert not books.refused_wrongly([replace(refused, tenant="trial")], "acme", [], 5.0)


def test_calls_and_dollars_are_those_that_began_and_not_the_bare_ones():
    calls = [call("small", float(at), answer=False) for at in (0, 1, 30, 58, 70, 89, 200)]
    calls += [call("small", 1.0), call("small", 1.0, answer=False, bare=True)]
    assert books.most_in_a_minute(calls) == {"east": 4}
    assert books.spent_by_tenant(calls, USD) == {"": 7.0}


def test_what_an_engine_wrote_is_read_back(tmp_path):
    file = tmp_path / "east.jsonl"
    prompt = books.question("r7", "acme") + " turn=0"
    bare = books.question("r7", "", is_bare=True) + " turn=0"
    lines = [
        {"what": "began", "at": 1.0, "model": "small", "prompt": prompt},
        {"what": "answered", "at": 2.0, "model": "small", "prompt": bare},
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert books.read_calls("east", file) == [
        books.Call(1.0, "east", "small", "r7", "acme", False, False),
        books.Call(2.0, "east", "small", "r7", "", True, True),
    ]
    assert books.read_calls("east", tmp_path / "none") == []


def test_the_slope_is_that_of_the_trend_not_of_one_leap():
    slope = books.slope_mib_per_minute
    flat = [(float(t), 100.0 + (20.0 if t > 150 else 0.0)) for t in range(40, 600)]
    assert slope(flat, warm_s=60.0, least_s=60.0) == 0.0
    growing = [(float(t), 100.0 + t / 60.0) for t in range(600)]
    assert slope(growing, warm_s=60.0, least_s=60.0) == pytest.approx(1.0)
    assert slope(growing[:100], warm_s=60.0, least_s=60.0) is None
    assert slope([], warm_s=60.0, least_s=60.0) is None


@pytest.mark.parametrize("seconds", [60.0, 120.0, 600.0])
def test_a_seed_decides_the_faults(seconds):
    for seed in range(30):
        found = faults.schedule(seconds, seed)
        assert found == faults.schedule(seconds, seed)
        assert [one.at_s for one in found] == sorted(one.at_s for one in found)
        assert all(faults.CALM_S[0] <= one.at_s <= seconds - faults.CALM_S[1] for one in found)
        assert all(one.at_s + one.lasts_s <= two.at_s for one, two in itertools.pairwise(found))
        lost = [one.at_s for one in found if one.kind.startswith("redis")]
        assert all(two - one >= faults.REDIS_REST_S for one, two in itertools.pairwise(lost))
        happened = {kind for kind, count in faults.counts(found).items() if count}
        assert len(happened & set(faults.KINDS)) >= len(faults.KINDS) - 1
    assert faults.schedule(10.0, 0) == []


def test_a_stepped_clock_moves_the_date_only(tmp_path):
    clock = stepped_clock.SteppedClock(tmp_path / "clock")
    clock.library = None
    clock.step(3600.0)
    code = "import time; a, m = time.time(), time.monotonic(); import sys; sys.path.insert(0, sys.argv[1]); "
    code += "from soak_parts import stepped_clock as c; c.install(); print(time.time() - a, time.monotonic() - m)"
    told = subprocess.run(
        [sys.executable, "-c", code, str(ATTACKS)],
        env={**os.environ, **clock.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    wall_s, monotonic_s = map(float, told.stdout.split())
    assert 3600.0 <= wall_s < 3630.0
    assert 0.0 <= monotonic_s < 30.0


def test_every_promise_that_is_broken_is_one_line():
    good = {
        "unserved": [], "refused_wrongly": [], "rows_lost": [], "rows_double": [], "rows_wrong_usd": [], "trie_missed": [],
        "bare_failures": 0, "caps_usd": {"trial": 1.0}, "spent_usd": {"trial": 1.0}, "most_calls_in_a_minute": {"east": 5},
        "limit": 5, "memory": {"0.0": {"mib": 150.0, "mib_per_minute": None}}, "requests_ok": 1,
        "refused_by_clock": 3, "faults": {"clock": 1},
    }  # fmt: skip
    assert soak.breaches(good) == []
    broken = {
        "unserved": ["r1"], "rows_lost": ["r1"], "bare_failures": 1, "spent_usd": {"trial": 1.1},
        "most_calls_in_a_minute": {"east": 6}, "memory": {"0.0": {"mib": 150.0, "mib_per_minute": 9.0}}, "requests_ok": 0,
        "faults": {"clock": 0},
    }  # fmt: skip
    for name, value in broken.items():
        assert len(soak.breaches(good | {name: value})) == 1, name


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("redis-server"), reason="no redis-server: install it (Debian: apt install redis-server)")
def test_a_minute_of_faults_loses_nothing(tmp_path):
    pytest.importorskip("redis")
    file = tmp_path / "soak.json"
    command = [sys.executable, str(ATTACKS / "soak.py"), "--minutes", "1", "--json", "--results", str(file)]
    done = subprocess.run(
        [*command, "--keep", str(tmp_path / "kept")], capture_output=True, text=True, check=False, timeout=480
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(file.read_text())
    assert found["requests_ok"] > 20
    assert found["rows"] >= found["rows_expected"] >= found["requests_ok"]
    assert sum(found["faults"].values()) >= 8

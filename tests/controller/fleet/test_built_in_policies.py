"""The built-in policies: what each of them says of a small view, and that it says it of a large one in time."""

import inspect
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.worlds.fleet_views import QUEUED, RUNNING, view_of

from vinelm.controller.fleet import built_in_policies as built_in
from vinelm.controller.fleet.built_in_policies import (
    FLEET_POLICIES,
    affinity,
    balance,
    fleet_policy,
    hol,
    lpt,
    shares,
    slack,
    srtf,
)
from vinelm.controller.fleet.live_invocations import InvocationStart, LiveInvocations
from vinelm.controller.fleet.orders import check_orders
from vinelm.controller.fleet.view import merge
from vinelm.errors import ConfigError


def running(engine, *seconds):
    return [{"session": hash((engine, i)) % 2**32, "engine": engine, "running_s": s} for i, s in enumerate(seconds)]


def test_balance_gives_slow_replicas_less():
    view = view_of(*running("large-1", *[2.0] * 20), *running("large-2", *[6.0] * 20), *running("small", 50.0))
    weights = balance(view).weights
    assert set(weights) == {"large-1", "large-2", "large-3"}  # not the small one: it is no replica
    assert weights["large-2"] < 0.5
    assert weights["large-1"] == weights["large-3"] == 1.0  # nothing speaks against them


def test_one_slow_call_says_little():
    weights = balance(view_of(*running("large-1", 2.0), *running("large-2", 6.0))).weights
    assert set(weights.values()) == {1.0}


def test_a_replica_with_young_calls_draws_no_more():
    """It was sent many calls just now; that says nothing of its speed."""
    weights = balance(
        view_of(*running("large-1", *[0.1] * 12), *running("large-2", *[1.5] * 4), *running("large-3", 2.0))
    ).weights
    assert max(weights.values()) == 1.0
    assert weights["large-1"] == 1.0


def test_hol_uses_a_hanging_replica_no_more():
    view = view_of(
        *running("large-1", 40.0, 38.0), *running("large-2", 1.0, 2.0), *running("large-3", 3.0), *running("small", 90.0)
    )
    assert hol(view).weights == {"large-1": 0.0}


def test_affinity_keeps_a_conversation_on_one_replica_and_moves_few_if_one_goes():
    rows = [{"session": n * 7919, "engine": f"large-{n % 3 + 1}"} for n in range(300)]
    pins = affinity(view_of(*rows, {"session": 5, "engine": "small"})).pins
    assert len(pins) == 300, "the small model has no replicas"
    assert all(list(pins.values()).count(f"large-{n}") > 70 for n in (1, 2, 3))
    moved = [{**row, "engine": "large-2"} for row in reversed(rows)]
    assert affinity(view_of(*moved)).pins == pins, "wherever it runs, in whatever order"
    fewer = affinity(view_of(*moved, engines={"large": "large", "large-1": "large", "large-2": "large"})).pins
    assert all(fewer[session] == engine for session, engine in pins.items() if engine != "large-3")
    check_orders(affinity(view_of(*rows)), view_of(*rows))


@pytest.mark.parametrize("seconds", [(4.0, 0.5), (30.0, 20.0)])
def test_what_is_slow_is_not_blocked(seconds):
    assert hol(view_of(*running("large-1", seconds[0]), *running("large-2", seconds[1]))).weights == {}


def test_srtf_and_lpt_go_by_the_rest():
    view = view_of({"session": 1, "rest_s": 4.0}, {"session": 2, "rest_s": 30.0, "running_s": 10.0}, {"session": 3})
    assert dict(srtf(view).sessions) == pytest.approx({1: 2.4, 2: -2.4, 3: 0.0})  # unknown: the mean of the others
    assert dict(lpt(view).sessions) == pytest.approx({1: -2.4, 2: 2.4, 3: 0.0})


def test_slack_puts_the_most_urgent_first_and_stays_the_same_while_it_waits():
    def rows(later_s):
        return view_of(
            {"session": 1, "state": QUEUED, "deadline_s": 30.0, "rest_s": 5.0, "elapsed_s": 5.0 + later_s, "waited_s": later_s},
            {"session": 2, "state": QUEUED, "deadline_s": 12.0, "rest_s": 5.0, "elapsed_s": 5.0 + later_s, "waited_s": later_s},
            {"session": 3, "state": QUEUED, "waited_s": later_s},
            {"session": 4, "state": QUEUED, "deadline_s": 2.0, "elapsed_s": 5.0 + later_s, "waited_s": later_s},
        )

    new = (25.0 + 7.0 + 60.0 + 2.0) / 4 / 10  # what they had to spare when they came, on average, in steps of 10 s
    assert dict(slack(rows(0.0)).sessions) == pytest.approx({1: new - 2.0, 2: new - 0.2, 3: new - 6.0, 4: new})
    waits = dict(slack(rows(1.0)).sessions)  # all wait for one engine: its load is the same for all
    assert waits == pytest.approx({1: new - 1.9, 2: new - 0.1, 3: new - 6.0, 4: new})


def test_who_has_just_arrived_is_not_more_urgent_than_those_before():
    """It is in no view yet, so that its priority is 0: that of the others must be above."""
    rows = [{"session": i, "deadline_s": 12.0, "rest_s": 4.0, "elapsed_s": 2.0 + i, "running_s": 1.0} for i in range(5)]
    assert min(slack(view_of(*rows)).sessions.values()) > 0.0


def test_shares_follow_what_is_under_way():
    view = view_of(*[{"session": i, "process": "p2"} for i in range(8)])
    assert shares(view).shares == {"p1": 1.0, "p2": 9.0}


@pytest.mark.parametrize("name", FLEET_POLICIES)
def test_each_is_short(name):
    assert len(inspect.getsource(FLEET_POLICIES[name]).splitlines()) <= 15


@pytest.mark.parametrize("name", [*FLEET_POLICIES, "slack+balance+shares"])
def test_an_empty_fleet_gets_orders_too(name):
    check_orders(fleet_policy(name)(merge([])), merge([]))
    check_orders(fleet_policy(name)(view_of()), view_of())


seconds = st.one_of(st.just(float("nan")), st.floats(0.0, 1e6))
row = st.fixed_dictionaries(
    {
        "session": st.integers(0, 5),
        "engine": st.sampled_from(["large", "large-1", "large-2", "small"]),
        "process": st.sampled_from(["p1", "p2"]),
        "state": st.sampled_from([QUEUED, RUNNING]),
        "running_s": st.floats(0.0, 1e6),
        "waited_s": st.floats(0.0, 1e6),
        "elapsed_s": st.floats(0.0, 1e6),
        "rest_s": seconds,
        "deadline_s": seconds,
    }
)


@given(st.lists(row, max_size=12))
def test_whatever_is_under_way_the_orders_can_be_installed(rows):
    view = view_of(*rows)
    for policy in FLEET_POLICIES.values():
        check_orders(policy(view), view)


def test_a_large_fleet_takes_no_loop():
    rng = np.random.default_rng(0)
    tables = [LiveInvocations(f"p{i}") for i in range(4)]
    for table in tables:
        for session in rng.integers(0, 2**63, 2048).tolist():
            table.begin(InvocationStart(session, "acme", "write", 1, f"e{session % 8}", 1.0, 20.0, 5.0, 0.01))
    view = merge([(table.snapshot(), 0.1) for table in tables])
    policy = fleet_policy("slack+balance+shares")
    began = time.process_time()
    orders = check_orders(policy(view), view)
    assert time.process_time() - began < 0.1  # 8,192 rows; a loop in Python takes longer
    assert len(orders.sessions) == 8192


def test_a_file_is_a_policy(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from vinelm.controller import Orders\n"
        "def policy(view): return Orders(stages={'write': 1.0})\n"
        "def other(view): return Orders(stages={'write': 2.0})\n"
        "limit = 3\n"
    )
    assert fleet_policy(str(path))(view_of()).stages == {"write": 1.0}
    assert fleet_policy(f"{path}:other+{path}")(view_of()).stages == {"write": 3.0}
    with pytest.raises(ConfigError, match="no function 'nothing': define it, or name another as"):
        fleet_policy(f"{path}:nothing")
    with pytest.raises(ConfigError, match="a int, no function, 'limit'"):
        fleet_policy(f"{path}:limit")


def test_a_file_that_cannot_be_imported(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("import nothing_of_that_name\n")
    with pytest.raises(ConfigError, match="cannot be imported: ModuleNotFoundError: No module named 'nothing_of_that_name'"):
        fleet_policy(str(path))
    with pytest.raises(ConfigError, match="does not exist"):
        fleet_policy(str(tmp_path / "others.py"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slak", "unknown policy 'slak': did you mean 'slack'\\? built in are affinity, balance"),
        ("slack+", "has an empty part"),
        ("", "has an empty part"),
        ("quality", "unknown policy 'quality': built in are"),
    ],
)
def test_a_name_that_is_none(text, message):
    with pytest.raises(ConfigError, match=message):
        fleet_policy(text)


def test_the_step_is_that_of_the_lines():
    from vinelm.backends.limits.rate_share import STEP_S

    assert built_in.STEP_S == STEP_S

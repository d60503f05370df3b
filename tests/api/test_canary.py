"""A canary serves the plan to a share, draws alike everywhere, and goes back by itself where the plan is worse."""

import gc
import logging

import numpy as np
import pytest
from kit.canaries import BEST, TABLE, TRIE, asked, known, serving
from kit.tables import random_table
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from prometheus_client import CollectorRegistry

from vinelm import VineLM
from vinelm.api.canary import IDLE_S, Canary, promised_ratio
from vinelm.clock import VirtualClock
from vinelm.controller import Planner
from vinelm.errors import CallError, ConfigError
from vinelm.objective import Objective
from vinelm.requests.protocols import Invocation
from vinelm.rows.observation import Usage
from vinelm.telemetry import ObserverGroup, Prometheus

# -- the draw ------------------------------------------------------------------------------------------------------


def test_a_request_draws_alike_in_every_process():
    one, other = (serving(0.3, draw_secret="of the operator's settings")[0] for _ in range(2))
    drawn = [[vine.session(BEST, run_id=f"r{i}").assigned.is_plan for i in range(400)] for vine in (one, other)]
    assert drawn[0] == drawn[1]
    assert 0.2 < np.mean(drawn[0]) < 0.4


def test_a_conversation_stays_in_its_arm():
    vine, _ = serving(0.5)
    for thread in range(20):
        drawn = {vine.session(BEST, configurable={"thread_id": f"t{thread}"}).assigned.is_plan for _ in range(5)}
        assert len(drawn) == 1


def test_the_plan_serves_its_share_and_today_the_rest():
    vine, app = serving(0.5)
    served = {name: asked(vine, app, name)["seen"] for name in map(str, range(40))}
    plan = Planner(TRIE).plan(BEST).next_model
    assert plan != "m0"
    drawn = {name: vine.session(BEST, run_id=name).assigned.is_plan for name in served}
    assert {True, False} == set(drawn.values())
    for name, seen in served.items():
        assert seen[0] == (plan if drawn[name] else "m0")
    session = next(one for one in (vine.session(BEST, run_id=name) for name in served) if not one.assigned.is_plan)
    app.invoke({"turns": 0, "seen": []}, context=vine.context(BEST, policy=session))
    assert session.trace()[0]["note"] == f"canary, today's share: would have run {plan}"


def test_zero_serves_today_alone_and_compares_nothing(caplog):
    vine, app = serving(0)
    assert all(set(asked(vine, app, str(i))["seen"]) == {"m0"} for i in range(10))
    vine.feedback("3", False)
    assert (vine.canary.share, vine.canary.requests, caplog.records) == (0, (0, 0), [])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"canary": 1.0}, r"canary is 1\.0: .*allow_unproven=True serves it to all"),
        ({"canary": -0.1}, "canary is -0.1"),
        ({"canary": float("nan")}, "canary is nan"),
        ({"allow_unproven": True}, "canary=0.5 has no effect with allow_unproven=True"),
        ({"mode": "observe"}, "canary=0.5 has no effect with mode='observe'"),
        (
            {"trie": random_table(3, n_requests=60, n_models=3, depth=3).annotate()},
            "does not say: give every stage its default",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(settings, said):
    with pytest.raises(ConfigError, match=said) as caught:
        serving(**{"canary": 0.5, **settings})
    assert "\n" not in str(caught.value)


def test_a_trie_that_says_nothing_of_today_does_not_replace_one_that_does():
    vine, _ = serving(0.5)
    planner = vine.planner
    with pytest.raises(ConfigError, match="does not say"):
        vine.load(TABLE.annotate())
    assert vine.planner is planner


def test_what_is_watched_is_said_once_at_the_start(caplog):
    vine, app = serving(0.5)
    asked(vine, app, "a")
    (record,) = caplog.records
    assert "Only failures, dollars and seconds are watched until vine.feedback" in record.getMessage()


# -- what counts ---------------------------------------------------------------------------------------------------


def test_each_request_counts_once_with_its_dollars():
    vine, app = serving(0.5)
    for i in range(30):
        asked(vine, app, str(i % 10))
    status = vine.canary
    assert sum(status.requests) == 10
    assert status.means["dollars"] == pytest.approx((0.02, 0.02), rel=0.6)
    assert (status.advice, status.share) == ("not enough data", 0.5)


def test_feedback_counts_once_late_or_early_and_needs_no_store():
    vine, app = serving(0.5)
    for i in range(10):
        asked(vine, app, str(i))
        for success in (True, False, False):
            vine.feedback(str(i), success)
    vine.feedback("nobody", False)
    status = vine.canary
    assert sum(status.labelled) == 10
    assert status.means["accuracy"] == (1.0, 1.0)
    with pytest.raises(ConfigError, match="success is 2"):
        vine.feedback("1", 2)


def test_feedback_ends_a_request_whose_session_is_held():
    vine, app = serving(0.5)
    session = vine.session(BEST, run_id="one")
    app.invoke({"turns": 0, "seen": []}, context=vine.context(BEST, policy=session))
    assert sum(vine.canary.requests) == 0
    vine.feedback("one", True)
    assert sum(vine.canary.requests) == 1


def test_a_held_session_that_does_nothing_any_more_has_ended():
    canary, clock, planner = Canary(0.5, 0.01, TRIE, ObserverGroup()), VirtualClock(), Planner(TRIE)
    served = canary.draw(planner, BEST, key="a", run_id="a", clock=clock, started_at=None)
    served.request.began("generate", ("m0",), 0.0, None)
    clock.sleep(2 * IDLE_S)
    assert sum(canary.status.requests) == 0  # a call is under way
    served.request.ended(Invocation(stage="generate", prefix=("m0",), latency_s=1.0, usages=()), None)
    clock.sleep(0.5 * IDLE_S)
    assert sum(canary.status.requests) == 0
    clock.sleep(IDLE_S)
    assert sum(canary.status.requests) == 1


def test_a_failed_request_counts_as_failed():
    vine, app = serving(0.5, usd=lambda path: None if path == ("m0",) else 0.01)
    for i in range(20):
        drawn = vine.session(BEST, run_id=f"{i}").assigned.is_plan
        try:
            asked(vine, app, str(i))
        except CallError:
            assert not drawn
    gc.collect()
    assert vine.canary.means["failures"] == (0.0, 1.0)


def test_a_request_that_never_began_does_not_count():
    vine, _ = serving(0.5)
    for i in range(10):
        vine.session(BEST, run_id=str(i))
    assert sum(vine.canary.requests) == 0


# -- interrupts ----------------------------------------------------------------------------------------------------


def test_a_request_that_waits_counts_when_it_is_resumed_and_with_all_its_dollars():
    vine, app = serving(0.5, waits=True, saver=InMemorySaver())
    for i in range(6):
        asked(vine, app, f"r{i}", configurable={"thread_id": str(i)})
    assert sum(vine.canary.requests) == 0
    for i in range(6):
        app.invoke(
            Command(resume=True), {"configurable": {"thread_id": str(i)}}, context=vine.context(BEST, request_id=f"r{i}")
        )
    gc.collect()
    status = vine.canary
    assert sum(status.requests) == 6
    assert max(status.means["dollars"]) == pytest.approx(0.02)
    assert "late" not in status.means


def test_a_resumed_request_keeps_its_draw_although_the_canary_has_gone_back():
    saver = InMemorySaver()
    (one, app), (other, resumed) = serving(0.5, waits=True, saver=saver), serving(0, waits=True, saver=saver)
    plan = Planner(TRIE).plan(BEST).next_model
    went_on = 0
    for i in range(10):
        config = {"configurable": {"thread_id": str(i)}}
        drawn = one.session(BEST, run_id=f"r{i}", **config).assigned.is_plan
        if asked(one, app, f"r{i}", **config).get("__interrupt__"):
            session = other.session(BEST, run_id=f"r{i}", **config)
            resumed.invoke(Command(resume=True), config, context=other.context(BEST, policy=session, request_id=f"r{i}"))
            assert session.assigned.is_plan == drawn
            assert (resumed.get_state(config).values["seen"][0] == plan) == drawn
            went_on += drawn
    assert went_on
    assert sum(other.canary.requests) == 0


# -- what is shown -------------------------------------------------------------------------------------------------


def tried(canary, requests, *, right=(0.7, 0.7), usd=(0.01, 0.01), seconds=(1.0, 1.0), objective=BEST, seed=0):
    """Requests of (the plan, today) with such means; returns how many were served until something was shown."""
    rng, clock, planner = np.random.default_rng(seed), VirtualClock(), Planner(TRIE)
    for i in range(requests):
        served = canary.draw(planner, objective, key=f"{seed}-{i}", run_id=f"{seed}-{i}", clock=clock, started_at=None)
        group = 0 if served.request.is_plan else 1
        served.request.began("generate", ("m0",), 0.0, None)
        clock.sleep(float(rng.exponential(seconds[group])))
        cost = Usage(model="m0", cost_usd=float(rng.exponential(usd[group])), latency_s=0.0)
        served.request.ended(Invocation(stage="generate", prefix=("m0",), latency_s=0.0, usages=(cost,)), None)
        canary.end(served)
        if right is not None:
            canary.feedback(f"{seed}-{i}", bool(rng.random() < right[group]))
        if canary.decided is not None:
            return i + 1
    return requests


@pytest.mark.parametrize(
    ("quantity", "how"),
    [
        ("accuracy", {"right": (0.5, 0.8)}),
        ("dollars", {"right": None, "usd": (0.03, 0.01)}),
        ("late", {"right": None, "seconds": (3.0, 1.0), "objective": Objective(maximize="accuracy", max_latency_s=3.0)}),
        ("seconds", {"right": None, "seconds": (3.0, 1.0), "objective": Objective(minimize="latency")}),
    ],
)
def test_a_worse_plan_goes_back_and_says_why(quantity, how, caplog):
    observers, registry = ObserverGroup(), CollectorRegistry()
    observers.add(Prometheus(registry))
    canary = Canary(0.5, 0.01, known(TABLE.annotate(), cost_usd=100.0), observers)
    caplog.clear()
    caplog.set_level(logging.INFO)
    at = tried(canary, 1500, **how)
    status = canary.status
    assert at < 1500
    assert (status.advice, status.share) == ("keep", 0.0)
    assert quantity in status.reason
    assert [record.getMessage() for record in caplog.records] == [f"canary: KEEP what runs today: {status.reason}"]
    assert registry.get_sample_value("vinelm_canary_total", {"advice": "keep", "quantity": quantity}) == 1
    before = status.requests
    tried(canary, 50, seed=1, **how)
    assert canary.status.requests == before  # it stays back
    keys = [str(i) for i in range(50)]
    draws = [canary.draw(Planner(TRIE), BEST, key=i, run_id=i, clock=VirtualClock(), started_at=None) for i in keys]
    assert not any(served.request.is_plan for served in draws)


@pytest.mark.parametrize(
    ("how", "said"),
    [({"right": (0.9, 0.6)}, "more accurate"), ({"right": (0.95, 0.95), "usd": (0.003, 0.01)}, "as accurate and cheaper")],
)
def test_a_plan_that_is_no_worse_is_said_to_be_and_goes_on_as_it_was(how, said):
    canary = Canary(0.5, 0.1, TRIE, ObserverGroup())
    assert tried(canary, 2500, **how) < 2500
    status = canary.status
    assert (status.advice, status.share) == ("switch", 0.5)
    assert status.sentence.startswith(f"SWITCH: the plan is shown to be {said}")


# -- one caller ----------------------------------------------------------------------------------------------------

PLANNER = Planner(TRIE)


def one_request(canary, name, success, *, tenant="", caller="", usd=0.01, failed=False):
    """A request of (the plan, today) with such an answer; returns whether the plan was drawn for it."""
    clock = VirtualClock()
    served = canary.draw(PLANNER, BEST, key=name, run_id=name, clock=clock, started_at=None, caller=tenant)
    group = 0 if served.request.is_plan else 1
    served.request.began("generate", ("m0",), 0.0, None)
    cost = Usage(model="m0", cost_usd=usd if isinstance(usd, float) else usd[group], latency_s=0.0)
    failure = "server_error" if failed and served.request.is_plan else None
    served.request.ended(Invocation(stage="generate", prefix=("m0",), latency_s=0.0, usages=(cost,), failure=failure), None)
    canary.end(served)
    canary.feedback(name, success[group], caller)
    return served.request.is_plan


ATTACKS = {
    "says that the plan is wrong": {"success": (False, True)},
    "says that the plan is right": {"success": (True, False)},
    "has failing requests": {"success": (True, True), "failed": True},
    "has dear requests": {"success": (True, True), "usd": (5.0, 0.001)},
}


@pytest.mark.parametrize("named", ["tenant", "caller"])
@pytest.mark.parametrize("honest", [0, 300])
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_caller_stops_a_canary_for_all_or_has_it_say_switch(attack, honest, named, caplog):
    """Among 300 honest labels, or before anybody else has come."""
    if named == "caller" and attack.startswith("has"):
        return  # the tenant is what tells whose request it is
    rng, canary = np.random.default_rng(1), Canary(0.3, 0.01, TRIE, ObserverGroup())
    for i in range(honest):
        tenant = f"t{i % 12}" if i % 2 else ""
        one_request(canary, f"honest-{i}", (bool(rng.random() < 0.8), bool(rng.random() < 0.8)), tenant=tenant)
    for i in range(400):
        one_request(canary, f"mallory-{i}", **{named: "mallory"}, **ATTACKS[attack])
    assert (canary.decided, canary.share) == (None, 0.3)
    drawn = [one_request(canary, f"after-{i}", (True, True), tenant=f"u{i}") for i in range(150)]
    assert 0.2 < np.mean(drawn) < 0.4
    if attack.endswith("is right"):
        return
    mallory = [one_request(canary, f"own-{i}", (True, True), tenant="mallory") for i in range(40)]
    assert not any(mallory)  # what is worse for him is not served to him
    assert "the plan is worse for a caller" in canary.status.reason
    assert caplog.text.count("the plan is worse for a caller") == 1


def test_a_plan_that_is_worse_for_several_tenants_goes_back_for_all():
    rng, canary = np.random.default_rng(2), Canary(0.5, 0.01, TRIE, ObserverGroup())
    for i in range(2500):
        one_request(canary, f"r{i}", (bool(rng.random() < 0.4), bool(rng.random() < 0.8)), tenant=f"t{i % 4}")
    assert (canary.decided, canary.share) == ("keep", 0.0)


def test_a_plan_that_is_worse_goes_back_for_the_only_tenant():
    rng, canary = np.random.default_rng(3), Canary(0.5, 0.01, TRIE, ObserverGroup())
    served = [
        one_request(canary, f"r{i}", (bool(rng.random() < 0.4), bool(rng.random() < 0.8)), tenant="acme") for i in range(800)
    ]
    assert any(served[:50])
    assert not any(served[-200:])
    assert "worse for a caller" in canary.status.reason


def test_a_name_that_is_used_again_is_that_of_the_first_request():
    canary = Canary(0.5, 0.01, TRIE, ObserverGroup())
    draws = {}
    for key in map(str, range(50)):
        served = canary.draw(Planner(TRIE), BEST, key=key, run_id="one", clock=VirtualClock(), started_at=None)
        draws.setdefault("one", served.request.is_plan)
        canary.feedback("one", False)
    assert sum(canary.status.labelled) == 1


ODD = [None, [], [1], {}, "1", "true", float("nan"), float("inf"), -0.1, 1.1, 10**400, b"1", 1j, len]


@pytest.mark.parametrize("success", ODD, ids=lambda value: repr(value)[:8])
def test_odd_feedback_is_refused_in_one_line(success):
    vine, app = serving(0.5)
    asked(vine, app, "a")
    with pytest.raises(ConfigError, match="give True, False or a score") as caught:
        vine.feedback("a", success)
    assert "\n" not in str(caught.value)
    assert sum(vine.canary.labelled) == 0


@pytest.mark.parametrize("name", [None, 7, [], {}, ""], ids=repr)
def test_odd_names_are_refused_in_one_line(name):
    vine, _ = serving(0.5)
    with pytest.raises(ConfigError, match=r"run_id is .*: give a text"):
        vine.feedback(name, True)
    if name != "":
        with pytest.raises(ConfigError, match=r"tenant is .*: give a text"):
            vine.feedback("a", True, tenant=name)


@pytest.mark.parametrize("success", [True, False, 0, 1, 0.5, np.float64(0.5), np.float32(0.5), np.bool_(True), np.int64(1)])
def test_every_score_counts(success):
    vine, app = serving(0.5)
    asked(vine, app, "a")
    vine.feedback("a", success)
    assert sum(vine.canary.labelled) == 1


def test_what_the_plan_promised_to_cost_is_not_held_against_it():
    planner = Planner(TRIE)
    cost = planner.plan(BEST, elapsed_s=float(TRIE.latency_s[0])).path_cost_usd
    assert promised_ratio(Planner(known(TABLE.annotate(), cost_usd=cost / 2)), BEST) == pytest.approx(2.0)
    assert promised_ratio(Planner(known(TABLE.annotate(), cost_usd=cost * 2)), BEST) == 1.0
    assert promised_ratio(Planner(known(TABLE.annotate(), cost_usd=None)), BEST) == 1.0
    canary = Canary(0.5, 0.01, known(TABLE.annotate(), cost_usd=cost / 4), ObserverGroup())
    planner = Planner(known(TABLE.annotate(), cost_usd=cost / 4))
    assert canary._promised(planner, BEST) == pytest.approx(4.0)


def test_another_trie_begins_another_canary():
    vine, app = serving(0.5)
    asked(vine, app, "a")
    assert sum(vine.canary.requests) == 1
    vine.load(known(TABLE.annotate()))
    assert sum(vine.canary.requests) == 0
    assert VineLM(TRIE.catalog, canary=0.5).canary is None

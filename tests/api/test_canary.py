"""A canary serves the plan to a share, draws alike everywhere, and goes back by itself where the plan is worse."""

import gc
import logging

import numpy as np
import pytest
from kit.tables import random_table
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from prometheus_client import CollectorRegistry
from typing_extensions import TypedDict

from vinelm import VineLM
from vinelm.api.canary import IDLE_S, Canary, promised_ratio
from vinelm.clock import VirtualClock
from vinelm.controller import Planner
from vinelm.errors import CallError, ConfigError
from vinelm.objective import Objective
from vinelm.plans.recommendation import META, AgainstToday
from vinelm.requests.protocols import Invocation
from vinelm.rows.observation import Usage
from vinelm.telemetry import ObserverGroup, Prometheus

BEST = Objective(maximize="accuracy")
TABLE = random_table(3, n_requests=60, n_models=3, depth=3)


def known(annotated, cost_usd=0.03):
    """The trie, which says what runs today and that nothing is proven."""
    names = [stage.name for stage in annotated.template.stages]
    annotated.meta[META] = AgainstToday(models=dict.fromkeys(names, "m0"), accuracy=0.5, cost_usd=cost_usd).to_dict()
    return annotated


TRIE = known(TABLE.annotate())


class State(TypedDict, total=False):
    turns: int
    seen: list


class FixedBackend:
    """Each call costs what ``usd`` says of its path, and fails where that is None."""

    is_simulated, is_virtual_time = True, False

    def __init__(self, usd=lambda path: 0.01):
        self.usd = usd

    def chat_model(self, model, call):
        backend = self

        class Chat:
            name = model.name

            def invoke(self, prompt):
                usd = backend.usd(call.prefix)
                call.on_usage(Usage(model=model.name, cost_usd=usd or 0.0, latency_s=0.0, tokens_in=7, tokens_out=2))
                if usd is None:
                    raise CallError("down", kind="server_error")

        return Chat()


def serving(canary=0.5, *, trie=TRIE, usd=lambda path: 0.01, waits=False, saver=None, **settings):
    vine = VineLM(trie.catalog, {"test": FixedBackend(usd)}, trie=trie, fallback=False, canary=canary, **settings)

    def answer(state: State, model):
        model.invoke("?")
        return {"turns": state.get("turns", 0) + 1, "seen": [*state.get("seen", []), model.name]}

    def person(state: State):
        return {"turns": state["turns"]} if interrupt("go on?") else {}

    graph = StateGraph(State)
    for node in ("generate", "repair"):
        graph.add_node(node, vine.stage(node, answer, default="m0"))
    graph.add_edge(START, "generate")
    follower = "person" if waits else "repair"
    if waits:
        graph.add_node("person", person)
        graph.add_edge("person", "repair")
    for node in ("generate", "repair"):
        edge = vine.route(lambda state: state["turns"] >= 2, again=follower, end=END)
        graph.add_conditional_edges(node, edge)
    return vine, graph.compile(checkpointer=saver)


def asked(vine, app, name, **config):
    return app.invoke({"turns": 0, "seen": []}, config or None, context=vine.context(BEST, request_id=name))


# -- the draw ------------------------------------------------------------------------------------------------------


def test_a_request_draws_alike_in_every_process():
    one, other = (serving(0.3)[0] for _ in range(2))
    drawn = [[vine.session(BEST, run_id=f"r{i}").is_canary for i in range(400)] for vine in (one, other)]
    assert drawn[0] == drawn[1]
    assert 0.2 < np.mean(drawn[0]) < 0.4


def test_a_conversation_stays_in_its_arm():
    vine, _ = serving(0.5)
    for thread in range(20):
        drawn = {vine.session(BEST, configurable={"thread_id": f"t{thread}"}).is_canary for _ in range(5)}
        assert len(drawn) == 1


def test_the_plan_serves_its_share_and_today_the_rest():
    vine, app = serving(0.5)
    served = {name: asked(vine, app, name)["seen"] for name in map(str, range(40))}
    plan = Planner(TRIE).plan(BEST).next_model
    assert plan != "m0"
    drawn = {name: vine.session(BEST, run_id=name).is_canary for name in served}
    assert {True, False} == set(drawn.values())
    for name, seen in served.items():
        assert seen[0] == (plan if drawn[name] else "m0")
    session = next(one for one in (vine.session(BEST, run_id=name) for name in served) if not one.is_canary)
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
    assert (status.advice, status.share) == (None, 0.5)


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
        drawn = vine.session(BEST, run_id=f"{i}").is_canary
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
        drawn = one.session(BEST, run_id=f"r{i}").is_canary
        if asked(one, app, f"r{i}", **config).get("__interrupt__"):
            session = other.session(BEST, run_id=f"r{i}")
            resumed.invoke(Command(resume=True), config, context=other.context(BEST, policy=session, request_id=f"r{i}"))
            assert session.is_canary == drawn
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
        if canary.advice is not None:
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
    assert [record.getMessage() for record in caplog.records] == [f"canary: {status.reason}"]
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
    assert f"shown to be {said}" in status.reason


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

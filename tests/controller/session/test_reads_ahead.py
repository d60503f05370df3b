"""A request's plan says what a second is worth, and so which reads its session starts ahead."""

import pytest
from kit.tables import random_table

from vinelm.clock import VirtualClock
from vinelm.controller import Planner, Session
from vinelm.objective import Objective
from vinelm.tools.speculation import Speculation, ToolCandidate

READS = (ToolCandidate("look", {"x": 1}, 0.9, 0.001), ToolCandidate("dear", {}, 0.5, 0.01), ToolCandidate("rare", {}, 0.1, 0.0))
SETTINGS = Speculation(waste_usd=0.002)


@pytest.fixture(scope="module")
def planner():
    return Planner(random_table(3, n_requests=60, n_models=3, depth=3).annotate())


def started(planner, objective, reads=READS, settings=SETTINGS):
    session = Session(planner, objective, clock=VirtualClock(100.0))
    model = session.next_model("generate", ())
    found = session.speculated("generate", (model,), reads, settings)
    assert session.speculated("generate", (model,), reads, settings) == found  # a stage that calls its model again
    return [one.tool for one in found], session.steps[-1].note


def test_where_seconds_are_the_target_the_waste_alone_limits(planner):
    assert started(planner, Objective(minimize="latency")) == (["look"], "")
    assert started(planner, Objective(minimize="latency"), settings=Speculation(waste_usd=1.0))[0] == ["look", "dear"]


def test_where_dollars_are_and_there_is_no_deadline_nothing_starts_and_the_trace_says_why(planner):
    tools, note = started(planner, Objective(minimize="cost", min_accuracy=0.3))
    assert tools == []
    assert note.count("nothing read ahead: dollars are the target and there is no deadline") == 1


def test_a_deadline_with_time_to_spare_is_worth_nothing(planner):
    tools, note = started(planner, Objective(maximize="accuracy", max_latency_s=10_000.0))
    assert tools == []
    assert "the best plan has time to spare" in note


def test_a_deadline_that_binds_is_worth_the_dollars_that_it_costs(planner):
    slow = float(planner.annotated.latency_s[1:].min()) * 1.02
    objective = Objective(maximize="accuracy", max_latency_s=slow, max_cost_usd=10.0)
    assert started(planner, objective)[0] in (["look"], [])
    worth = [started(planner, Objective(maximize="accuracy", max_latency_s=slow * k))[0] for k in (1.0, 1.2, 1.5, 2.0, 3.0)]
    assert ["look"] in worth


def test_without_a_plan_all_that_are_likely_enough_start(planner):
    session = Session(planner, Objective(minimize="latency"), clock=VirtualClock(0.0), mode="off")
    model = session.next_model("generate", ())
    assert [one.tool for one in session.speculated("generate", (model,), READS, SETTINGS)] == [
        "look",
        "dear",
    ]


def test_nothing_to_read_is_no_note(planner):
    assert started(planner, Objective(minimize="cost", min_accuracy=0.3), reads=()) == ([], "")


def test_the_cap_keeps_the_dollars_of_the_plan(planner):
    """A guess that would take what the plan still needs is not started."""
    fastest = planner.plan(Objective(minimize="latency")).remaining_cost_usd
    read = (ToolCandidate("look", {}, 0.9, 0.001),)
    tight, wide = (
        Objective(minimize="latency", max_cost_usd=fastest + more, cost_budget="per_request", z=0.0) for more in (0.0005, 0.01)
    )
    tools, note = started(planner, tight, read)
    assert tools == []
    assert "nothing read ahead: the dollar cap leaves too little" in note
    assert started(planner, wide, read)[0] == ["look"]

"""Sessions over a trie of what requests show: the plan is looked up by the outcomes that came, and applied."""

from collections import Counter
from typing import ClassVar

import numpy as np
import pytest
from kit.contracts.policies import PolicyContract
from kit.worlds.outcomes import random_outcome_trie

from vinelm.clock import VirtualClock
from vinelm.controller import Planner, Session
from vinelm.objective import Objective
from vinelm.requests.protocols import Invocation
from vinelm.rows.observation import Usage
from vinelm.signals import Outcome

BEST = Objective(maximize="accuracy")
CAPPED = Objective(maximize="accuracy", max_cost_usd=2.0)
STAGES = ("generate", "repair", "repair")


def outcome_trie(seed, *, n_models=2, **settings):
    return random_outcome_trie(np.random.default_rng(seed), n_models=n_models, depth=3, n_labels=3, **settings)[0]


PLANNER = Planner(outcome_trie(1, n_models=3))


def ran(prefix, cost_usd=0.5):
    usage = Usage(model=prefix[-1], cost_usd=cost_usd, latency_s=1.0)
    return Invocation(stage=STAGES[len(prefix) - 1], prefix=prefix, latency_s=1.0, usages=(usage,))


def session_over(planner, objective=BEST, **settings):
    return Session(planner, objective, clock=VirtualClock(), **settings)


class TestSessionOverOutcomes(PolicyContract):
    settings: ClassVar = {}

    def make(self):
        return session_over(PLANNER, **self.settings)


class TestObservingSessionOverOutcomes(TestSessionOverOutcomes):
    settings: ClassVar = {"mode": "observe"}


class TestSessionThatReturnsTheLastAnswer(PolicyContract):
    def make(self):
        return session_over(Planner(PLANNER.annotated.returning_last()))


# -- the plan that is served is the plan that was made ---------------------------------------------------------


class Request:
    """A request that shows outcomes of the trie at random, and what the planner says of it."""

    def __init__(self, planner, objective, rng):
        self.planner, self.objective, self.rng = planner, objective, rng
        self.trie, self.outcomes = planner.trie, planner.annotated.outcomes
        self.node, self.prefix, self.arm, self.place = 0, (), None, -1

    def run(self, model):
        """Run a model; what it shows, and whether the workflow's check passes that."""
        self.node = self.trie.child(self.node, model, self.arm)
        self.prefix = (*self.prefix, model)
        low, high = np.searchsorted(self.outcomes.node, (self.node, self.node + 1))
        self.place = int(self.rng.integers(low, high))
        arm = int(self.outcomes.arm[self.place])
        self.arm = None if arm < 0 else self.trie.stages[arm]
        label, answer_class = self.outcomes.labels[self.outcomes.label[self.place]], int(self.outcomes.answer_class[self.place])
        return Outcome(label.signal, None if answer_class < 0 else answer_class), label.passed

    @property
    def planned(self):
        """The model that comes next; None where the request ends."""
        if self.node and self.arm is None:
            return None
        return self.planner.plan(self.objective, node=self.node, stage=self.arm, may_stop=self.node > 0).next_model


@pytest.mark.parametrize("objective", [pytest.param(BEST, marks=pytest.mark.long), CAPPED])
@pytest.mark.parametrize("returns_earlier", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_session_does_what_the_planner_says_of_each_outcome(objective, returns_earlier):
    happened, rng = Counter(), np.random.default_rng(0)
    for seed in range(20):
        annotated = outcome_trie(seed)
        planner = Planner(annotated if returns_earlier else annotated.returning_last())
        for _ in range(12):
            request, session = Request(planner, objective, rng), session_over(planner, objective)
            model, held = session.next_model("generate", ()), set()
            assert model == request.planned
            while True:
                shown, passed = request.run(model)
                held.add(shown.answer_class)
                session.record(ran(request.prefix))
                session.observed(request.prefix, shown)
                planned = request.planned
                goes_on = session.should_continue(request.prefix, passed, {})
                assert goes_on is (planned is not None)
                happened["after a passed check"] += goes_on and passed
                if not goes_on:
                    break
                model = session.next_model("repair", request.prefix)
                assert model == planned
            happened["before a passed check"] += len(request.prefix) < 3 and not passed
            expected = annotated.outcomes.returned_class(request.place) if returns_earlier else None
            assert session.returned(request.prefix) == expected
            assert expected is None or expected in held
            happened["an earlier answer"] += expected is not None
            assert "never saw" not in session.explain()
    assert happened["after a passed check"] > 3
    assert happened["before a passed check"] > 3
    assert (happened["an earlier answer"] > 3) is returns_earlier


def test_requests_end_at_a_passed_check_where_nothing_was_bought_below():
    planner = Planner(outcome_trie(0, goes_on=False))
    session = session_over(planner)
    prefix = (session.next_model("generate", ()),)
    session.record(ran(prefix))
    session.observed(prefix, Outcome(None, 0))
    assert not session.should_continue(prefix, True, {})
    assert session.should_continue(prefix, False, {}) is (
        planner.plan(BEST, node=planner.trie.child(0, prefix[0]), stage="repair [failed, answer 1]").next_model is not None
    )


# -- what the profile never saw ----------------------------------------------------------------------------------


def test_an_unknown_signal_is_planned_as_the_nearest_outcome_and_the_trace_says_so():
    known, unknown = session_over(PLANNER), session_over(PLANNER)
    for session, signal in ((known, None), (unknown, "a signal of last week's release")):
        prefix = (session.next_model("generate", ()),)
        session.record(ran(prefix))
        session.observed(prefix, Outcome(signal, 0))
    assert unknown.should_continue(prefix, True, {}) is known.should_continue(prefix, True, {})
    assert unknown.steps[-1].note == "the profile never saw this outcome: planned as [passed, answer 1]"
    assert known.steps[-1].note == ""
    assert unknown.trace()[-1]["note"] == unknown.steps[-1].note


def test_an_unknown_path_runs_the_default_and_returns_the_last_answer():
    session = session_over(PLANNER)
    session.record(ran(("another model",)))
    session.observed(("another model",), Outcome(None, 0))
    assert session.next_model("repair", ("another model",)) == session.default_model("repair")
    assert "not planned for: default model" in session.steps[-1].note
    assert session.returned(("another model",)) is None
    assert session.should_continue(("another model",), True, {}) is False  # the workflow's check ends it
    assert session.should_continue(("another model",), False, {}) is True


def test_a_verdict_that_comes_later_changes_the_plan():
    """An invocation's outcome is told before its route is asked; the route knows the check's verdict."""
    session = session_over(PLANNER)
    prefix = (session.next_model("generate", ()),)
    session.record(ran(prefix))
    session.observed(prefix, Outcome(None, 0))
    arms = []
    for passed in (False, True):
        session.should_continue(prefix, passed, {})
        (arm,) = session.steps[-1].decision.next_models
        arms.append(arm)
    assert arms == ["repair [failed, answer 1]", "repair [passed, answer 1]"]


# -- modes and processes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_nothing_changes_where_the_plan_is_not_enforced(mode):
    """Not even for outcomes after which the enforced plan goes on, ends or returns an earlier answer."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        session, request = session_over(PLANNER, mode=mode), Request(PLANNER, BEST, rng)
        passed, prefix = False, ()
        while not passed and len(prefix) < 3:
            model = session.next_model(STAGES[len(prefix)], prefix)
            assert model == session.default_model(STAGES[len(prefix)])
            shown, passed = request.run(model)
            prefix = request.prefix
            session.record(ran(prefix))
            session.observed(prefix, shown)
            assert session.should_continue(prefix, passed, {}) is (not passed and len(prefix) < 3)
            assert session.returned(prefix) is None
            if request.arm is None:
                break


def test_a_request_goes_on_in_another_process_by_what_it_has_shown():
    rng, compared = np.random.default_rng(4), 0
    for _ in range(20):
        request, first = Request(PLANNER, BEST, rng), session_over(PLANNER)
        shown, passed = request.run(first.next_model("generate", ()))
        first.record(ran(request.prefix))
        first.observed(request.prefix, shown)
        if not first.should_continue(request.prefix, passed, {}):
            continue
        second = session_over(PLANNER)
        second.resumed(request.prefix, (0.5,), stages=("generate",))
        second.observed(request.prefix, shown)
        assert second.should_continue(request.prefix, passed, {})
        assert second.next_model("repair", request.prefix) == first.next_model("repair", request.prefix)
        assert second.steps[-1].spent_usd == first.steps[-1].spent_usd == 0.5
        compared += 1
    assert compared > 3


def test_a_cap_for_each_request_holds_after_each_outcome():
    objective = Objective(maximize="accuracy", max_cost_usd=1.5, cost_budget="per_request")
    session = session_over(PLANNER, objective, least_call_usd=lambda model: 0.1)
    prefix = (session.next_model("generate", ()),)
    session.record(ran(prefix, cost_usd=1.45))
    session.observed(prefix, Outcome(None, None))
    assert session.should_continue(prefix, False, {}) is False

"""What a request pays, whatever happens to its stages: never more than its cap, and all that is left of it can be spent."""

import tempfile

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kit.apps.paying import CAP, COST, THREAD, UPPER, PayingApp
from langgraph.types import Command

ENDS = ("ask", "ask", "raise", "die", "go on")
PLANS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(ENDS)), min_size=1, max_size=3)


def plan(calls, end):
    """What one execution of a stage does; one that asks asks anew each time it is run again."""
    return ["call"] * calls + {"ask": ["ask"] * 12, "raise": ["raise"], "die": ["die"], "go on": ["call"]}[end]


class RequestDollars(RuleBasedStateMachine):
    """A thread whose requests are interrupted, fail, die, are resumed here or elsewhere, edited and taken back in time.

    A request is an input. Its account is in one of the states *not begun* (nothing written), *open* (a call under way counts at
    its upper bound) and *settled* (all that was paid is written). A death leaves it open, everything else settles it.
    """

    is_async, kind = False, "stage"

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.requests, self.shaken = 0, set()
        self.app = self._new_process()

    def teardown(self):
        self.folder.cleanup()

    def _new_process(self):
        app = PayingApp(self.folder.name, is_async=self.is_async, kind=self.kind)
        app.dies_really = False
        return app

    def _run(self, value, plans, config=THREAD, durability="async"):
        found = self.app.run(value, *[plan(*one) for one in plans], config=config, durability=durability)
        served = self.app.served
        if found == "dead":
            self.shaken.add(served)
            self.app = self._new_process()
        if found == "refused" and served not in self.shaken and self.kind == "stage":
            assert self.app.paid_usd(served) + UPPER > CAP - 1e-9, "money was left"

    def _is_begun(self):
        return "request" in self.app.graph.get_state(THREAD).values

    @rule(plans=PLANS, durability=st.sampled_from(("async", "sync")))
    def begin(self, plans, durability):
        self.requests += 1
        self._run({"request": f"q{self.requests}"}, plans, durability=durability)

    @precondition(lambda self: self.requests)
    @rule(plans=PLANS, durability=st.sampled_from(("async", "sync")), answers=st.booleans())
    def resume(self, plans, durability, answers):
        if self._is_begun():
            self._run(Command(resume="yes") if answers else None, plans, durability=durability)

    @rule()
    def go_elsewhere(self):
        self.app = self._new_process()

    @precondition(lambda self: self.requests)
    @rule(as_node=st.sampled_from((None, "look", "solve")))
    def edit(self, as_node):
        if self._is_begun() and self.app.graph.get_state(THREAD).next:
            if as_node == "solve":  # a path that goes on behind a stage that this request has never run
                self.shaken.update(f"q{number}" for number in range(1, self.requests + 1))
            self.app.graph.update_state(THREAD, {"answer": "edited"}, as_node=as_node)

    @precondition(lambda self: self.requests)
    @rule(place=st.integers(0, 40), plans=PLANS)
    def travel(self, place, plans):
        states = [one for one in self.app.graph.get_state_history(THREAD) if one.next and one.values.get("request")]
        if states:
            state = states[place % len(states)]
            self._run(None, plans, config=state.config)

    @invariant()
    def no_request_pays_more_than_its_cap(self):
        for number in range(1, self.requests + 1):
            assert self.app.paid_usd(f"q{number}") <= CAP + 1e-9


class RequestDollarsOfLoops(RequestDollars):
    is_async = True


class RequestDollarsOfChats(RequestDollars):
    kind = "chat"


@pytest.mark.parametrize("machine", [RequestDollars, RequestDollarsOfLoops, RequestDollarsOfChats])
@pytest.mark.parametrize("examples", [5, pytest.param(150, marks=pytest.mark.long)])
def test_every_history_keeps_the_caps(machine, examples):
    assert COST < UPPER
    kept = settings(max_examples=examples, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck))
    case = machine.TestCase()
    case.settings = kept
    case.runTest()

"""Forced models and kept verdicts; and what every policy must do, for each of ours."""

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.contracts.policies import TEMPLATE as SERVED
from kit.contracts.policies import PolicyContract
from kit.tables import random_table
from kit.templates import make_template

from vinelm.clock import VirtualClock
from vinelm.controller import InFlightLoadMonitor, Planner, Session
from vinelm.errors import WorkflowError
from vinelm.objective import Objective
from vinelm.policies import DefaultPolicy, ForcedPolicy, StaticPolicy
from vinelm.profiler.execution.unit_policy import UnitPolicy
from vinelm.requests.protocols import Invocation
from vinelm.requests.workflow import Request

TEMPLATE = make_template(3, 3)


def test_a_mapping_or_a_path_gives_the_models():
    by_place = ForcedPolicy(TEMPLATE, {2: "m1"}, clock=VirtualClock())
    by_path = ForcedPolicy(TEMPLATE, ("m0", "m2", "m1"), clock=VirtualClock())
    assert by_place.next_model("repair", ("m0", "m2")) == by_path.next_model("repair", ("m0", "m2")) == "m1"
    assert by_path.next_model("generate", ()) == "m0"


def test_an_invocation_that_is_not_given_is_one_line():
    policy = ForcedPolicy(TEMPLATE, {2: "m1"}, clock=VirtualClock())
    with pytest.raises(WorkflowError, match=r"stage 'repair' runs as invocation 1, for which no model is forced \(given: 2\)"):
        policy.next_model("repair", ("m0",))


@given(st.lists(st.booleans(), max_size=3), st.sampled_from(["stop", "through"]))
def test_verdicts_are_kept_and_obeyed_only_in_mode_stop(verdicts, mode):
    policy = ForcedPolicy(TEMPLATE, [], mode=mode, clock=VirtualClock())
    for k, finished in enumerate(verdicts, start=1):
        goes_on = policy.should_continue(("m0",) * k, finished, {})
        assert goes_on is ((not finished) if mode == "stop" else (k < TEMPLATE.depth))
    assert policy.verdicts == dict(enumerate(verdicts, start=1))


def test_invocations_are_kept_in_order():
    policy = ForcedPolicy(TEMPLATE, [], clock=VirtualClock())
    made = [Invocation(stage="generate", prefix=("m0",), latency_s=float(i)) for i in range(3)]
    for invocation in made:
        policy.record(invocation)
    assert policy.invocations == made


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="'stop' or 'through'"):
        ForcedPolicy(TEMPLATE, [], mode="sideways", clock=VirtualClock())


class TestDefaultPolicy(PolicyContract):
    def make(self):
        return DefaultPolicy(lambda stage: "m1", clock=VirtualClock(), template=SERVED)


class TestForcedPolicy(PolicyContract):
    def make(self):
        return ForcedPolicy(SERVED, ("m0", "m2", "m1"), clock=VirtualClock())


class TestUnitPolicy(PolicyContract):
    """It forces one invocation only: every place of the tests is that one."""

    def make(self):
        policy = UnitPolicy(SERVED, ("m0",), VirtualClock(), Request("q", {}))
        policy.models = dict.fromkeys(range(3), "m0")
        return policy


class TestStaticPolicy(PolicyContract):
    def make(self):
        return StaticPolicy(SERVED, ("m2", "m0"), clock=VirtualClock())


PLANNER = Planner(random_table(3, n_requests=60, n_models=3, depth=3).annotate())


class TestSession(PolicyContract):
    objective = Objective(maximize="accuracy", max_latency_s=50.0)
    settings: ClassVar = {}

    def make(self):
        return Session(PLANNER, self.objective, clock=VirtualClock(), **self.settings)


class TestGuardedSession(TestSession):
    objective = Objective(maximize="accuracy", max_cost_usd=1.0, cost_budget="per_request")


class TestObservingSession(TestSession):
    settings: ClassVar = {"mode": "observe"}


class TestLoadedSession(TestSession):
    settings: ClassVar = {"load": InFlightLoadMonitor(clock=VirtualClock())}

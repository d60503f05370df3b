"""The profiler's policy: given models, kept verdicts."""

import pytest
from conftest import make_template
from hypothesis import given
from hypothesis import strategies as st

from vinelm.clock import VirtualClock
from vinelm.errors import WorkflowError
from vinelm.policies import ForcedPolicy
from vinelm.protocols import Invocation, Policy

TEMPLATE = make_template(3, 3)


def test_it_is_a_policy():
    assert isinstance(ForcedPolicy(TEMPLATE, [], clock=VirtualClock()), Policy)


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

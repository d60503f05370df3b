"""The contract of every policy, as tests: subclass :class:`PolicyContract` and give it a way to make one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from vinelm.policies.policy import Policy
from vinelm.requests.protocols import Invocation
from vinelm.rows.observation import Usage
from vinelm.signals import Outcome
from vinelm.template import Loop, Stage, Template

TEMPLATE = Template((Stage("generate"), Loop((Stage("repair"),), 2))).bind(("m0", "m1", "m2"))
"""The workflow that the policies under test serve."""


class PolicyContract:
    """Tests of a :class:`~vinelm.policies.Policy`. Subclass it and override :meth:`make`."""

    def make(self) -> Policy:
        """Return a new policy for one request of :data:`TEMPLATE`, which has models ``m0``, ``m1`` and ``m2``."""
        raise NotImplementedError

    def model_of(self, policy: Policy, prefix: tuple[str, ...] = ()) -> str:
        """Return the policy's model after ``prefix``."""
        stage = TEMPLATE.stage_after(len(prefix))
        assert stage is not None
        return policy.next_model(stage.name, prefix)

    def ran(self, prefix: tuple[str, ...], **changes: object) -> Invocation:
        """Return a plausible invocation at the end of ``prefix``; ``changes`` replace fields."""
        usage = Usage(model=prefix[-1], cost_usd=0.001, latency_s=0.5)
        stage = TEMPLATE.invocations[len(prefix) - 1].name
        fields: dict[str, object] = {"stage": stage, "prefix": prefix, "latency_s": 0.5, "usages": (usage,)}
        return Invocation(**(fields | changes))  # type: ignore[arg-type]

    def test_it_is_a_policy(self) -> None:
        """It has every member of the protocol, and its clock does not go back."""
        policy = self.make()
        assert isinstance(policy, Policy)
        assert policy.clock.now() <= policy.clock.now()

    def test_it_names_models_of_the_template(self) -> None:
        """Only models that the template allows are named."""
        policy = self.make()
        first = self.model_of(policy)
        policy.record(self.ran((first,)))
        assert {first, self.model_of(policy, (first,))} <= {"m0", "m1", "m2"}

    def test_the_same_prefix_gets_the_same_model(self) -> None:
        """A retry gets the same model as long as nothing was recorded."""
        policy = self.make()
        assert len({self.model_of(policy) for _ in range(3)}) == 1

    def test_branches_of_a_fan_out_get_the_same_model_from_any_thread(self) -> None:
        """Concurrent questions about one prefix have one answer."""
        policy = self.make()
        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(lambda _: self.model_of(policy), range(32)))) == 1

    def test_a_loop_ends_with_the_template_at_the_latest(self) -> None:
        """A finished request does not go on after the last invocation."""
        policy = self.make()
        prefix: tuple[str, ...] = ()
        while len(prefix) < TEMPLATE.depth:
            prefix = (*prefix, self.model_of(policy, prefix))
            policy.record(self.ran(prefix))
        assert isinstance(policy.should_continue(prefix[:1], True, {}), bool)
        assert policy.should_continue(prefix, True, {}) is False

    def test_failures_and_interrupts_are_taken(self) -> None:
        """Neither a failure nor an interrupt prevents the next answer."""
        policy = self.make()
        model = self.model_of(policy)
        policy.interrupted((model,))
        policy.record(self.ran((model,), failure="timeout", detail="too late"))
        assert self.model_of(policy) in {"m0", "m1", "m2"}

    def test_a_request_that_another_process_began_goes_on(self) -> None:
        """It answers for a prefix that it has not recorded."""
        policy = self.make()
        policy.resumed(("m0",), (None,))
        policy.resumed(("m0",), (0.002,))
        assert self.model_of(policy, ("m0",)) in {"m0", "m1", "m2"}

    def test_outcomes_are_taken_and_an_answer_of_the_request_is_returned(self) -> None:
        """It answers with and without having been told outcomes, and names no class that no answer had."""
        policy = self.make()
        prefix: tuple[str, ...] = ()
        for outcome in (Outcome("passed", 0), Outcome("error", None), Outcome("a label that nobody has seen", 1)):
            prefix = (*prefix, self.model_of(policy, prefix))
            policy.record(self.ran(prefix))
            policy.observed(prefix, outcome)
            assert isinstance(policy.should_continue(prefix, False, {}), bool)
            assert policy.returned(prefix) in (None, 0, 1)
        assert self.make().returned(("m0",)) is None

    def test_what_another_process_saw_is_taken(self) -> None:
        """Outcomes of invocations that it has not recorded, and one of a failed attempt that is made good."""
        policy = self.make()
        policy.resumed(("m0",), (None,))
        policy.observed(("m0",), Outcome(None, 0))
        assert self.model_of(policy, ("m0",)) in {"m0", "m1", "m2"}
        policy.observed(("m0", "m1"), Outcome("error", None))
        policy.observed(("m0", "m1"), Outcome("failed", 1))
        assert policy.returned(("m0", "m1")) in (None, 0, 1)

    def test_its_trace_is_plain_json(self) -> None:
        """The trace survives JSON, and the last step is its last item."""
        policy = self.make()
        model = self.model_of(policy)
        policy.record(self.ran((model,)))
        policy.should_continue((model,), False, {})
        trace = list(policy.trace())
        assert json.loads(json.dumps(trace)) == trace
        assert policy.last_step() == (trace[-1] if trace else {})

    def test_its_guard_gives_permits_that_settle_once(self) -> None:
        """A permit that is settled again does nothing."""
        guard = self.make().guard
        if guard is not None:
            permit = guard.authorize(0.0)
            permit.settle(Usage(model="m0", cost_usd=0.0, latency_s=0.0))
            permit.settle(Usage(model="m0", cost_usd=1.0, latency_s=0.0))
            permit.close()

    def test_records_of_many_threads_are_all_kept(self) -> None:
        """Concurrent records lose nothing, where the policy keeps its invocations."""
        policy = self.make()
        invocations = getattr(policy, "invocations", None)
        if invocations is None:
            return
        model = self.model_of(policy)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: policy.record(self.ran((model,))), range(64)))
        assert len(invocations) == 64

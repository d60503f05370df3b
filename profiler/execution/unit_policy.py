"""The rules of a job: which model its invocation uses, how interrupts are answered, and which call ends it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from langgraph.types import Command, Interrupt

from vinelm.clock import Clock
from vinelm.errors import FailureKind, VineLMError, WorkflowError
from vinelm.policies import ForcedPolicy
from vinelm.policies.policy import observed_row
from vinelm.requests.protocols import Invocation
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Observation
from vinelm.template import Template


class UnitPolicy(ForcedPolicy):
    """Makes a job use the last of the models in ``prefix``, and collects what the job's result (an ``Observation``) needs."""

    def __init__(
        self, template: Template, prefix: tuple[str, ...], clock: Clock, request: Request, stages: Sequence[str] = ()
    ) -> None:
        super().__init__(template, {len(prefix) - 1: prefix[-1]}, mode=template.rule.mode, clock=clock, request=request)
        self.prefix = prefix
        self.request_id = request.id
        self.stages = tuple(stages[: len(prefix) - 1])
        possible = [stage.name for stage in template.stages_at(len(prefix), stages)]
        self.stage, self.possible = possible[0], frozenset(possible)
        """The stages of which the unit's invocation may be; where there are several, it is known once it begins."""
        self.before_ending: bytes | None = None
        """The state before the nodes that follow the loop, where the workflow's own check passed the answer."""
        self.answered = 0
        """How many interrupts of the graph were answered."""
        self._stage_began_s, self._stage_ended_s = math.inf, self.clock.now()
        self._boundary_s: float | None = None

    def next_model(self, stage: str, prefix: tuple[str, ...]) -> str:
        """Return the model of the job's invocation, and record its stage if the template allows several.

        Raises:
            WorkflowError: the template does not allow the stage there.
        """
        if len(prefix) == len(self.prefix) - 1:
            if stage not in self.possible:
                wanted = " or ".join(map(repr, sorted(self.possible)))
                raise WorkflowError(
                    f"request {self.request_id!r} runs the stage {stage!r} as invocation {len(self.prefix)}, "
                    f"where the template has {wanted}: make them agree"
                )
            self.stage = stage
        return super().next_model(stage, prefix)

    def record(self, invocation: Invocation) -> None:
        """Record the invocation and when it ended."""
        super().record(invocation)
        self._stage_ended_s = self.clock.now()
        self._stage_began_s = min(self._stage_began_s, self._stage_ended_s - invocation.latency_s)

    def at_boundary(self) -> None:
        """Record that the next stage is reached or the workflow has ended; later work is not part of the job."""
        self._boundary_s = self.clock.now()

    def observation(
        self,
        failure: FailureKind | None = None,
        detail: str | None = None,
        *,
        success: bool | float | None = None,
        stopped: bool | None = None,
        arm: str | None = None,
    ) -> Observation:
        """Return the job's result with these fields. Retries count in cost and ``retries``, but not in latency."""
        end_s = self.clock.now() if self._boundary_s is None else self._boundary_s
        return observed_row(
            self.invocations,
            request_id=self.request_id,
            prefix=self.prefix,
            stage=self.stage,
            span_s=self._stage_ended_s - self._stage_began_s if self.stage in self.template.per_node else None,
            success=success,
            stopped=stopped,
            tool_latency_s=max(end_s - self._stage_ended_s, 0.0) if self.invocations else 0.0,
            failure=failure,
            detail=detail,
            arm=arm,
        )


MOST_ANSWERS = 100
"""The most interrupts of one unit: a node that asks again until it likes the answer would never end."""


def answered(workflow: Workflow, policy: UnitPolicy, interrupts: Sequence[Interrupt]) -> Command[Any]:
    """Return the command that gives the interrupted graph the workflow's answer, and count the answer in ``policy``.

    Raises:
        WorkflowError: no answer is defined, or several nodes ask at the same time.
        VineLMError: the job has asked too often.
    """
    where = f"workflow {workflow.name!r} waits for a person (interrupt) in request {policy.request_id!r}"
    if workflow.answer_interrupt is None:
        raise WorkflowError(f"{where}: answer it in code while profiling, with Workflow(answer_interrupt=)")
    if len(interrupts) > 1:
        raise WorkflowError(f"{where}, in {len(interrupts)} nodes at once: put an edge between them")
    policy.answered += 1
    if policy.answered > MOST_ANSWERS:
        raise VineLMError(f"the nodes after stage {policy.stage!r} asked a person more than {MOST_ANSWERS} times")
    assert policy.request is not None
    return Command(resume=workflow.answer_interrupt(policy.request, interrupts[0].value))


class StageReachedError(BaseException):
    """Raised when the next stage is called, which ends the job. The next job runs the calling node again.

    It is not an ``Exception``, so that an application that handles its models' errors does not catch it.
    """


class UnitChat:
    """Called before each chat model call in one job; see :class:`vinelm.adapters.langgraph.runs.run_context.ChatHost`.

    Attributes:
        reached: the stage whose call ended the job; None if no call ended it.
        halted: the exception that was raised to end the job.
        nodes: the node in which each stage was called.
        problem: what is wrong with the graph, even if the application caught the exception.

    Args:
        wrapped: the nodes that are themselves wrapped stages. A call that is refused in such a node does not set
            :attr:`problem`.
    """

    def __init__(self, policy: UnitPolicy, wrapped: frozenset[str]) -> None:
        self.reached: str | None = None
        self.halted: StageReachedError | None = None
        self.nodes: dict[str, str] = {}
        self.problem: WorkflowError | None = None
        self._policy = policy
        self._wrapped = wrapped

    def admit(self, stage: str, prefix: tuple[str, ...], *, node: str, is_repeated: bool) -> None:
        """Allow the job's invocation, and end the job at the next invocation.

        Raises:
            StageReachedError: this is the next invocation.
            WorkflowError: the template does not allow the call.
        """
        policy = self._policy
        if is_repeated:
            raise self._refused(
                node,
                f"the node {node!r} calls the stage {stage!r} after another call in one execution: "
                "a checkpoint cannot resume between them, so set Workflow(replay=True), or give each call a node of its own",
            )
        if len(prefix) >= len(policy.prefix):
            self.nodes.setdefault(stage, node)
            self.reached, self.halted = stage, StageReachedError()
            raise self.halted
        if stage not in policy.possible and self.has_failed:  # the application continues without the answer: a failure
            self.halted = StageReachedError()
            raise self.halted
        if stage not in policy.possible:
            raise self._refused(
                node,
                f"the node {node!r} calls the stage {stage!r} as invocation {len(prefix) + 1}, "
                f"where the template has {' or '.join(map(repr, sorted(policy.possible)))}: make them agree",
            )
        self.nodes.setdefault(stage, node)

    async def calls_end(self) -> None:
        """Return at once, without waiting for calls in other coroutines.

        A job runs only the calls of a single node, even if several nodes start together.
        """

    def admit_inner(self, stage: str, *, node: str) -> None:
        """Raise for a call inside a subgraph, because a job cannot resume from a checkpoint there.

        Raises:
            WorkflowError: always.
        """
        raise self._refused(
            node,
            f"stage {stage!r} is called inside a subgraph of the node {node!r}, where no checkpoint can be resumed: "
            "set Workflow(replay=True), which runs each request from its start with the recorded answers",
        )

    @property
    def has_failed(self) -> bool:
        """True if every call of the job's stage failed, even if the application caught the error."""
        calls = self._policy.invocations
        return bool(self.nodes and calls) and all(call.failure is not None for call in calls)

    def _refused(self, node: str, problem: str) -> WorkflowError:
        error = WorkflowError(problem)
        if node not in self._wrapped:
            self.problem = error
        return error

"""Stages of a profiled graph that are chat models: their unit ends where the next one is called."""

from __future__ import annotations

from vinelm.errors import WorkflowError
from vinelm.profiler.execution.unit_policy import UnitPolicy


class StageReachedError(BaseException):
    """The next stage was called: the unit is over, and the node that called it will be run again by the next unit.

    Not an ``Exception``, so that an application which handles the errors of its models lets it through.
    """


class UnitChat:
    """Asked before each call of a chat model in one unit; see :class:`vinelm.adapters.langgraph.run_context.ChatHost`.

    Attributes:
        reached: the stage that was called when the unit ended; None if it was not ended by a call.
        halted: what was raised to end it.
        nodes: the nodes in which stages were called, by stage.
        problem: what is wrong with the graph, even if the application caught the exception.

    Args:
        policy: of the unit.
        wrapped: the nodes of wrapped stages, in which a refused call that the application handles does no harm.
    """

    def __init__(self, policy: UnitPolicy, wrapped: frozenset[str]) -> None:
        self.reached: str | None = None
        self.halted: StageReachedError | None = None
        self.nodes: dict[str, str] = {}
        self.problem: WorkflowError | None = None
        self._policy = policy
        self._wrapped = wrapped

    def admit(self, stage: str, prefix: tuple[str, ...], *, node: str, is_repeated: bool) -> None:
        """Allow the unit's own invocation, and end the unit at the next one.

        Raises:
            StageReachedError: the next invocation.
            WorkflowError: the call has no place in the template.
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
        if stage not in policy.possible and self.has_failed:  # the application goes on without the answer: a failure
            self.halted = StageReachedError()
            raise self.halted
        if stage not in policy.possible:
            raise self._refused(
                node,
                f"the node {node!r} calls the stage {stage!r} as invocation {len(prefix) + 1}, "
                f"where the template has {' or '.join(map(repr, sorted(policy.possible)))}: make them agree",
            )
        self.nodes.setdefault(stage, node)

    def admit_inner(self, stage: str, *, node: str) -> None:
        """Refuse a call inside a subgraph: a checkpoint cannot be forked there.

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
        """Whether every call of the unit's stage failed, though the application may have handled that."""
        calls = self._policy.invocations
        return bool(self.nodes and calls) and all(call.failure is not None for call in calls)

    def _refused(self, node: str, problem: str) -> WorkflowError:
        error = WorkflowError(problem)
        if node not in self._wrapped:
            self.problem = error
        return error

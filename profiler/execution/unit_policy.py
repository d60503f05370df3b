"""The policy of one unit: forces its invocation and makes the observation of it."""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.clock import Clock
from vinelm.errors import FailureKind, WorkflowError
from vinelm.observation import Observation
from vinelm.policies import ForcedMode, ForcedPolicy, observed_row
from vinelm.profiler.execution.job import stage_of
from vinelm.protocols import Invocation
from vinelm.template import Stage, Template
from vinelm.workflow import Request


class UnitPolicy(ForcedPolicy):
    """Forces the last invocation of ``prefix`` and makes its :class:`~vinelm.observation.Observation`."""

    def __init__(
        self, template: Template, prefix: tuple[str, ...], clock: Clock, request: Request, stages: Sequence[str] = ()
    ) -> None:
        mode: ForcedMode = "through" if template.stop == "oracle" else "stop"
        super().__init__(template, {len(prefix) - 1: prefix[-1]}, mode=mode, clock=clock, request=request)
        self.prefix = prefix
        self.request_id = request.id
        self.stages = tuple(stages[: len(prefix) - 1])
        self.stage = stage_of(template, len(prefix), stages)
        self.possible = frozenset([self.stage] if template.is_linear or stages else map(_name, template.first_stages))
        """The stages of which the unit's invocation may be; where there are several, it is known once it begins."""
        self.before_ending: bytes | None = None
        """The state before the nodes that follow the loop, where the workflow's own check passed the answer."""
        self.answered = 0
        """How many interrupts of the graph were answered."""
        self._stage_ended_s = self.clock.now()
        self._boundary_s: float | None = None

    def next_model(self, stage: str, prefix: tuple[str, ...]) -> str:
        """Return the model of the unit's invocation, and note its stage where the template allows several.

        Raises:
            WorkflowError: the template does not allow the stage there.
        """
        if len(prefix) == len(self.prefix) - 1 and not self.template.is_linear:
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

    def at_boundary(self) -> None:
        """Note that the next stage waits or the workflow has ended: what runs from now on is not part of the unit."""
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
        """Return the observation. Repeated attempts count in cost and ``retries``, but not in latency."""
        end_s = self.clock.now() if self._boundary_s is None else self._boundary_s
        return observed_row(
            self.invocations,
            request_id=self.request_id,
            prefix=self.prefix,
            stage=self.stage,
            success=success,
            stopped=stopped,
            tool_latency_s=max(end_s - self._stage_ended_s, 0.0) if self.invocations else 0.0,
            failure=failure,
            detail=detail,
            arm=arm,
        )


def _name(stage: Stage) -> str:
    return stage.name

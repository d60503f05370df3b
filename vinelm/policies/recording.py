"""The common part of all policies: recording of invocations, and the template's stop rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Any, Literal

from vinelm.clock import Clock, WallClock
from vinelm.errors import ConfigError
from vinelm.protocols import CallGuard, Invocation
from vinelm.signals import Outcome
from vinelm.template import Template
from vinelm.workflow import Request

Judge = Callable[[Any], bool]
"""Returns whether the answer in a workflow's state is right by the ground truth."""
OnError = Literal["default", "raise"]
"""What follows a failure of VineLM itself: the stage's default model and the workflow's own verdict, or the exception."""


class RecordingPolicy(ABC):
    """Base class of policies: records every invocation. See :class:`~vinelm.protocols.Policy`.

    Attributes:
        invocations: what was recorded, in order, retries and failures included; all of them were paid for.
        spent_usd: dollars of the recorded invocations.
        started_at: the request's arrival in seconds of ``clock``.
        guard: authorizes each call; None where no limit applies.
        on_error: what follows a failure of the policy itself while a graph runs.
        falls_back: whether :meth:`fallback_model` may name a model.

    Args:
        template: the workflow's shape; None if it is not known.
        clock: time as the request sees it; by default the machine's.
        request: the labelled request; None in an ordinary served call.
        started_at: the request's arrival in seconds of ``clock``; by default now.
    """

    guard: CallGuard | None = None
    on_error: OnError = "raise"
    falls_back: bool = False

    def __init__(
        self,
        template: Template | None = None,
        *,
        clock: Clock | None = None,
        request: Request | None = None,
        started_at: float | None = None,
    ) -> None:
        self.template = template
        self.clock: Clock = WallClock() if clock is None else clock
        self.request = request
        self.started_at = self.clock.now() if started_at is None else started_at
        self.invocations: list[Invocation] = []
        self.spent_usd = 0.0
        self._lock = Lock()

    @abstractmethod
    def next_model(self, stage: str, prefix: tuple[str, ...]) -> str:
        """Return the model for the invocation of ``stage`` that follows ``prefix``."""

    @abstractmethod
    def should_continue(self, prefix: tuple[str, ...], finished: bool, state: Any) -> bool:
        """Return whether the loop goes on after ``prefix``."""

    def record(self, invocation: Invocation) -> None:
        """Record an invocation that has ended."""
        with self._lock:
            self._add(invocation)

    def observed(self, prefix: tuple[str, ...], outcome: Outcome) -> None:  # noqa: B027 - a default
        """Ignore what an invocation has shown."""

    def returned(self, prefix: tuple[str, ...]) -> int | None:
        """Return None: the last answer is returned."""
        return None

    def note_returned(self, prefix: tuple[str, ...], note: str) -> None:  # noqa: B027 - a default
        """Ignore which answer the request that ends after ``prefix`` returns; ``note`` is one line for a trace."""

    def resumed(self, prefix: tuple[str, ...], costs_usd: Sequence[float | None]) -> None:  # noqa: B027 - a default
        """Ignore what another run has spent."""

    def interrupted(self, prefix: tuple[str, ...]) -> None:  # noqa: B027 - a default
        """Ignore an interrupted invocation: it has no result."""

    def fallback_model(self, failed: Invocation, tried: Collection[str]) -> str | None:
        """Return another model for an invocation whose call has failed, or None: the failure is raised.

        Args:
            failed: the attempt as it will be recorded if a model is returned; not recorded yet.
            tried: the models that have failed in this invocation, that of ``failed`` included.
        """
        return None

    def note_failure(  # noqa: B027 - a default
        self, what: str, error: BaseException, prefix: tuple[str, ...], stage: str | None, model: str | None
    ) -> None:
        """Ignore that ``what`` of VineLM itself has failed, and that ``model`` ran instead (None: nothing ran)."""

    def trace(self) -> list[dict[str, Any]]:
        """Return no answers: this policy explains none."""
        return []

    def last_step(self) -> Mapping[str, Any]:
        """Return the last item of :meth:`trace`, or an empty mapping."""
        trace = self.trace()
        return trace[-1] if trace else {}

    def _add(self, invocation: Invocation) -> None:
        """Add the invocation and its dollars; called with the lock held."""
        self.invocations.append(invocation)
        self.spent_usd += invocation.cost_usd


class StopRulePolicy(RecordingPolicy):
    """Base class of policies that serve requests: it applies the template's stop rule.

    Args:
        template: the workflow's shape.
        judge: decides under the oracle stop whether the request has ended; unused under the workflow's own stop.
        clock, request, started_at: see :class:`RecordingPolicy`.

    Raises:
        ConfigError: the template stops by oracle and no judge is given.
    """

    template: Template

    def __init__(
        self,
        template: Template,
        *,
        clock: Clock | None = None,
        request: Request | None = None,
        judge: Judge | None = None,
        started_at: float | None = None,
    ) -> None:
        is_oracle = template.stop == "oracle"
        if is_oracle and judge is None:
            raise ConfigError(
                "the template stops by oracle, which knows the right answers: pass judge=, or serve with stop='workflow'"
            )
        super().__init__(template, clock=clock, request=request, started_at=started_at)
        self._judge = judge if is_oracle else None

    @property
    def has_judge(self) -> bool:
        """Whether a judge decides, which is the caller's own code."""
        return self._judge is not None

    def has_ended(self, finished: bool, state: Any) -> bool:
        """Return the stop rule's verdict: that of the workflow's own check, or the judge's."""
        return finished if self._judge is None else bool(self._judge(state))

    def default_model(self, stage: str) -> str:
        """Return the stage's declared default model."""
        return self.template.stage(stage).default_model

"""What every policy of the controller does alike: keep what happened, and tell when the workflow has ended by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Literal

from vinelm.clock import Clock, WallClock
from vinelm.errors import ConfigError, WorkflowError
from vinelm.protocols import Invocation
from vinelm.template import Template
from vinelm.workflow import Request

Judge = Callable[[Any], bool]
"""Whether the answer in a workflow's state is right by the ground truth."""


class RecordingPolicy(ABC):
    """The common half of a :class:`~vinelm.protocols.Policy`. ``invocations`` holds what was recorded, in order, retries and
    failures included; every one of them was paid for.

    Under the oracle stop a ``judge`` decides what has ended, so only labelled requests can be served; without one,
    :class:`ConfigError`.
    """

    def __init__(
        self,
        template: Template,
        *,
        clock: Clock | None = None,
        request: Request | None = None,
        judge: Judge | None = None,
        started_at: float | None = None,
    ) -> None:
        if template.stop == "oracle" and judge is None:
            raise ConfigError(
                "the template stops by oracle, which knows the right answers: pass judge=, or serve with stop='workflow'"
            )
        self.template: Template | None = template
        self.clock: Clock = WallClock() if clock is None else clock
        self.request = request
        self.invocations: list[Invocation] = []
        self.started_at = self.clock.now() if started_at is None else started_at
        self._judge = judge if template.stop == "oracle" else None
        self.spent_usd = 0.0
        """Dollars recorded so far."""
        self._lock = Lock()

    @abstractmethod
    def next(self, stage: str, prefix: tuple[str, ...]) -> str:
        """The model for the invocation of ``stage`` that follows ``prefix``."""

    @abstractmethod
    def again(self, prefix: tuple[str, ...], finished: bool, state: Any) -> bool:
        """Whether the loop goes on after ``prefix``."""

    @abstractmethod
    def trace(self) -> list[dict[str, Any]]:
        """The answers given, as plain JSON types."""

    def record(self, invocation: Invocation) -> None:
        """Keep it."""
        with self._lock:
            self.invocations.append(invocation)
            self.spent_usd += invocation.cost_usd

    def has_ended(self, finished: bool, state: Any) -> bool:
        """The stop rule's verdict: the workflow's own check, or the judge's."""
        return finished if self._judge is None else bool(self._judge(state))

    def default_model(self, stage: str) -> str:
        """The stage's declared default."""
        assert self.template is not None
        return self.template.stage(stage).default_model


class DefaultPolicy:
    """Runs each stage on ``default(stage)`` and ends where the workflow says so, or its template.

    ``invocations`` keeps what happened.
    """

    def __init__(
        self, default: Callable[[str], str], *, clock: Clock, template: Template | None = None, request: Request | None = None
    ) -> None:
        self.clock = clock
        self.template = template
        self.request = request
        self.invocations: list[Invocation] = []
        self._default = default

    def next(self, stage: str, prefix: tuple[str, ...]) -> str:
        """The stage's default model."""
        return self._default(stage)

    def record(self, invocation: Invocation) -> None:
        """Keep it."""
        self.invocations.append(invocation)

    def again(self, prefix: tuple[str, ...], finished: bool, state: Any) -> bool:
        """The workflow's own verdict, within the bounds of the template's loops."""
        return not finished and (self.template is None or self.template.stage_after(len(prefix)) is not None)


ForcedMode = Literal["stop", "through"]


class ForcedPolicy:
    """Runs invocation k on ``models[k]``; asked for one that is not given, it raises :class:`WorkflowError`.

    ``models`` maps the invocation's number (from 0) to a model, or is a path of models from the first one on. In mode
    ``"stop"`` the workflow's own check ends the run; in mode ``"through"`` the run goes on to the template's last invocation
    and the check's verdicts are only kept. Read after a run:

    - ``verdicts``: number of invocations so far to the check's verdict there (True: finished).
    - ``invocations``: what was recorded, in order, failures included; the branches of a fan-out each.
    """

    def __init__(
        self,
        template: Template,
        models: Mapping[int, str] | Sequence[str],
        *,
        mode: ForcedMode = "stop",
        clock: Clock,
        request: Request | None = None,
    ) -> None:
        if mode not in ("stop", "through"):
            raise ValueError(f"mode is {mode!r}: use 'stop' or 'through'")
        self.template: Template | None = template
        self.models = dict(models) if isinstance(models, Mapping) else dict(enumerate(models))
        self.mode = mode
        self.clock = clock
        self.request = request
        self.verdicts: dict[int, bool] = {}
        self.invocations: list[Invocation] = []
        self._depth = template.depth

    def next(self, stage: str, prefix: tuple[str, ...]) -> str:
        """The model given for invocation ``len(prefix)``."""
        try:
            return self.models[len(prefix)]
        except KeyError:
            given = ", ".join(str(k) for k in sorted(self.models)) or "none"
            raise WorkflowError(
                f"stage {stage!r} runs as invocation {len(prefix)}, for which no model is forced (given: {given}): "
                "does the graph follow its template?"
            ) from None

    def record(self, invocation: Invocation) -> None:
        """Keep it."""
        self.invocations.append(invocation)

    def again(self, prefix: tuple[str, ...], finished: bool, state: Any) -> bool:
        """The workflow's own verdict in mode "stop"; in mode "through", True until the template's last invocation."""
        self.verdicts[len(prefix)] = finished
        return len(prefix) < self._depth if self.mode == "through" else not finished


class StaticPolicy(RecordingPolicy):
    """A :class:`~vinelm.protocols.Policy` that follows one path chosen up front and ends at its last model.

    A stage beyond the path runs its declared default. ``judge`` is needed under the oracle stop.
    """

    def __init__(
        self,
        template: Template,
        path: Sequence[str],
        *,
        clock: Clock | None = None,
        request: Request | None = None,
        judge: Judge | None = None,
        started_at: float | None = None,
    ) -> None:
        super().__init__(template, clock=clock, request=request, judge=judge, started_at=started_at)
        self.path = tuple(path)
        if not self.path:
            raise ConfigError("a static plan needs at least one model: name the models of its invocations in order")

    def next(self, stage: str, prefix: tuple[str, ...]) -> str:
        """The path's model for this invocation."""
        return self.path[len(prefix)] if len(prefix) < len(self.path) else self.default_model(stage)

    def again(self, prefix: tuple[str, ...], finished: bool, state: Any) -> bool:
        """Until the stop rule has spoken or the path is at its end."""
        return not self.has_ended(finished, state) and len(prefix) < len(self.path)

    def trace(self) -> list[dict[str, Any]]:
        """The fixed plan, as plain JSON types."""
        return [{"kind": "static", "plan": list(self.path)}]

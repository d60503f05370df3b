"""What every policy of the controller does alike: keep what happened, and tell when the workflow has ended by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import Lock
from typing import Any

from vinelm.errors import ConfigError
from vinelm.protocols import Clock, Invocation, WallClock
from vinelm.template import Template
from vinelm.workflow import Request

Judge = Callable[[Any], bool]
"""Whether the answer in a workflow's state is right by the ground truth."""


class Following(ABC):
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

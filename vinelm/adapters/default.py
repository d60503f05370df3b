"""The policy of a run that nobody plans: every stage on its default model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vinelm.protocols import Clock, Invocation
from vinelm.template import Template
from vinelm.workflow import Request


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

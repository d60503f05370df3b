"""The policy of a run whose models are given: the profiler's units, static plans, single models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from vinelm.errors import WorkflowError
from vinelm.protocols import Clock, Invocation
from vinelm.template import Template
from vinelm.workflow import Request

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

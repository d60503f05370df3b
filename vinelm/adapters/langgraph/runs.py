"""One policy per run, found again by every stage and route of that run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from vinelm.adapters.langgraph.context import RunContext
from vinelm.errors import WorkflowError
from vinelm.protocols import Policy


@dataclass(slots=True)
class Run:
    """One run of the graph: its policy, and the decision of the current superstep.

    ``control`` is LangGraph's object for the run, held so that its id stays its own.
    """

    control: Any
    policy: Policy
    context: RunContext
    lock: Lock = field(default_factory=Lock)
    step: Any = None
    stage: str = ""
    prefix: tuple[str, ...] = ()
    model: str = ""

    def decide(self, step: Any, stage: str, prefix: tuple[str, ...]) -> str:
        """The policy's model for this invocation, asked once per superstep: the branches of a fan-out and the retries of a
        stage share it. :class:`WorkflowError` for two different stages in one superstep.
        """
        with self.lock:
            if step == self.step and stage != self.stage:
                raise WorkflowError(
                    f"stages {self.stage!r} and {stage!r} run in one superstep: "
                    "VineLM chooses models along one path, so put an edge between them"
                )
            if step != self.step or prefix != self.prefix:
                self.model = self.policy.next(stage, prefix)
                self.step, self.stage, self.prefix = step, stage, prefix
            return self.model


class Runs:
    """The newest ``bound`` runs. A run that is older than that many others loses its policy, so the bound is generous."""

    def __init__(self, bound: int = 4096) -> None:
        self._bound = bound
        self._runs: OrderedDict[int, Run] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._runs)

    def of(self, control: Any, make: Callable[[], tuple[Policy, RunContext]]) -> Run:
        """The run that LangGraph's ``control`` belongs to; ``make`` gives the policy of a new one. Safe from any thread."""
        key = id(control)
        with self._lock:
            run = self._runs.get(key)
            if run is not None:
                self._runs.move_to_end(key)
                return run
            run = Run(control, *make())
            self._runs[key] = run
            while len(self._runs) > self._bound:
                self._runs.popitem(last=False)
            return run

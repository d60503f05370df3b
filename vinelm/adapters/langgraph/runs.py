"""One policy per run, found again by every stage and route of that run."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from vinelm.adapters.langgraph.context import RunContext
from vinelm.errors import WorkflowError
from vinelm.protocols import Policy
from vinelm.telemetry.watch import Decided, Watch, explanation_of


@dataclass(slots=True)
class Run:
    """One run of the graph: its policy, and the decision of the current superstep.

    ``control`` is LangGraph's object for the run, held so that its id stays its own. ``chat_path`` is the path of the run's
    chat models, which no channel carries.
    """

    control: Any
    policy: Policy
    context: RunContext
    watch: Watch = field(default_factory=Watch)
    lock: Lock = field(default_factory=Lock)
    step: Any = None
    stage: str = ""
    prefix: tuple[str, ...] = ()
    model: str = ""
    chat_path: tuple[str, ...] = ()

    def decide(self, step: Any, stage: str, prefix: tuple[str, ...]) -> str:
        """The policy's model for this invocation, asked once per superstep: the branches of a fan-out and the retries of a
        stage share it. :class:`WorkflowError` for two different stages in one superstep.
        """
        with self.lock:
            if self.chat_path:
                raise WorkflowError(_MIXED.format(stage))
            if step == self.step and stage != self.stage:
                raise WorkflowError(
                    f"stages {self.stage!r} and {stage!r} run in one superstep: "
                    "VineLM chooses models along one path, so put an edge between them"
                )
            if step != self.step or prefix != self.prefix:
                self.model = self._ask(stage, prefix)
                self.step, self.stage, self.prefix = step, stage, prefix
            return self.model

    @property
    def path(self) -> tuple[str, ...] | None:
        """The path with the run's last invocation; None before its first one. Saves reading the channel anew."""
        return None if self.step is None else (*self.prefix, self.model)

    def has_written(self, path: tuple[str, ...]) -> bool:
        """Whether ``path`` is what the run's last invocation left."""
        return path == self.path

    # -- chat models, whose path the run itself keeps ------------------------------------------------------------

    def open_chat(self, stage: str) -> tuple[str, ...]:
        """The prefix of a chat model's next invocation, its model included. Calls under way at once share one place."""
        if self.step is not None:
            raise WorkflowError(_MIXED.format(stage))
        prefix = self.chat_path
        return (*prefix, self._ask(stage, prefix))

    def close_chat(self, prefix: tuple[str, ...]) -> None:
        """An invocation succeeded: the next one follows it, unless a call beside it has moved the path on already."""
        with self.lock:
            if self.chat_path == prefix[:-1]:
                self.chat_path = prefix

    def _ask(self, stage: str, prefix: tuple[str, ...]) -> str:
        if not self.watch:
            return self.policy.next(stage, prefix)
        started = time.perf_counter()
        model = self.policy.next(stage, prefix)
        seconds = time.perf_counter() - started
        self.watch.decided(
            Decided(
                kind="model",
                stage=stage,
                prefix=prefix,
                model=model,
                goes_on=True,
                seconds=seconds,
                explanation=explanation_of(self.policy),
            )
        )
        return model

    def goes_on(self, prefix: tuple[str, ...], finished: bool, state: Any) -> bool:
        """The policy's answer to a loop's edge."""
        if not self.watch:
            return self.policy.again(prefix, finished, state)
        started = time.perf_counter()
        goes_on = self.policy.again(prefix, finished, state)
        seconds = time.perf_counter() - started
        explanation = explanation_of(self.policy) if not finished else {}
        self.watch.decided(
            Decided(
                kind="end", stage=None, prefix=prefix, model=None, goes_on=goes_on, seconds=seconds, explanation=explanation
            )
        )
        return goes_on


_MIXED = (
    "stage {!r}: one run has both wrapped stages and a VineChatModel, which do not share a path: "
    "use vine.stage for all of them, or VineChatModel for all"
)


class Runs:
    """The newest ``bound`` runs. A run that is older than that many others loses its policy, so the bound is generous."""

    def __init__(self, bound: int = 4096, watch: Watch | None = None) -> None:
        self._bound = bound
        self.watch = Watch() if watch is None else watch  # an empty one is false
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
            run = Run(control, *make(), self.watch)
            self._runs[key] = run
            while len(self._runs) > self._bound:
                self._runs.popitem(last=False)
            return run

    def known(self, control: Any) -> Run | None:
        """The run that ``control`` belongs to, if it is there."""
        return self._runs.get(id(control))

    def forget(self, control: Any) -> None:
        """Drop that run, if it is there."""
        with self._lock:
            self._runs.pop(id(control), None)

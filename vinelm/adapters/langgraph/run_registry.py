"""One policy per run, found again by every stage and route of that run."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from vinelm.adapters.langgraph.path_channel import ChannelSession
from vinelm.adapters.langgraph.run_context import RunContext
from vinelm.errors import WorkflowError
from vinelm.protocols import Policy
from vinelm.telemetry import DecisionEvent, ObserverGroup, explanation_of


@dataclass(slots=True)
class GraphRun:
    """One run of the graph: its policy, and the decision of the current superstep.

    ``control`` is LangGraph's object for the run, held so that its id stays its own. ``begun`` and ``failed`` count the
    invocations of the current decision. ``chat_path`` is the path of the run's chat models, which no channel carries.
    """

    control: Any
    policy: Policy
    context: RunContext
    watch: ObserverGroup = field(default_factory=ObserverGroup)
    lock: Lock = field(default_factory=Lock)
    step: Any = None
    stage: str = ""
    prefix: tuple[str, ...] = ()
    model: str = ""
    begun: int = 0
    failed: int = 0
    chat_path: tuple[str, ...] = ()

    def decide(self, step: Any, stage: str, prefix: tuple[str, ...]) -> str:
        """The policy's model for this invocation, asked once per superstep, so that the branches of a fan-out share it; and
        again once all that began with it have failed, so that a retry need not go where it failed.
        :class:`WorkflowError` for two different stages in one superstep.
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
                self.begun = self.failed = 0
            if self.begun == self.failed:
                self.model = self._ask(stage, prefix)
                self.step, self.stage, self.prefix = step, stage, prefix
            self.begun += 1
            return self.model

    def note_failure(self) -> None:
        """An invocation of the current decision failed."""
        with self.lock:
            self.failed += 1

    @property
    def path(self) -> tuple[str, ...] | None:
        """The path with the run's last invocation; None before its first one. Saves reading the channel anew."""
        return None if self.step is None else (*self.prefix, self.model)

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
            DecisionEvent(
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
            DecisionEvent(
                kind="end", stage=None, prefix=prefix, model=None, goes_on=goes_on, seconds=seconds, explanation=explanation
            )
        )
        return goes_on


_MIXED = (
    "stage {!r}: one run has both wrapped stages and a VineChatModel, which do not share a path: "
    "use vine.stage for all of them, or VineChatModel for all"
)


class RunRegistry:
    """The runs that are under way, each with its policy. Safe from any thread.

    A run lives as long as LangGraph's channels for it. Where those are not known (graphs of chat models alone, with-blocks)
    the newest ``bound`` are kept: one that is older than that many others loses its policy, so the bound is generous.
    """

    def __init__(self, bound: int = 4096, watch: ObserverGroup | None = None) -> None:
        self._bound = bound
        self.watch = ObserverGroup() if watch is None else watch  # an empty one is false
        self._kept: OrderedDict[int, GraphRun] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        """How many are kept here."""
        return len(self._kept)

    def of(self, opening: ChannelSession | None, control: Any, make: Callable[[], tuple[Policy, RunContext]]) -> GraphRun:
        """The run of that opening, or of LangGraph's ``control`` where none is known; ``make`` gives a new one's policy."""
        if opening is None:
            return self._by_control(control, make)
        run: GraphRun | None = opening.owned.get(self)
        if run is None:
            with self._lock:
                run = opening.owned.get(self)
                if run is None:
                    run = opening.owned[self] = GraphRun(control, *make(), self.watch)
        return run

    def known(self, opening: ChannelSession | None, control: Any) -> GraphRun | None:
        """The same, if it is there."""
        return self._kept.get(id(control)) if opening is None else opening.owned.get(self)

    def forget(self, control: Any) -> None:
        """Drop that run, if it is kept here."""
        with self._lock:
            self._kept.pop(id(control), None)

    def _by_control(self, control: Any, make: Callable[[], tuple[Policy, RunContext]]) -> GraphRun:
        key = id(control)
        with self._lock:
            run = self._kept.get(key)
            if run is not None:
                self._kept.move_to_end(key)
                return run
            run = GraphRun(control, *make(), self.watch)
            self._kept[key] = run
            while len(self._kept) > self._bound:
                self._kept.popitem(last=False)
            return run

"""The runs of a graph that are in progress, each with its policy."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any

from vinelm.adapters.langgraph.path_channel import ChannelSession
from vinelm.adapters.langgraph.run_context import RunContext
from vinelm.errors import WorkflowError
from vinelm.protocols import Invocation, Policy
from vinelm.telemetry import DecisionEvent, ObserverGroup

_NOBODY = ObserverGroup()


class GraphRun:
    """One run of the graph: its policy, and the decision of the current superstep. Thread-safe.

    Attributes:
        control: LangGraph's object for the run, held so that its id is not reused.
        policy: chooses the run's models.
        context: what the run's caller asked for.
        path: models of the run's invocations up to the last one that began; None before the first.
    """

    __slots__ = (
        "_begun",
        "_chat_path",
        "_failed",
        "_lock",
        "_observers",
        "_prefix",
        "_stage",
        "_step",
        "_turns",
        "_unwritten_usd",
        "context",
        "control",
        "path",
        "policy",
    )

    def __init__(self, control: Any, policy: Policy, context: RunContext, observers: ObserverGroup = _NOBODY) -> None:
        self.control, self.policy, self.context = control, policy, context
        self.path: tuple[str, ...] | None = None
        self._observers = observers
        self._lock = Lock()
        self._step: Any = None
        self._stage = ""
        self._prefix: tuple[str, ...] = ()
        self._begun = self._failed = 0  # invocations of the current decision
        self._chat_path: tuple[str, ...] = ()  # of the run's chat models, which no channel carries
        self._unwritten_usd = 0.0
        self._turns: dict[str, int] = {}

    def take_turn(self, again: str, allowed: int) -> bool:
        """Count one more turn of the loop to ``again``; False if ``allowed`` turns were taken since it was begun."""
        with self._lock:
            taken = self._turns.get(again, 0)
            if taken >= allowed:
                return False
            self._turns[again] = taken + 1
            return True

    def end_loop(self, again: str) -> None:
        """Forget the turns of the loop to ``again``: it was left, and the run may begin it anew."""
        with self._lock:
            self._turns.pop(again, None)

    def decide(self, step: Any, stage: str, prefix: tuple[str, ...]) -> tuple[str, ...]:
        """Return ``prefix`` and the policy's model for the invocation of ``stage`` in superstep ``step``.

        The policy is asked once per superstep, so that the branches of a fan-out share a model; and again once every
        invocation that began with it has failed, so that a retry may use another one.

        Raises:
            WorkflowError: two stages run in one superstep, or the run has a chat model beside its stages.
        """
        with self._lock:
            if self._chat_path:
                raise _mixed(stage)
            if step != self._step:
                self._begun = self._failed = 0
            elif stage != self._stage:
                raise WorkflowError(
                    f"stages {self._stage!r} and {stage!r} run in one superstep: "
                    "VineLM chooses models along one path, so put an edge between them"
                )
            elif prefix != self._prefix:
                self._begun = self._failed = 0
            path = self.path
            if path is None or self._begun == self._failed:
                choose = self._observed_model if self._observers.observers else self.policy.next_model
                path = self.path = (*prefix, choose(stage, prefix))
                self._step, self._stage, self._prefix = step, stage, prefix
            self._begun += 1
            return path

    def record(self, invocation: Invocation) -> None:
        """Record an invocation of this run with its policy."""
        self.policy.record(invocation)
        cost_usd = invocation.cost_usd
        if cost_usd or invocation.failure is not None:
            with self._lock:
                self._unwritten_usd += cost_usd
                self._failed += invocation.failure is not None

    def take_unwritten_usd(self) -> float:
        """Return the dollars recorded since this was last called: what the next path entry has to carry."""
        if not self._unwritten_usd:
            return 0.0
        with self._lock:
            usd, self._unwritten_usd = self._unwritten_usd, 0.0
        return usd

    # -- chat models, whose path the run itself keeps ------------------------------------------------------------

    def open_chat(self, stage: str) -> tuple[str, ...]:
        """Return the path of a chat model's next invocation, its model included. Concurrent calls share one place in it.

        Raises:
            WorkflowError: the run has wrapped stages, too.
        """
        if self._step is not None:
            raise _mixed(stage)
        prefix = self._chat_path
        choose = self._observed_model if self._observers.observers else self.policy.next_model
        return (*prefix, choose(stage, prefix))

    def close_chat(self, path: tuple[str, ...]) -> None:
        """Note that an invocation succeeded: the next one follows it, unless a concurrent call has moved the path already."""
        with self._lock:
            if self._chat_path == path[:-1]:
                self._chat_path = path

    # -- decisions, observed -------------------------------------------------------------------------------------

    def should_continue(self, prefix: tuple[str, ...], finished: bool, state: Any) -> bool:
        """Return the policy's answer to a loop's edge."""
        if not self._observers.observers:
            return self.policy.should_continue(prefix, finished, state)
        started = time.perf_counter()
        goes_on = self.policy.should_continue(prefix, finished, state)
        self._observers.decided(
            DecisionEvent(
                kind="end",
                stage=None,
                prefix=prefix,
                model=None,
                goes_on=goes_on,
                seconds=time.perf_counter() - started,
                explanation={} if finished else self.policy.last_step(),
            )
        )
        return goes_on

    def _observed_model(self, stage: str, prefix: tuple[str, ...]) -> str:
        started = time.perf_counter()
        model = self.policy.next_model(stage, prefix)
        self._observers.decided(
            DecisionEvent(
                kind="model",
                stage=stage,
                prefix=prefix,
                model=model,
                goes_on=True,
                seconds=time.perf_counter() - started,
                explanation=self.policy.last_step(),
            )
        )
        return model


def _mixed(stage: str) -> WorkflowError:
    return WorkflowError(
        f"stage {stage!r}: one run has both wrapped stages and a VineChatModel, which do not share a path: "
        "use vine.stage for all of them, or VineChatModel for all"
    )


class RunRegistry:
    """Finds the run that a node or an edge belongs to. Thread-safe.

    A run lives as long as LangGraph's channels for it. Where those are not known (graphs of chat models alone, with-blocks)
    the newest ``bound`` runs are kept, and an older one loses its policy.

    Args:
        new_policy: returns the policy of a new run; called once per run.
        bound: number of runs to keep, at least 1.
        observers: notified of the runs' decisions.
    """

    def __init__(
        self, new_policy: Callable[[RunContext], Policy], bound: int = 4096, observers: ObserverGroup = _NOBODY
    ) -> None:
        self._new_policy = new_policy
        self._bound = bound
        self._observers = observers
        self._kept: OrderedDict[int, GraphRun] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        """Number of runs kept here."""
        return len(self._kept)

    def known(self, opening: ChannelSession | None, control: Any) -> GraphRun | None:
        """Return the run of that opening, or of LangGraph's ``control`` where none is known; None if it is new."""
        return self._kept.get(id(control)) if opening is None else opening.owned.get(self)

    def of(self, opening: ChannelSession | None, control: Any, context: RunContext) -> GraphRun:
        """Return the same run; if it is new, it is made for ``context`` and gets its policy."""
        with self._lock:
            run = self.known(opening, control)
            if run is None:
                run = GraphRun(control, self._new_policy(context), context, self._observers)
                if opening is not None:
                    opening.owned[self] = run
                    return run
                self._kept[id(control)] = run
                while len(self._kept) > self._bound:
                    self._kept.popitem(last=False)
            elif opening is None:
                self._kept.move_to_end(id(control))
            return run

    def forget(self, control: Any) -> None:
        """Drop that run, if it is kept here."""
        with self._lock:
            self._kept.pop(id(control), None)

"""Records the results of one served request as rows like those of a profile. Callers handle errors raised here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock, RLock

from vinelm.controller.planning.decision import Decision
from vinelm.policies.policy import observed_row
from vinelm.requests.protocols import Invocation
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.template.template import stage_title

Path = tuple[str, ...]


class InFlight:
    """Counts the calls that each engine is serving for this process. Thread-safe.

    Args:
        engine_of: the engine of each model, by name.
    """

    def __init__(self, engine_of: Mapping[str, str]) -> None:
        self._engine_of = engine_of
        self._counts: dict[str, int] = {}
        self._lock = RLock()  # reentrant, since another thread may count a request that is dropped

    def begin(self, model: str) -> int:
        """Increase the number of calls on the model's engine, and return its previous value."""
        engine = self._engine_of.get(model, model)
        with self._lock:
            before = self._counts.get(engine, 0)
            self._counts[engine] = before + 1
        return before

    def end(self, model: str) -> None:
        """Decrease the number of calls on the model's engine, because one has ended."""
        engine = self._engine_of.get(model, model)
        with self._lock:
            self._counts[engine] = max(self._counts.get(engine, 0) - 1, 0)


@dataclass
class _Pending:
    """A call whose row is not complete yet.

    Attributes:
        stage: the call's stage.
        in_flight: the number of other calls on the engine when this call began.
        attempts: the attempts that have ended.
        is_open: whether an attempt is in flight.
        began_s: the time at which the first attempt began; infinite until one has ended.
        ended_s: the time at which the last attempt ended.
        tools_until_s: the time at which the tools after the call ended; None until the check or the next call.
        stopped: True if the check passed the answer or no stage can follow, False if the request continued; None if unknown.
        arm: the stage that came next; None if the template does not branch there or no stage has come yet.
        signal: the call's runtime signal; None without one.
    """

    stage: str
    in_flight: int
    attempts: list[Invocation] = field(default_factory=list)
    is_open: bool = True
    began_s: float = math.inf
    ended_s: float = 0.0
    tools_until_s: float | None = None
    stopped: bool | None = None
    arm: str | None = None
    signal: str | None = None


class RequestRows:
    """Records the results of one request's calls as rows, one row per call. Thread-safe.

    A row is passed to ``emit`` when it is complete: once the request has continued or ended. It is like a profile's row without
    the success, which is unknown, and the answer, which is not kept.

    Attributes:
        run_id: the name that the caller gave the request.
        request_id: the name of the request in the rows.
        kind: the type for which the request is planned, which becomes part of the stage names in the rows; None if types are
            not distinguished.

    Args:
        run_id: as above.
        template: the workflow's shape.
        emit: called with each complete row; must not block.
        in_flight: counts the calls of the process.
        now: the request's clock, in seconds.
        request_id: as above; by default ``run_id``.
    """

    __slots__ = ("_emit", "_in_flight", "_lock", "_now", "_passed", "_pending", "_template", "kind", "request_id", "run_id")

    def __init__(
        self,
        run_id: str,
        template: Template,
        emit: Callable[[Observation], None],
        in_flight: InFlight,
        now: Callable[[], float],
        *,
        request_id: str | None = None,
    ) -> None:
        self.run_id, self.request_id = run_id, run_id if request_id is None else request_id
        self._template, self._emit, self._in_flight, self._now = template, emit, in_flight, now
        self._pending: dict[Path, _Pending] = {}
        self._passed: set[Path] = set()
        self.kind: str | None = None
        self._lock = Lock()

    def began(self, stage: str, path: Path, elapsed_s: float, decision: Decision | None) -> None:
        """Record that a call of ``stage`` begins; ``path`` ends with the call's model."""
        with self._lock:
            if self.kind is not None:
                stage = stage_title(stage, self.kind)
            known = self._pending.get(path)
            if known is not None and known.stage == stage:  # another attempt, or another branch of a fan-out
                if not known.is_open:
                    known.is_open = True
                    self._in_flight.begin(path[-1])
                return
            before = self._pending.get(path[:-1])
            if before is not None:
                before.stopped = bool(before.stopped)
                before.arm = self._template.noted(stage) if self.kind is None else stage
                before.tools_until_s = self._now()
            for done in [other for other, one in self._pending.items() if not one.is_open]:
                self._emit_row(done)
            self._pending[path] = _Pending(stage, self._in_flight.begin(path[-1]))

    def ended(self, invocation: Invocation, excess_s: float | None) -> None:
        """Record that an attempt of a call has ended; ``excess_s`` is ignored."""
        with self._lock:
            one = self._pending.get(invocation.prefix)
            if one is None:
                return
            one.attempts.append(invocation)
            one.ended_s = self._now()
            one.began_s = min(one.began_s, one.ended_s - invocation.latency_s)
            self._close(invocation.prefix, one)

    def interrupted(self, path: Path) -> None:
        """Record that the call has no result and will run again."""
        with self._lock:
            one = self._pending.get(path)
            if one is not None:
                self._close(path, one)

    def verdict(self, path: Path, finished: bool) -> None:
        """Record whether the answer of the call at the end of ``path`` passed the workflow's check.

        ``finished`` is True if it passed.
        """
        with self._lock:
            one = self._pending.get(path)
            if one is not None:
                one.stopped, one.tools_until_s = finished, self._now()
            if finished:
                self._passed.add(path)

    def shown(self, path: Path, signal: str | None) -> None:
        """Record the signal of the call at the end of ``path``; None without one.

        A signal is a label that the application derives from the call's answer.
        """
        with self._lock:
            one = self._pending.get(path)
            if one is not None:
                one.signal = signal

    def left(self) -> None:
        """Record that the last loop of the workflow has ended.

        If no stage can follow, the request ends and its rows are emitted.
        """
        if self._template.certain_stages:  # otherwise the application may still choose a stage after the loop
            self._settle(keeps_open=True)

    def close(self) -> None:
        """Emit the remaining rows, because the request has ended."""
        self._settle(keeps_open=False)

    def _settle(self, *, keeps_open: bool) -> None:
        with self._lock:
            certain = len(self._template.certain_stages)
            for path, one in list(self._pending.items()):
                if one.is_open:
                    if keeps_open:
                        continue
                    self._close(path, one)
                if one.stopped is None and 0 < certain <= len(path):  # no stage can follow
                    one.stopped = True
                self._emit_row(path)

    # -- with the lock held ------------------------------------------------------------------------------------

    def _close(self, path: Path, one: _Pending) -> None:
        if one.is_open:
            self._in_flight.end(path[-1])
            one.is_open = False

    def _emit_row(self, path: Path) -> None:
        one = self._pending.pop(path)
        if not one.attempts:
            return
        last = one.attempts[-1]
        failed = all(attempt.failure is not None for attempt in one.attempts)
        until_s = one.ended_s if one.tools_until_s is None else one.tools_until_s
        self._emit(
            observed_row(
                one.attempts,
                request_id=self.request_id,
                prefix=path,
                stage=one.stage,
                span_s=one.ended_s - one.began_s if one.stage in self._template.per_node else None,
                success=None,
                stopped=None if failed else one.stopped,
                tool_latency_s=0.0 if failed else max(until_s - one.ended_s, 0.0),
                in_flight=one.in_flight,
                failure=last.failure if failed else None,
                detail=last.detail if failed else None,
                arm=None if failed else one.arm,
                signal=one.signal,
                is_continued=any(path[:k] in self._passed for k in range(1, len(path))),
            )
        )

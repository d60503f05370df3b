"""Runs a batch at batch prices: a request stops at a call without an answer, and runs again once the call is answered.

docs/decisions/0034-batch.md describes what is paid when, and what remains if the process is killed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from langchain_core.runnables.config import var_child_runnable_config

from vinelm.adapters.langgraph.build import nodes_beside_stages
from vinelm.backends.remote.batches import BatchesLeft, BatchGate, BatchTimes
from vinelm.backends.remote.parked_calls import CallParked, ParkedUnit
from vinelm.batches.plan_shares import DrawnPlan
from vinelm.batches.run import DEADLINE, DatasetRun
from vinelm.batches.steering import DatasetForecast
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, VineLMError
from vinelm.objective import Objective
from vinelm.profiler.dry_run.batch_api_forecast import BatchApiForecast
from vinelm.profiler.execution.batch_api import CODE, PART, BatchPrices, gate_of, through, with_batches
from vinelm.profiler.execution.job import UnitBudget
from vinelm.profiler.execution.replayed.application import RepeatGuard
from vinelm.requests.protocols import Backend
from vinelm.requests.workflow import Request, Workflow
from vinelm.running.request_ledger import Paying
from vinelm.template import Parallel, Template
from vinelm.template.steps import walk
from vinelm.traces.served.answers import Answer
from vinelm.traces.store.batches import BatchRecords


class NoRoom(BaseException):
    """Raised if the budget has no room for a call while other calls wait in batches."""


class Gate(NamedTuple):
    """A queue in which calls wait for their batches, and copies of all backends, by provider, that send their calls to this
    queue.
    """

    gate: BatchGate
    backends: Mapping[str, Backend]


def gate_for(template: Template, catalog: Catalog, backends: Mapping[str, Backend], times: BatchTimes) -> Gate:
    """Create the queue in which a workflow's calls wait for their batches, and backends that send their calls to it.

    Raises:
        ConfigError: a model has no batches, so that rerunning a request would repeat its calls.
    """
    models = [name for name in template.models if name in catalog]
    found = with_batches(models, catalog, backends)
    if lacking := [name for name in models if name not in found]:
        raise ConfigError(
            f"model {lacking[0]!r} has no batch prices, and a request is run again for each batch: leave it out", code=CODE
        )
    gate = gate_of(found, catalog, backends, BatchPrices(times=times))
    return Gate(gate, through(gate, backends))


def require_repeatable(workflow: Workflow, app: Any, objective: Objective) -> None:
    """Raise :class:`ConfigError` if requests cannot run again from their start each time that a batch has answered one of
    their calls.
    """
    if objective.max_latency_s is not None:
        raise ConfigError(
            "max_latency_s bounds the seconds of a request, which waits hours for a batch: leave it out", code=CODE
        )
    if workflow.replay:
        return
    nodes = nodes_beside_stages(app)
    others = ["the application"] if nodes is None else [f"node {name!r}" for name in nodes if name not in workflow.unrepeatable]
    if others:
        raise ConfigError(
            f"{others[0]} is more than a stage, and would run again for each batch that a request waits for: say that it may "
            "with Workflow(replay=True), or that a node must not with Workflow(unrepeatable=)",
            code=CODE,
        )


def rest_s(forecast: DatasetForecast, requests: int, workers: int) -> float:
    """Return the maximum number of seconds for ``requests`` requests on ``workers`` workers; 0 without requests.

    Each request is assumed to take the mean time of the plans, and the last one to begin only when all others have ended.
    """
    mean_s = sum(share * plan.seconds for share, plan in forecast.shares)
    return mean_s * (requests / workers + 1.0) if requests else 0.0


def in_batches(forecast: DatasetForecast, template: Template, times: BatchTimes) -> tuple[DatasetForecast, BatchApiForecast]:
    """Convert a batch's forecast at ordinary prices to batch prices.

    Returns:
        Two forecasts. The first is ``forecast`` at batch prices, with the longest possible duration. The second compares both
        costs and states the longest wait for a batch.
    """
    halved = replace(forecast, usd=PART * forecast.usd, seconds=template.depth * times.wait_s)
    return halved, BatchApiForecast(
        cost_usd=halved.usd, ordinary_usd=forecast.usd, waves=template.depth, wait_s=times.wait_s, timed_cells=0
    )


@dataclass(eq=False)
class _Begun:
    """A request that has begun, and the objects that its repeated runs share. ``guard`` authorizes the calls of its latest run;
    None before the first run.
    """

    request: Request
    drawn: DrawnPlan
    unit: ParkedUnit
    paying: Paying
    guard: UnitBudget | None = None


class BatchApiRun(DatasetRun):
    """Serves requests whose calls go in the providers' batches.

    A request has one of these states: left (it has not begun), ready (it can be run from its start), active (a thread runs it),
    parked (one of its calls waits for a batch), put off (the budget has no room for it while other requests are parked), and
    ended.

    Args:
        gate: The queue where calls wait; already started.
        records: The store's batches.
        times: How long to wait for a batch.
        forecast: The forecast of the plans.
        common: The other arguments of :class:`DatasetRun`.
    """

    _orders_calls = False  # calls in a batch wait for no engine

    def __init__(
        self, *common: Any, gate: BatchGate, records: BatchRecords, times: BatchTimes, forecast: DatasetForecast, **named: Any
    ) -> None:
        super().__init__(*common, **named)
        self._gate, self._records, self._window_s, self._forecast = gate, records, times.wait_s, forecast
        steps = walk(self._app.workflow.template.steps)
        self._side_by_side = max((len(step.stages) for step in steps if isinstance(step, Parallel)), default=1)
        self._begun: dict[str, _Begun] = {}
        self._ready: deque[str] = deque()
        self._put_off: list[str] = []
        self._parked: set[str] = set()
        bought = records.requests()
        self._bought = {key for key in self._left if self._found.first[key].id in bought}
        self._left.sort(key=self._bought.__contains__)  # bought requests first: their answers are paid, and make room
        self._active = 0
        self._leaving: set[str] = set()  # active requests that are being postponed and give back their reservations

    # -- what runs next --------------------------------------------------------------------------------------------

    def _next(self) -> tuple[str, Request, DrawnPlan] | None:
        with self._lock:
            while not self._crew.is_stopping:
                if (found := self._again() or self._fresh()) is not None:
                    self._active += 1
                    return found
                if not (self._left or self._parked or self._put_off or self._active):
                    return None
                # Postponed means that the budget had no room. While others run or wait, they may end below their bounds and
                # make room.
                if self._put_off and not (self._parked or self._active):
                    self._take_up()  # nothing is left that could make room: the ledger decides
                elif not self._left or (self._put_off and not self._may_fetch()):
                    self._lock.wait(0.2)
            return None

    def _again(self) -> tuple[str, Request, DrawnPlan] | None:
        if not self._ready:
            return None
        key = self._ready.popleft()
        return key, self._begun[key].request, self._begun[key].drawn

    def _fresh(self) -> tuple[str, Request, DrawnPlan] | None:
        if not self._left or (self._put_off and not self._may_fetch()):
            return None
        key, drawn = self._left.pop(), None
        if self._deadline_s is None or self.elapsed_s < self._deadline_s:
            # Depends on the plan only: each request must repeat the calls that it made before the process died.
            drawn = self._steering.next(key, elapsed_s=0.0)
        else:
            self.because = self.because or DEADLINE
        if drawn is None:
            self.because = self.because or self._bound()
            return None
        return key, self._found.first[key], drawn

    def _may_fetch(self) -> bool:
        """Return whether the next request to begin has calls that an earlier process has paid for, so that it can fetch their
        answers. The caller must hold the lock.
        """
        return bool(self._left) and self._left[-1] in self._bought

    def _take_up(self) -> None:
        """Make postponed requests ready again. The caller must hold the lock."""
        self._ready += self._put_off
        self._put_off.clear()
        self._lock.notify_all()

    def _answered(self, key: str, future: Any = None) -> None:
        """Record that the answer to a parked request's call has arrived, so that the request is ready to run again.

        ``key`` is the request's key; requests that are not parked are left as they are. ``future`` is ignored.
        """
        with self._lock:
            if key in self._parked:
                self._parked.remove(key)
                self._ready.append(key)
                self._take_up()

    def _may_wait(self) -> bool:
        """Return whether a batch submitted now would end early enough to make the remaining calls directly afterwards."""
        if self._deadline_s is None:
            return True
        return self.elapsed_s + self._window_s + rest_s(self._forecast, self.left, self._workers) <= self._deadline_s

    # -- one request -------------------------------------------------------------------------------------------------

    def _serve(self, key: str, request: Request, drawn: DrawnPlan) -> None:
        begun = self._begun.get(key) or self._begin(key, request, drawn)
        made: list[Answer] = []
        try:
            run = partial(self._run, key, begun, made)
            self._note_end(key, self._ledger.serve(request.id, run, partial(self._keep, begun), begun.paying), made)
            del self._begun[key]
        except CallParked:
            with self._lock:
                self._parked.add(key)
            waiting = begun.unit.pending
            # The run is over and keeps only its answered calls, in the store: waiting for hours costs neither a thread nor
            # memory.
            for future in waiting:
                future.add_done_callback(partial(self._answered, key))
            if not waiting:
                self._answered(key)  # it has arrived meanwhile
        except NoRoom:
            if begun.guard is not None:  # its next call is not made, and earlier calls are booked at their price or their bound
                owed_usd = begun.guard.spent_usd + begun.guard.reserved_usd + begun.paying.unused_usd()
                self._ledger.give_back(begun.paying, owed_usd)
            with self._lock:
                self._put_off.append(key)
        except BatchesLeft as left:
            raise VineLMError(str(left), code="batches-left") from None
        finally:
            with self._lock:
                self._active -= 1
                self._leaving.discard(key)
                if key not in self._begun:
                    self._take_up()
                self._lock.notify_all()

    def _begin(self, key: str, request: Request, drawn: DrawnPlan) -> _Begun:
        unit = ParkedUnit((request.id, ()), may_wait=self._may_wait, side_by_side=self._side_by_side)
        unit.bought = self._records.digests(unit.cell)
        paying = self._ledger.paying(
            request.id,
            on_full=partial(self._require_room, key, unit),
            unused_usd=lambda: self._records.upper_usd(unit.cell, frozenset(unit.asked)),
            has_bought=lambda: bool(unit.bought or unit.futures),
        )
        unit.on_at_once = partial(self._ledger.keep, paying)
        begun = self._begun[key] = _Begun(request, drawn, unit, paying)
        return begun

    def _require_room(self, key: str, unit: ParkedUnit) -> None:
        """Postpone a request if the budget has no room for its next call and another request may free money.

        To postpone it, raise :class:`NoRoom`. If no other request may free money, return instead, so that some request always
        progresses. Before that, wait until the requests that are being postponed have given back their reservations.
        """
        with self._lock:
            others = self._active > len(self._leaving | {key})
            is_expected = self._parked or self._ready or self._may_fetch() or others
            if is_expected:
                self._leaving.add(key)
            else:
                self._lock.wait_for(lambda: not self._leaving)
        if is_expected:
            raise unit.halt(NoRoom())

    def _run(self, key: str, begun: _Begun, made: list[Answer], guard: UnitBudget) -> Answer:
        """Run the request from its start, until it ends or waits for a batch, and return its answer.

        The answer is also added to ``made``; ``guard`` authorizes the calls.

        Raises:
            BatchesLeft: Waiting for batches has stopped.
        """
        unit, request = begun.unit, begun.request
        self._guards[request.id] = begun.guard = guard
        unit.begin(guard.add_inherited)
        try:
            with self._gate.unit(unit.cell, is_batched=True, again=unit), self._once(unit):
                answer: Answer = replace(self._server.serve(request, begun.drawn, guard), key=key)
        finally:
            del self._guards[request.id]
        if unit.halted is not None:  # whatever the application made of it is not an answer
            raise unit.halted
        if answer.failure is not None and self._gate.problem is not None:
            raise BatchesLeft(self._gate.problem)
        since_s = self._records.since_s(unit.cell)
        if since_s is not None:  # a rerun with all answers takes no time
            answer = replace(answer, latency_s=max(time.time() - since_s, 0.0))
        made.append(answer)
        return answer

    def _keep(self, begun: _Begun, entry: int, answer: Answer) -> None:
        self._answers.add(entry, answer)
        self._records.drop(begun.unit.cell)

    @contextmanager
    def _once(self, unit: ParkedUnit) -> Iterator[None]:
        """Inside the block, make the request stop using batches as soon as a node or tool begins that must not run twice.

        Without batches, the request is not run again, so this node or tool runs only once.
        """
        names = self._app.workflow.unrepeatable
        if not names:
            yield
            return
        token = var_child_runnable_config.set({"callbacks": [_RunOnce(unit, names)]})
        try:
            yield
        finally:
            var_child_runnable_config.reset(token)


class _RunOnce(RepeatGuard):
    """A LangChain callback that makes a request stop using batches before a node or tool runs that must not run twice."""

    def __init__(self, unit: ParkedUnit, names: tuple[str, ...]) -> None:
        self._unit, self._names = unit, frozenset(names)

    def _refuse(self, name: Any) -> None:
        if name in self._names:
            self._unit.leave_batches()

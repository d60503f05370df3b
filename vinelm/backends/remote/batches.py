"""Makes the calls of many runs in the providers' batches at half price, and never pays for a call twice.

A run of a request, called a unit in the code, waits here when it calls its model. When all runs wait, their calls are
submitted, one batch for each model. The batches are polled, and their answers are passed to the runs. The states of a batch in
the records (:class:`KeepsBatches`)::

    recorded    our key and the digests of its calls are on disk; nothing is sent
       |        submit: the key goes along, in the batch's metadata and in the name of each call
    submitted   the provider's id is on disk
       |        poll, until it is completed, expired, cancelled or failed
    closed      its answers are on disk, in one transaction; only now the runs get them
                the records of a run's calls are deleted in the transaction that writes the run's result

A process may die between any two of these. The next process makes the same calls again, with the same digests: a call in a
closed batch is answered from the disk, and a call in a submitted batch waits for that batch. A batch that is only recorded may
have been sent or not, so we search the provider's list of batches for our key. If the list still lacks the key
after :attr:`BatchTimes.settle_s` seconds, the batch was not sent, and its calls are collected again. These seconds begin when
the submit request has ended or, in a later process, when that process has found the record. Anthropic's list has no keys: there
a running batch with the same number of calls may be ours, so we wait for its end.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from vinelm.backends.remote.failures import failed as failure_in
from vinelm.backends.remote.inner import InnerChat
from vinelm.backends.remote.meter import ModelRequest, bound_of
from vinelm.backends.remote.provider import BatchApi, Piece, failure_of
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.backends.remote.usage import counts_of
from vinelm.catalog import Model
from vinelm.catalog.secrets import redacted
from vinelm.requests.protocols import OpenBatch
from vinelm.rows.observation import Cell
from vinelm.threads import beside

_LOGGER = logging.getLogger(__name__)
DAY_S = 86_400.0
"""The window within which a batch ends, at each of the providers."""
_RESUBMITS = 5
_LAST_S = 5.0
_MISSES = 5
"""How many times in a row a provider may refuse to report a batch's status before the batch's answers count as lost."""
_SIGNED = ("thinking", "thought_signature")
"""Signatures that a process knew and its successor does not: they are sent with a request but do not decide its answer."""


class BatchesLeft(BaseException):
    """Raised in a run when waiting for its batches has been given up. Not an ``Exception``, so that applications do not treat
    it as a failed call.
    """


@dataclass(frozen=True)
class BatchTimes:
    """Time limits and intervals of batches, in seconds.

    Attributes:
        wait_s: how long a run waits for one batch to end.
        collect_s: the maximum time that a call waits for other calls to join its batch.
        quiet_s: the time without a new call after which the collected calls are sent, if every run waits.
        poll_s: time between two polls of a batch; the first polls come sooner.
        settle_s: the maximum time that a sent batch takes to appear in the provider's list.
    """

    wait_s: float = DAY_S
    collect_s: float = 120.0
    quiet_s: float = 2.0
    poll_s: float = 60.0
    settle_s: float = 60.0


class KeepsBatches(Protocol):
    """The interface of durable records of batches. A store implements it in
    :class:`vinelm.traces.store.batches.BatchRecords`.
    """

    def record(self, key: str, model: str, calls: Sequence[tuple[str, Cell, float]]) -> OpenBatch:
        """Record a batch before it is submitted, and return the record.

        ``key`` is our key for the batch, ``model`` the model's name. ``calls`` has the digest, the run and the maximum cost in
        dollars of each call.
        """

    def submitted(self, batch_id: int, provider_id: str) -> None:
        """Record that a batch was submitted, with the id that the provider gave it."""

    def forget(self, batch_id: int) -> None:
        """Delete a batch that was not submitted."""

    def close(self, batch_id: int, answers: Mapping[str, str]) -> None:
        """Store the answers of a batch by their calls' digests, and record that the batch has ended."""

    def open(self) -> Sequence[OpenBatch]:
        """Return the records of the batches that have no answers yet."""

    def provider_ids(self) -> frozenset[str]:
        """Return the providers' ids of all recorded batches that are known to be submitted."""

    def calls_of(self, batch_id: int) -> Sequence[str]:
        """Return the digests of a batch's calls."""

    def find(self, digest: str) -> tuple[int, str | None] | None:
        """Return the id of the batch that contains the call ``digest``, and the call's answer or None if it has none yet.

        Return None if no batch contains the call.
        """


@dataclass(eq=False)
class BatchedUnit:
    """A run of a request whose calls go in batches.

    Attributes:
        cell: identifies the run: the request's id and the models of its path.
        asked: the digests of the run's calls so far.
        futures: the answers to its calls, by digest; an answer may be pending.
    """

    cell: Cell
    asked: set[str] = field(default_factory=set)
    futures: dict[str, Future[Mapping[str, Any]]] = field(default_factory=dict)
    _times: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def digest(self, model: Model, body: Mapping[str, Any]) -> str:
        """Return the digest of the run's next call. It is the same if the run is repeated after its process died."""
        content = self._content(model, body)
        with self._lock:
            self._times[content] += 1
            digest = self.numbered(content, self._times[content])
            self.asked.add(digest)
        return digest

    def is_bought(self, gate: BatchGate, digest: str) -> bool:
        """Return whether a batch of this or an earlier process already contains this call."""
        return digest in self.futures or gate.find(digest)[0]

    def answer(self, future: Future[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Wait for the batch, and return the provider's answer."""
        return future.result()

    async def aanswer(self, future: Future[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the provider's answer, like :meth:`answer`, without blocking the event loop."""
        return await asyncio.wrap_future(future)

    @staticmethod
    def numbered(content: str, times: int) -> str:
        """Return the digest of a call, given the digest of its content and how many times the run has made it, this time
        included.
        """
        return hashlib.sha256(f"{content} {times}".encode()).hexdigest()[:40]

    def _content(self, model: Model, body: Mapping[str, Any]) -> str:
        plain = json.dumps([self.cell, model.provider, model.model_id, _unsigned(body)], default=repr, sort_keys=True)
        return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()


UNIT: ContextVar[BatchedUnit | None] = ContextVar("vinelm_batched_unit", default=None)
"""The run in this context whose calls go in batches; None if calls are made directly."""


@dataclass(eq=False)
class _Call:
    digest: str
    unit: BatchedUnit
    model: Model
    body: Mapping[str, Any]
    upper_usd: float
    asked_s: float
    answer: Future[Mapping[str, Any]] = field(default_factory=Future)


@dataclass(eq=False)
class _Polled:
    """An open batch and the times of its polls, in seconds of ``time.monotonic()``.

    Attributes:
        batch: the record of the batch.
        provider_id: the provider's id of the batch; None while it is not known whether the batch was submitted.
        due_s: when the next poll is due.
        step_s: the interval between the next poll and the poll after that.
        since_s: when this process began to wait for the batch.
        misses: the number of consecutive searches in which the provider did not list the batch.
    """

    batch: OpenBatch
    provider_id: str | None
    due_s: float = 0.0
    step_s: float = 0.0
    since_s: float = field(default_factory=time.monotonic)
    misses: int = 0


class BatchGate:
    """The queue in which the calls of runs wait for their batches. Thread-safe; a separate thread submits and polls.

    Args:
        models: the models whose calls go in batches, by name, each with its provider's batch API.
        times: the time limits and intervals.
    """

    def __init__(self, models: Mapping[str, tuple[Model, BatchApi]], times: BatchTimes) -> None:
        self._models, self._times = models, times
        self._changed = threading.Condition()
        self._collected: list[_Call] = []
        self._waiting: dict[str, _Call] = {}
        self._refusals: Counter[str] = Counter()
        self._retry_s = 0.0
        self._units = 0
        self._idle: Counter[BatchedUnit] = Counter()
        self._arrived_s = time.monotonic()
        self._problem: str | None = None
        self._open: list[_Polled] = []
        self._working: Future[None] | None = None

    def start(self, records: KeepsBatches) -> None:
        """Start the thread that submits and polls batches, including open batches of earlier processes. The caller must hold
        the lock of the store with the records.
        """
        self._records = records
        self._open = [_Polled(batch, batch.provider_id) for batch in records.open() if batch.model in self._models]
        self._working = beside(self._work, name="vinelm batches")

    @property
    def models(self) -> frozenset[str]:
        """Names of the models whose calls go in batches."""
        return frozenset(self._models)

    @property
    def problem(self) -> str | None:
        """The reason why the gate has stopped waiting for batches; None while it waits."""
        return self._problem

    # -- units ---------------------------------------------------------------------------------------------------

    @contextmanager
    def unit(self, cell: Cell, *, is_batched: bool, again: BatchedUnit | None = None) -> Iterator[BatchedUnit]:
        """Inside the block, count one more run in progress. Yield the object that identifies the run's calls.

        The gate sends collected calls once all counted runs wait.

        Args:
            cell: the request's id and the models of the run's path.
            is_batched: whether the run's calls go in batches. False makes calls directly, so that their latency is measured.
            again: the object of an earlier run that this run continues, of the same request; None for a new run.
        """
        unit = again or BatchedUnit(cell)
        token = UNIT.set(unit if is_batched else None)
        self._count(1)
        try:
            yield unit
        finally:
            UNIT.reset(token)
            self._count(-1)

    @contextmanager
    def idle(self, unit: BatchedUnit) -> Iterator[None]:
        """Mark a run as waiting inside the block, so that collected calls are sent once all runs wait."""
        with self._changed:
            self._idle[unit] += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._idle[unit] -= 1
                self._idle += Counter()  # drops units that do not wait

    def ask(
        self, model: Model, body: Mapping[str, Any], unit: BatchedUnit, upper_usd: float, digest: str
    ) -> Future[Mapping[str, Any]]:
        """Queue a call for the next batch, or find it in an earlier batch. Return a future of the provider's answer.

        Args:
            model: the model to call.
            body: the request's body.
            unit: the run that makes the call.
            upper_usd: the call's maximum cost in dollars.
            digest: identifies the call.
        """
        if (asked := unit.futures.get(digest)) is not None:
            return asked
        call = _Call(digest, unit, model, body, upper_usd, time.monotonic())
        with self._changed:
            if self._problem is not None:
                raise BatchesLeft(self._problem)
            found = self._records.find(digest)
            if found is None:
                self._collected.append(call)
            elif found[1] is None:
                self._waiting[digest] = call
            else:
                call.answer.set_result(json.loads(found[1]))
            self._arrived_s = time.monotonic()
            self._changed.notify_all()
            unit.futures[digest] = call.answer
        return call.answer

    def find(self, digest: str) -> tuple[bool, Mapping[str, Any] | None]:
        """Return whether a recorded batch contains the call, and the call's answer.

        The answer is None if no batch contains the call, or if its batch has no answers yet.
        """
        found = self._records.find(digest)
        return found is not None, json.loads(found[1]) if found is not None and found[1] is not None else None

    def close(self, problem: str = "the run has ended") -> None:
        """Stop waiting for batches: every waiting call raises :class:`BatchesLeft`. ``problem`` is the reason. Idempotent."""
        with self._changed:
            if self._problem is None:
                self._problem = problem
            left = [*self._collected, *self._waiting.values()]
            self._collected.clear()
            self._waiting.clear()
            self._changed.notify_all()
        for call in left:
            _settle(call, BatchesLeft(self._problem))

    def end(self) -> None:
        """Stop waiting for batches, and wait for the thread, but only briefly, since its current HTTP request may take long."""
        self.close()
        if self._working is not None:
            wait([self._working], _LAST_S)
        for _, api in self._models.values():
            api.close()

    def _count(self, change: int) -> None:
        with self._changed:
            self._units += change
            self._arrived_s = time.monotonic()
            self._changed.notify_all()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while self._problem is None:
                for calls in self._due():
                    if self._problem is None:  # else nothing more is bought
                        self._submit(calls)
                for polled in [one for one in self._open if one.due_s <= time.monotonic()]:
                    self._look_at(polled)
                with self._changed:
                    if self._problem is None:
                        self._changed.wait(self._pause_s())
        except Exception as error:
            # A disk error or a bug of ours: the units must not wait for a thread that is gone.
            _LOGGER.debug("batches: %s", type(error).__name__, exc_info=True)
            self.close(f"its batches cannot be kept ({type(error).__name__}): run the same line again, which fetches them")

    def _pause_s(self) -> float:
        now_s = time.monotonic()
        due = [one.due_s - now_s for one in self._open]
        if self._collected:
            due.append(self._times.quiet_s / 2)
        return max(min(due, default=1.0), 0.005)

    def _due(self) -> list[list[_Call]]:
        """Remove and return the calls to submit now, grouped by model into batches of a size that the provider accepts."""
        times = self._times
        with self._changed:
            now_s = time.monotonic()
            if not self._collected or now_s < self._retry_s:
                return []
            all_wait = len(self._idle) >= self._units and now_s - self._arrived_s >= times.quiet_s
            if not all_wait and now_s - self._collected[0].asked_s < times.collect_s:
                return []
            taken, self._collected = self._collected, []
            self._waiting |= {call.digest: call for call in taken}
        by_model: dict[str, list[_Call]] = {}
        for call in sorted(taken, key=lambda call: call.digest):
            by_model.setdefault(call.model.name, []).append(call)
        return [part for name, calls in by_model.items() for part in _parts(calls, self._models[name][1])]

    def _submit(self, calls: list[_Call]) -> None:
        model = calls[0].model
        api, key = self._models[model.name][1], secrets.token_hex(8)
        batch = self._records.record(key, model.name, [(call.digest, call.unit.cell, call.upper_usd) for call in calls])
        polled = _Polled(batch, None)
        failed: AttemptFailed | None = None
        try:
            polled.provider_id = api.submit(model, key, {f"{key}-{call.digest}": call.body for call in calls})
        except Exception as error:  # the provider's package may raise anything
            failed = failure_in(error, has_begun=False)
        polled.since_s = time.monotonic()  # an upload may have taken minutes
        if polled.provider_id is not None:
            self._records.submitted(batch.batch_id, polled.provider_id)
        if failed is not None and not failed.may_be_billed:
            self._records.forget(batch.batch_id)
            self._refused(calls, failed)
            return
        self._open.append(polled)  # without an id it may have been sent, so it is searched for
        if polled.provider_id is not None:
            self._refusals.pop(model.name, None)
            return
        self._refusals[model.name] += 1
        if self._refusals[model.name] > _RESUBMITS and failed is not None:
            self.close(f"{model.name}: its batches cannot be submitted: {failed.detail}: repair it and run the same line again")

    def _refused(self, calls: list[_Call], failed: AttemptFailed) -> None:
        """Handle a batch that the provider refused with ``failed``: retry later if that may help, else fail each call."""
        name = calls[0].model.name
        self._refusals[name] += 1
        if failed.kind in ("rate_limit", "server") and not failed.is_final and self._refusals[name] <= _RESUBMITS:
            again_s = max(failed.retry_after_s or 0.0, self._times.quiet_s * 2.0 ** self._refusals[name])
            self._collect_again(calls, time.monotonic() + again_s)
            return
        self._refusals.pop(name, None)  # calls of a later wave get as many tries
        for call in calls:
            self._waiting.pop(call.digest, None)
            _settle(call, failure(failed.kind, failed.detail))

    def _collect_again(self, calls: Sequence[_Call], retry_s: float = 0.0) -> None:
        with self._changed:
            for call in calls:
                self._waiting.pop(call.digest, None)
            self._collected += calls
            self._retry_s = max(self._retry_s, retry_s)  # another model's back-off still counts

    def _look_at(self, polled: _Polled) -> None:
        """Poll a batch at the provider, and handle its answers if it has ended."""
        times, batch = self._times, polled.batch
        polled.step_s = min(max(polled.step_s * 1.5, times.poll_s / 20), times.poll_s)
        model, api = self._models[batch.model]
        answers: Sequence[tuple[str, Mapping[str, Any]]] | None = None
        try:
            if polled.provider_id is None:
                self._search(polled, model, api)
            if polled.provider_id is not None:
                answers = api.answers(model, polled.provider_id)
            polled.misses = 0
        except Exception as error:  # the same
            failed = failure_in(error, has_begun=False)
            polled.misses += failed.is_final and polled.provider_id is not None
            if polled.misses >= _MISSES:
                lost = failure("server", "the provider does not have its batch any more", may_be_billed=True)
                answers = [(BatchApi.REST, lost)]
            if failed.kind == "auth":
                self.close(f"{model.name}: {failed.detail}: repair it and run the same line again, which fetches its batches")
        if answers is not None:
            self._close_batch(polled, answers)
        elif time.monotonic() - polled.since_s > times.wait_s:
            self.close(
                f"a batch of {model.name} has not ended after {times.wait_s / 3600:g} h: run the same line again to go on "
                "waiting, and nothing is bought twice"
            )
        polled.due_s = time.monotonic() + polled.step_s

    def _search(self, polled: _Polled, model: Model, api: BatchApi) -> None:
        """Search the provider's list for a recorded batch that may not have been submitted.

        If the batch is found, store its id. If it was certainly never submitted, delete its record and queue its waiting calls
        again. Otherwise the next poll searches again.
        """
        batch = polled.batch
        # Before the search: everything sent earlier must then be in the list.
        is_settled = time.monotonic() - polled.since_s >= self._times.settle_s
        found = api.find(model, batch.key, batch.recorded_s, batch.calls, self._records.provider_ids())
        if found.provider_id is not None:
            polled.provider_id = found.provider_id
            self._records.submitted(batch.batch_id, found.provider_id)
        elif found.is_certain and is_settled:
            with self._changed:
                digests = self._records.calls_of(batch.batch_id)
                self._records.forget(batch.batch_id)
                calls = [self._waiting[digest] for digest in digests if digest in self._waiting]
            self._collect_again(calls)
            self._open.remove(polled)

    def _close_batch(self, polled: _Polled, answers: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        batch = polled.batch
        said: dict[str, list[Mapping[str, Any]]] = {}
        for name, answer in answers:
            said.setdefault(name, []).append(answer)
        digests = self._records.calls_of(batch.batch_id)
        absent = failure("server", "the batch has no answer to it", may_be_billed=True)
        rest = said.pop(BatchApi.REST, [absent])
        found = {digest: self._dearest(batch.model, said.pop(f"{batch.key}-{digest}", rest)) for digest in digests}
        # A call whose request has meanwhile ended is no longer in the records, but was sent all the same.
        if unknown := [name for name in said if len(digests) == batch.calls or not name.startswith(f"{batch.key}-")]:
            _LOGGER.warning("%s: a batch answered %d calls that were never sent: they are ignored", batch.model, len(unknown))
        # A server may echo a key, and the answers are written to disk: in ASCII, since they may contain unpaired surrogates.
        texts = {digest: redacted(json.dumps(answer)) for digest, answer in found.items()}
        with self._changed:
            self._records.close(batch.batch_id, texts)
            calls = [self._waiting.pop(digest) for digest in digests if digest in self._waiting]
        self._open.remove(polled)
        for call in calls:
            _settle(call, json.loads(texts[call.digest]))

    def _dearest(self, name: str, said: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the result that counts for a call if a provider reports several results: the most expensive answer.

        ``said`` has the results, and ``name`` is the model's name. If no result is an answer, return a failure, preferably one
        that may be billed. If the cost of one of several answers is unknown, the key ``uncounted`` makes the call count at its
        maximum cost.
        """
        if len(said) == 1:
            return said[0]
        bodies = [answer["body"] for answer in said if "body" in answer]
        if not bodies:
            return max(said, key=lambda answer: bool(answer["may_be_billed"]))
        model, api = self._models[name]
        read = [_read(api, model, body) for body in bodies]
        # The first readable answer, if several cost the same.
        best = max(range(len(bodies)), key=lambda place: (read[place] is not None, read[place] or 0.0, -place))
        if None in read or math.inf in read:  # that answer's cost is unknown: it counts at its upper bound
            return {"body": bodies[best], "uncounted": True}
        return {"body": bodies[best]}


class BatchedSender:
    """Sends one call of a run in a batch; implements :class:`~vinelm.backends.remote.provider.Sends`. A digest identifies the
    call.
    """

    def __init__(self, inner: InnerChat, gate: BatchGate, unit: BatchedUnit, api: BatchApi, digest: str = "") -> None:
        self._inner, self._gate, self._unit, self._api, self._digest = inner, gate, unit, api, digest

    def ready(self, entry: Model) -> InnerChat:
        """Return the entry's chat model, which builds the request's body and parses the answer."""
        return self._inner

    def around(self, inner: InnerChat) -> BatchedSender:
        """Return a sender for a copy of the chat model with other settings; see :meth:`Sends.around
        <vinelm.backends.remote.provider.Sends.around>`.
        """
        return BatchedSender(inner, self._gate, self._unit, self._api, self._digest)

    def body(self, request: ModelRequest) -> Mapping[str, Any]:
        """Return the body of the request; batches never stream."""
        return self._api.body(self._inner.sync(), request)

    def send(self, entry: Model, request: ModelRequest) -> Generator[Piece]:
        """Wait for the batch that contains the call, and yield the call's answer."""
        with self._gate.idle(self._unit):
            answer = self._unit.answer(self._asked(entry, request))
        yield self._parsed(entry, answer)

    async def asend(self, entry: Model, request: ModelRequest) -> AsyncGenerator[Piece]:
        """Wait for the batch that contains the call, and yield the call's answer, without blocking the event loop."""
        with self._gate.idle(self._unit):
            answer = await self._unit.aanswer(self._asked(entry, request))
        yield self._parsed(entry, answer)

    def _asked(self, model: Model, request: ModelRequest) -> Future[Mapping[str, Any]]:
        return self._gate.ask(model, self.body(request), self._unit, bound_of(model, request).usd(model.price), self._digest)

    def _parsed(self, model: Model, answer: Mapping[str, Any]) -> Piece:
        if "failure" in answer:
            raise failure_of(answer)
        result = self._api.parsed(model, answer["body"])
        if answer.get("uncounted"):
            for generation in result.generations:
                message: Any = generation.message
                message.usage_metadata = None
        return result


def failure(kind: str, detail: str, *, may_be_billed: bool = False) -> dict[str, Any]:
    """Return the record of a call that failed in its batch. By default such a call is not billed."""
    return {"failure": kind, "detail": detail, "may_be_billed": may_be_billed}


def unread(name: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a failure for the call ``name`` whose line in a batch's results cannot be read. Yield nothing if ``name`` is None.

    The failure is marked as possibly billed.
    """
    if isinstance(name, str):
        yield name, failure("malformed", "its line in the batch's results cannot be read", may_be_billed=True)


def with_missing(found: Sequence[tuple[str, Mapping[str, Any]]], succeeded: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the results ``found`` of a batch, as pairs of a call's name and its result.

    ``succeeded`` is the number of answers that the provider reports. If ``found`` has fewer answers, all failed calls are
    marked as possibly billed; otherwise the results are unchanged.
    """
    answered = {name for name, answer in found if "body" in answer}
    if not isinstance(succeeded, int) or succeeded <= len(answered):
        return list(found)
    return [(name, answer if "body" in answer else {**answer, "may_be_billed": True}) for name, answer in found]


def _read(api: BatchApi, model: Model, body: Mapping[str, Any]) -> float | None:
    """Return the cost of an answer in dollars at batch prices, computed from the answer's ``body``.

    The cost is infinite if the answer states no token counts. Return None if the body is not an answer.
    """
    try:
        message: Any = api.parsed(model, body).generations[0].message
        counts = counts_of(message.usage_metadata)
    except Exception as error:  # the server's answer may be anything
        _LOGGER.debug("batches: an answer cannot be read: %s", type(error).__name__)
        return None
    if counts is None:
        return math.inf
    price = model.price.in_batches(halves_cache=api.halves_cache)
    return counts.usd(price, asks_for_an_hour=False)


def _settle(call: _Call, outcome: Mapping[str, Any] | BaseException) -> None:
    with suppress(InvalidStateError):  # the caller was cancelled
        if isinstance(outcome, BaseException):
            call.answer.set_exception(outcome)
        else:
            call.answer.set_result(outcome)


def _parts(calls: Sequence[_Call], api: BatchApi) -> Iterator[list[_Call]]:
    part: list[_Call] = []
    size = 0
    for call in calls:
        own = len(json.dumps(call.body, default=repr)) * 3 // 2
        if part and (len(part) >= api.most_calls or size + own > api.most_bytes):
            yield part
            part, size = [], 0
        part.append(call)
        size += own
    yield part


def _unsigned(value: Any) -> Any:
    """Return a copy of a request's body without the reasoning of earlier answers and the provider's signatures."""
    if isinstance(value, Mapping):
        return {key: _unsigned(inner) for key, inner in value.items() if key not in _SIGNED}
    if isinstance(value, list | tuple):
        return [_unsigned(one) for one in value if not (isinstance(one, Mapping) and "thinking" in str(one.get("type", "")))]
    return value

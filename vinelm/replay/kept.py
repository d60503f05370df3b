"""The store of a replay: the sampled calls in a fixed random order, each model's answers, questions and labels.

A store is one SQLite file that only its owner can read: it holds prompts and answers.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

from vinelm.backends.base import estimate_tokens
from vinelm.catalog import Catalog
from vinelm.errors import StoreError
from vinelm.replay.bill import Bill, dollars_of, summed
from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.reading import TraceReading
from vinelm.replay.same import Message, message_of
from vinelm.replay.steps import CallStep, step_of
from vinelm.running.serving_record import opened_record
from vinelm.template import Stage, Template
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.traces.databases.address import StoreAddress, address_of
from vinelm.traces.served.answers import READ_AT_ONCE, Answer, Answers
from vinelm.traces.served.replayed import ReplayRows

PROMPTS_AT_ONCE = 32
"""How many prompts are read together."""
LIST_USD = "list_usd"
"""Key of an answer that was bought in a batch: its dollars at the ordinary price."""
MOST_REQUESTS = 2000
"""How many requests are kept of each step. If one answer in ten differs, they are enough for 200 labels."""
MOST_DAYS = 10_000
MOST_WEIGHT = 5.0
"""A request counts at most this many times the mean, so that a few heavy ones do not leave too few for a proof."""
_WHOLE = 2.0**128


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayUnit:
    """One sampled call: it represents all calls of one step in one request. The sampled calls of a step have a fixed
    random order.

    Attributes:
        step, title: The step's key and name, see :class:`~vinelm.replay.steps.CallStep`.
        weight: Number of calls that the step made in the request, from which this call was drawn.
        cost_usd: Cost of the recorded call, in dollars.
        answer: The recorded answer, as :func:`~vinelm.replay.same.message_of` returns it.
        cluster: Name of the call's group. Calls have the same name if their prompts are equal or belong to one
            conversation.
        recorded_at: When a service recorded the call, in seconds since 1970; None in a replay.
    """

    unit_id: int
    step: str
    title: str
    request: str
    call: str
    model: str
    weight: int
    cost_usd: float
    latency_s: float | None
    tokens_in: int
    tokens_out: int
    answer: Message
    cluster: str
    recorded_at: float | None = None


class _Sampled(NamedTuple):
    """The recorded call that was drawn to represent all calls of one step in one request.

    Attributes:
        number: The call's random number. Of all calls of the step in the request, the one with the smallest number is drawn.
        calls: The number of recorded calls that the step made in the request.
        row: The drawn call's row in the store, as a dictionary by column.
        stands_for: The number of real calls that one recorded call represents.
        day: The UTC day of the call, in days since 1970; None if unknown.
    """

    number: int
    calls: int
    row: dict[str, Any]
    stands_for: float
    day: int | None


class Weighing(NamedTuple):
    """How the requests of a step were weighted.

    Attributes:
        sampled: Number of sampled requests.
        used: Number of sampled requests that are used.
        cut: Number of requests whose weight was above the maximum and was reduced to it.
    """

    sampled: int
    used: int
    cut: int


class Sample:
    """Sampled calls of a trace: whole requests, drawn by the seed, in bounded memory.

    A recorded request may represent several requests that were not recorded. Such a request is used with a higher probability;
    all used requests then have the same weight.

    Attributes:
        bill: The costs of all calls of the trace, by step.
        digest: A digest of all calls of the trace that does not depend on their order.
        days: The number of usable calls on each day, keyed by step, then by the UTC day in days since 1970. Calls without a
            time are left out.
        weighed: For steps whose requests had different weights: how many requests were sampled and used, keyed by step.

    Args:
        calls: The recorded calls; the stream is read once.
        seed: Decides which requests are kept, their order, and which of several calls represents a request and step.
        requests: The maximum number of requests kept of each step.
        even_days: Whether each day (UTC) of a step gets the same weight, however many calls it has.
    """

    def __init__(
        self, calls: Iterable[LoggedCall], *, seed: int, requests: int = MOST_REQUESTS, even_days: bool = False
    ) -> None:
        self._seed, self._requests, self._total = str(seed), requests, 0
        self._kept: dict[str, dict[str, _Sampled]] = {}
        self.days: dict[str, Counter[int]] = {}
        self._worst: dict[str, list[tuple[float, str]]] = {}
        self._nearest: dict[str, float] = {}
        self.bill: Bill = summed(self._through(calls), TraceReading())
        self.digest = f"{self._total % (1 << 128):032x}"
        self.weighed: dict[str, Weighing] = {}
        self._used = {step: self._weigh(step, even_days=even_days) for step in self._kept}

    def _through(self, calls: Iterable[LoggedCall]) -> Iterator[LoggedCall]:
        for call in calls:
            said = [call.request, call.call, call.step, call.model, call.cost_usd, call.answer]
            said += [] if call.stands_for == 1 else [call.stands_for]
            self._total += number_of(_json(said))
            usd = dollars_of(call)
            if call.answer and call.error is None and call.messages and usd is not None and call.stands_for:
                self._take(call, usd)
                days = self.days.setdefault(step_of(call).key, Counter())
                if (day := _day_of(call)) is not None and len(days) < MOST_DAYS:
                    days[day] += 1
            yield call

    def _take(self, call: LoggedCall, usd: float) -> None:
        step = step_of(call)
        kept, worst = self._kept.setdefault(step.key, {}), self._worst.setdefault(step.key, [])
        # Independent of the step: a kept request is kept with all of its steps, as far as the limits allow.
        place, drawn = self._place(call.request) / call.stands_for, number_of(f"{self._seed}\0{call.request}\0{call.call}")
        known, left_out = kept.get(call.request), None
        if known is not None:  # of several calls, the one with the smallest number is drawn
            kept[call.request] = known._replace(calls=known.calls + 1)
            if drawn <= known.number:
                kept[call.request] = _Sampled(drawn, known.calls + 1, row_of(call, step, usd), call.stands_for, _day_of(call))
        elif len(worst) < self._requests or place < -worst[0][0]:
            kept[call.request] = _Sampled(drawn, 1, row_of(call, step, usd), call.stands_for, _day_of(call))
            heappush(worst, (-place, call.request))
            if len(worst) > self._requests:
                left_out, gone = heappop(worst)
                del kept[gone]
        else:
            left_out = -place
        if left_out is not None:
            self._nearest[step.key] = min(-left_out, self._nearest.get(step.key, math.inf))

    def _place(self, request: str, more: str = "") -> float:
        """Return a pseudo-random number from 0 to 1 that is fixed by the seed, the request and ``more``.

        ``more`` is a text that makes draws for different purposes independent.
        """
        return number_of(f"{self._seed}\0{request}{more}") / _WHOLE

    def _weigh(self, step: str, *, even_days: bool) -> list[tuple[float, _Sampled]]:
        """Choose some of the step's requests for the replay; return pairs (number by which they are sorted, request).

        A request's weight is the number of real calls that it represents, divided by the probability with which it was sampled.
        A random draw chooses requests in proportion to their weights; the chosen requests then count equally. With
        ``even_days``, each day has the same total weight.
        """
        kept, nearest = self._kept[step], self._nearest.get(step, math.inf)
        chances = [min(1.0, one.stands_for * nearest) for one in kept.values()]
        weights = [one.stands_for / chance for one, chance in zip(kept.values(), chances, strict=True)]
        if even_days:
            days: dict[int | None, float] = {}
            for one, weight in zip(kept.values(), weights, strict=True):
                days[one.day] = days.get(one.day, 0.0) + weight
            weights = [weight / days[one.day] for one, weight in zip(kept.values(), weights, strict=True)]
        most = min(MOST_WEIGHT * math.fsum(weights) / len(weights), max(weights))
        used = [
            (self._place(request) / chance, one)
            for (request, one), chance, weight in zip(kept.items(), chances, weights, strict=True)
            if self._place(request, "\0weight") < weight / most
        ]
        if len({one.stands_for for one in kept.values()}) > 1 or len(used) < len(kept):
            self.weighed[step] = Weighing(len(kept), len(used), sum(weight > most for weight in weights))
        return used

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the sampled calls as rows of the store, all calls of one step before those of the next.

        Within a step, the order is random, but the calls of a group (``cluster``) stay together.
        """
        number = 0
        for used in self._used.values():
            link([one.row for _, one in used])
            sizes = Counter(one.row["cluster"] for _, one in used)

            def order(found: tuple[float, _Sampled], sizes: Mapping[str, int] = sizes) -> tuple[float, float]:
                # The place of a cluster is drawn for itself: that of its first request would put large ones first.
                place, cluster = found[0], found[1].row["cluster"]
                return (place if sizes[cluster] == 1 else self._place(cluster)), place

            for _, one in sorted(used, key=order):
                number += 1
                yield {**one.row, "unit_id": number, "weight": one.calls}


def _day_of(call: LoggedCall) -> int | None:
    return None if call.started_at is None else int(call.started_at // 86_400.0)


class Links:
    """Recognizes prompts that continue an earlier prompt, as the turns of a chat do. Shorter prompts must be given first.

    If several requests have the same earlier prompt, no prompt counts as its continuation, since unrelated requests may begin
    with the same words.
    """

    def __init__(self) -> None:
        self._seen, self._clusters = Counter[str](), dict[str, str]()

    def count(self, cluster: str) -> None:
        """Count a request in the group ``cluster``: the conversation that the trace names, otherwise the digest of the
        request's prompt.
        """
        self._seen[cluster] += 1

    def cluster_of(self, cluster: str, text: str) -> str:
        """Return the name of a request's group: the group of the earlier prompt that the request's prompt continues.

        Without such a prompt, or if ``cluster`` names a conversation of the trace, return ``cluster``. :meth:`count` must
        have counted the request before. ``text`` is the request's prompt as JSON.
        """
        if cluster != _digest(text):  # it names its conversation
            return cluster
        prompt = json.loads(text) if '"assistant"' in text else {"messages": []}
        turns = [at for at, one in enumerate(prompt["messages"]) if one.get("role") == "assistant"]
        begins = (_digest(_json({**prompt, "messages": prompt["messages"][:at]})) for at in reversed(turns))
        before = next((one for one in begins if one in self._clusters and self._seen[one] == 1), None)
        self._clusters[cluster] = cluster if before is None else self._clusters[before]
        return self._clusters[cluster]

    def next(self, cluster: str, prompt: Mapping[str, Any]) -> str:
        """Count one more request, and return the name of its group; see :meth:`cluster_of`."""
        self.count(cluster)
        return self.cluster_of(cluster, _json(prompt))


def link(rows: Iterable[dict[str, Any]]) -> None:
    """Group the rows (sampled calls of a step) by conversation: set ``cluster``, the name of the group, in each row.

    A row whose prompt continues an earlier row's prompt joins the group of that row. Other rows keep their ``cluster``, and so
    do rows for which the trace names the conversation.
    """
    texts, links = [(zlib.decompress(row["prompt"]).decode(), row) for row in rows], Links()
    for _, row in texts:
        links.count(row["cluster"])
    for text, row in sorted(texts, key=lambda one: len(one[0])):
        row["cluster"] = links.cluster_of(row["cluster"], text)


def row_of(call: LoggedCall, step: CallStep, usd: float) -> dict[str, Any]:
    """Return a call that costs ``usd`` dollars as a row of the store. The row lacks ``unit_id`` and ``weight``, which are
    set later.
    """
    prompt = {
        "messages": list(call.messages), "tools": list(call.tools), "response_format": call.response_format,
        "settings": dict(call.settings),
    }  # fmt: skip
    text = _json(prompt)
    answer = _json(message_of(call.answer or {}))
    return {
        "step": step.key, "title": step.title, "request": call.request, "call": call.call, "model": call.model, "cost_usd": usd,
        "latency_s": call.seconds, "answer": answer, "prompt": zlib.compress(text.encode()),
        "tokens_in": estimate_tokens(len(text)) if call.tokens_in is None else call.tokens_in,
        "tokens_out": estimate_tokens(len(answer)) if call.tokens_out is None else call.tokens_out,
        "cluster": _digest(f"conversation\0{call.conversation}" if call.conversation else text),
    }  # fmt: skip


def _digest(text: str) -> str:
    return f"{number_of(text):032x}"


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def number_of(text: str) -> int:
    """Return a 128-bit hash of a text as a number."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest())


class Kept:
    """The open store of a replay. Reads come from memory if possible; every write is durable.

    Attributes:
        store: The underlying store, in which the ledger keeps costs.
        rows: The tables of sampled calls, questions and labels.
        units: The sampled calls, keyed by number, in order.
        answers: The answers or failures, with cost and latency, keyed by (number of the sampled call, model or name of a
            judge's verdict).
    """

    def __init__(self, store: ObservationStore) -> None:
        self.store, self.rows, self._answers = store, ReplayRows(store), Answers(store)
        self.units: dict[int, ReplayUnit] = {}
        self.answers: dict[tuple[int, str], Answer] = {}
        self._prompts: dict[int, bytes] = {}
        if not self.rows.is_new:
            self.load()

    def load(self) -> None:
        """Read the stored sampled calls and answers."""
        self.load_units()
        for row in self.rows.compared():  # from a profile: an answer is named by its digest
            key = key_of(row["unit_id"], row["model"])
            self.note(Answer(key=key, prefix=(), cost_usd=0.0, latency_s=0.0, answer=row["answer"]))
        keys = [answer.key for answer in self._answers.brief()]
        for start in range(0, len(keys), READ_AT_ONCE):
            for answer in self._answers.of(keys[start : start + READ_AT_ONCE]).values():
                self.note(answer)

    def load_units(self) -> None:
        """Read the sampled calls added since the last read."""
        for row in self.rows.units(max(self.units, default=0)):
            self.units[row["unit_id"]] = ReplayUnit(**{**row, "answer": json.loads(row["answer"])})

    def note(self, answer: Answer) -> None:
        """Add an answer that is already stored to :attr:`answers`, which holds the answers in memory."""
        unit_id, _, model = answer.key.partition(" ")
        self.answers[int(unit_id), model] = answer

    def add(self, entry: int, answer: Answer) -> None:
        """Store an answer durably, in one transaction with its cost. ``entry`` is the number of the call's entry in the
        ledger of costs.
        """
        self._answers.add(entry, answer)

    def prompt(self, unit: ReplayUnit) -> dict[str, Any]:
        """Return the recorded prompt of a sampled call, with the keys ``messages``, ``tools``, ``response_format``,
        ``settings``.
        """
        packed = self._prompts.get(unit.unit_id)
        if packed is None:  # units are used in order: the next ones come along
            read = self._prompts = self.rows.prompts(unit.unit_id, PROMPTS_AT_ONCE)
            packed = read[unit.unit_id]
        found: dict[str, Any] = json.loads(zlib.decompress(packed))
        return found

    def message(self, unit: ReplayUnit, model: str) -> Message | None:
        """Return a model's answer; None if the model was not asked, or failed."""
        found = self.answers.get((unit.unit_id, model))
        return None if found is None or found.answer is None else _message(found.answer)[0]

    def served(self, unit: ReplayUnit, model: str) -> tuple[float, float | None]:
        """Return (dollars, seconds) of a model's stored call, as the call would cost in a service; (0, 0) if there is none.

        If the call was made in a batch, the dollars are those at the ordinary price, and the seconds are None.
        """
        found = self.answers.get((unit.unit_id, model))
        if found is None:
            return 0.0, 0.0
        usd = None if found.answer is None else _message(found.answer)[1]
        return (found.list_usd, found.latency_s) if usd is None else (usd, None)

    def of_step(self, step: str) -> list[ReplayUnit]:
        """Return the sampled calls of a step, in their random order."""
        return [unit for unit in self.units.values() if unit.step == step]


@lru_cache(maxsize=20_000)
def _message(text: str) -> tuple[Message, float | None]:
    found: dict[str, Any] = json.loads(text)
    return found, found.pop(LIST_USD, None)


def key_of(unit_id: int, model: str) -> str:
    """Return the key under which an answer is stored: the sampled call's number, a blank, and ``model``.

    ``model`` is the name of a model, or of a judge's verdict.
    """
    return f"{unit_id} {model}"


@contextmanager
def kept(
    path: str | Path, sample: Sample, catalog: Catalog, options: Mapping[str, str], *, is_simulated: bool = False
) -> Iterator[Kept]:
    """Open the store of a replay; if the file is missing, create it with the sampled calls. An existing store continues its
    replay.

    Args:
        path: The file, readable by its owner only.
        sample: The sampled calls of the trace.
        catalog: The models that are asked, with their prices.
        options: Other settings that affect the result, by name.
        is_simulated: Whether the models are simulated.

    Raises:
        ConfigError: The store belongs to another trace, or to other models or options.
        StoreError: The file is not such a store, or another process holds it.
    """
    address = address_of(path)
    if isinstance(address, Path) and not address.exists() and address.parent.is_dir():
        os.close(os.open(address, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))  # SQLite's log gets the same mode
    identity = StoreIdentity(
        workflow="replay",
        template=Template((Stage("call", tuple(catalog)),)).to_dict(),  # each request consists of one call
        catalog=catalog.to_dict(),
        dataset_digest=sample.digest,
        fingerprint={name: value for name, value in options.items() if value},
        is_simulated=is_simulated,
    )
    with opened_record(address, identity) as store, store.exclusive():
        held = Kept(store)
        if held.rows.is_new:
            held.rows.create(list(sample.rows()), {"attempt": 1, "chosen": {}})
            held.load()
        yield held


@contextmanager
def opened(path: str | Path | StoreAddress) -> Iterator[Kept]:
    """Open a store to read its questions and to add questions and labels, possibly by several people.

    Raises:
        StoreError: There is no store, or the file is not such a store.
    """
    address = address_of(path)
    if isinstance(address, Path) and not address.exists():
        raise StoreError(f"{path}: no such store: `vinelm replay` or `vinelm try` makes one")
    with ObservationStore.open(path) as store:
        held = Kept(store)
        if held.rows.is_new:
            raise StoreError(
                f"{path}: has no questions: give the store that `vinelm replay` made, or a profile of requests without labels",
                code="other-file",
            )
        yield held

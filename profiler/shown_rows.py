"""Bring what a store's rows showed up to date with the workflow's ``signal``, ``answer`` and ``agree``, without a call.

They decide no row: when one of them changes, signals and answers are made anew from the states that are kept, and classes from
the answers. See docs/profiling.md#signals-and-answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from vinelm.profiler.execution.fingerprint import code_digest
from vinelm.profiler.execution.job import Job, Worker, run_job
from vinelm.profiler.execution.outcome import with_error
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Cell, Observation
from vinelm.signals import Signals
from vinelm.signals.classes import answer_classes
from vinelm.signals.declaration import Labels
from vinelm.template import Template
from vinelm.traces import ObservationStore
from vinelm.traces.store.shown import Shown, ShownRows, SignalRecord

Note = Callable[[str], None]


def record_for(signals: Signals) -> SignalRecord:
    """Return what tells one declaration from another."""
    signal = signals.signal if signals.signal is None or isinstance(signals.signal, str) else code_digest(signals.signal)
    agree = None if signals.agree is None else code_digest(signals.agree)
    return SignalRecord(signal=signal, edges=signals.edges, agree=agree, answer=signals.answer)


def renew_shown(
    store: ObservationStore,
    signals: Signals | None,
    template: Template,
    *,
    requests: Mapping[str, Request],
    worker: Worker,
    workers: int,
    has_restored: bool,
    on_note: Note | None = None,
) -> None:
    """Make signals, answers and classes of a store's rows anew as far as they are not what the workflow declares.

    Writes to the store, and makes no call of a model.

    Args:
        store: held by the caller.
        signals: what the workflow declares; None forgets what rows showed.
        template: a bound template.
        requests: all requests, by id.
        worker: evaluates states.
        workers: how many states are evaluated at a time.
        has_restored: whether rows that did not hold before are used again.
        on_note: called with one line if rows were made anew.

    Raises:
        WorkflowError: ``signal`` has too many values, ``agree`` is not symmetric, or one of them raised.
    """
    shown = ShownRows(store)
    before = shown.record
    if signals is None:
        if before is not None:
            shown.forget()
        return
    now, rows = record_for(signals), store.observations()
    if before is not None and before.shows_as(now) and not (has_restored and before.is_behind):
        now = replace(before, agree=now.agree, rows=before.rows if before.agree == now.agree else -1)
    elif rows:
        renewal = _Renewal(
            store=store, signals=signals, template=template, requests=requests, worker=worker, before=before, now=now
        )
        now = _made_anew(renewal, rows, workers, on_note)
    if now.rows != len(rows) or now != before or has_restored:
        classify(store, signals, now, on_note)


def classify(store: ObservationStore, signals: Signals, record: SignalRecord, on_note: Note | None = None) -> None:
    """Compute the answer classes of all rows and note what they were made with.

    Raises:
        WorkflowError: ``agree`` raised, or is not symmetric.
    """
    rows = store.observations()
    found = answer_classes(rows, signals)
    record = replace(record, rows=len(rows), compared=found.compared, intransitive=found.intransitive, unknown=found.unknown)
    ShownRows(store).set_classes(found.of, record)
    if found.unknown and on_note is not None:
        on_note(
            f"the answer classes of {found.unknown:,} requests cannot be computed: of some of their answers the store keeps "
            "only a digest"
        )


def classify_new(store: ObservationStore, signals: Signals | None, on_note: Note | None = None) -> None:
    """Compute the answer classes of a store to which a run has added rows.

    Raises:
        WorkflowError: ``agree`` raised, or is not symmetric.
    """
    if signals is not None:
        classify(store, signals, ShownRows(store).record or record_for(signals), on_note)


@dataclass(kw_only=True)
class _Renewal:
    """Evaluates the states of rows.

    Attributes:
        store, signals, template, requests, worker: see :func:`renew_shown`.
        before, now: what the rows were made with, and what they are to be.
        stopped: whether the workflow's own check passed the answer, by cell.
    """

    store: ObservationStore
    signals: Signals
    template: Template
    requests: Mapping[str, Request]
    worker: Worker
    before: SignalRecord | None
    now: SignalRecord
    stopped: dict[Cell, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._states = ShownRows(self.store).states()
        self._needs_state = bool(self.signals.answer) or callable(self.signals.signal)

    def of(self, row: Observation) -> Shown | None:
        """What the row shows; None if its state would tell and is not kept."""
        if row.failure is not None:
            return Shown(with_error(replace(row, signal=None), self.signals).signal)
        if not self._needs_state:
            return Shown(self._verdict(row))
        request = self.requests.get(row.request_id)
        if request is None or (row.request_id, row.prefix) not in self._states:
            return None
        state = self.store.checkpoint(row.request_id, row.prefix)
        passed = tuple(self.stopped.get((row.request_id, row.prefix[:k]), False) for k in range(1, row.depth))
        job = Job(request, row.prefix, state, 0.0, is_scoring=True, passed=passed if row.is_continued else ())
        finished = run_job(self.worker, job, lambda _upper_usd: False)
        if finished.problem is not None:
            raise finished.problem
        if finished.outcome is None or finished.outcome.observation is None:
            return None  # a node after the loop asks for a call
        found = finished.outcome.observation
        label = found.signal if callable(self.signals.signal) else self._verdict(row)
        return Shown(label, found.answer, found.answer_digest)

    def kept(self, row: Observation) -> Shown:
        """What is left of a row whose state is not kept: what is declared as before."""
        before, now = self.before, self.now
        label, has_answer = None if callable(self.signals.signal) else self._verdict(row), True
        if before is None or (before.signal, before.edges) == (now.signal, now.edges):
            label = row.signal if label is None else label
        if before is not None:
            has_answer = before.answer == now.answer
        return Shown(label, row.answer, row.answer_digest) if has_answer and now.answer else Shown(label)

    def _verdict(self, row: Observation) -> str | None:
        passed = row.stopped if self.template.stage(row.stage).answerable else None
        return self.signals.label({}, passed=passed)


def _made_anew(renewal: _Renewal, rows: Sequence[Observation], workers: int, on_note: Note | None) -> SignalRecord:
    renewal.stopped = {(row.request_id, row.prefix): row.stopped is True for row in rows}
    found: dict[Cell, Shown] = {}
    labels, lost = Labels(), 0
    for row, shown in _evaluated(renewal, rows, workers):
        lost += shown is None
        one = found[row.request_id, row.prefix] = renewal.kept(row) if shown is None else shown
        labels.add(one.signal, row.request_id)
    writer = ShownRows(renewal.store)
    record = replace(renewal.now, rows=-1, without_state=lost, is_behind=writer.has_retired())
    writer.set_shown(found, record)
    if on_note is not None:
        text = f"what {len(rows) - lost:,} rows showed was made anew, as signal and answer are declared now, without a call"
        on_note(text + (f"; {lost:,} rows keep less, since the state after them is not kept" if lost else ""))
    return record


def _evaluated(renewal: _Renewal, rows: Sequence[Observation], workers: int) -> Iterator[tuple[Observation, Shown | None]]:
    with ThreadPoolExecutor(workers) as pool:
        yield from zip(rows, pool.map(renewal.of, rows), strict=True)


__all__ = ["classify", "classify_new", "record_for", "renew_shown"]

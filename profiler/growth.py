"""Brings a store up to date with a changed workflow, dataset or catalog before a run, and reports the effects.

A change of ``signal``, ``answer`` or ``agree`` invalidates no result: signals, answers and answer classes (sets of equal
answers) are recomputed from the stored states, without a call. See docs/profiling.md#growing-a-store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from vinelm.foreign_code import answered
from vinelm.judging import AsToday, LLMJudge
from vinelm.profiler.execution.fingerprint import SETTING, code_digest
from vinelm.profiler.execution.outcome import with_error
from vinelm.profiler.scheduling.kept_rows import KeptRows
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Cell, Observation
from vinelm.signals import Signals
from vinelm.signals.classes import answer_classes
from vinelm.signals.declaration import Labels
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.traces.growth.grow import Growth, grow
from vinelm.traces.growth.plan import RequestDigest
from vinelm.traces.growth.rescoring import Rescored, RowsToScore, RowToScore
from vinelm.traces.store.kinds import request_kinds, set_request_kinds
from vinelm.traces.store.run_state import RunRecords
from vinelm.traces.store.shown import Shown, ShownRows, SignalRecord

Note = Callable[[str], None]


def request_digests(workflow: Workflow, requests: Iterable[Request] = ()) -> dict[str, RequestDigest]:
    """Return the digests of the workflow's requests and of further requests, by id.

    Args:
        workflow: its ``inputs`` function is called with each request; if it raises, the digest of that request's inputs is
            None.
        requests: further requests.
    """
    every = {request.id: request for request in (*workflow.requests, *requests)}
    return {
        key: RequestDigest(scoring_part(workflow, request).digest(), _input_digest(workflow, request))
        for key, request in every.items()
    }


def scoring_part(workflow: Workflow, request: Request) -> Request:
    """Return the part of a request on which its results depend. If a judge scores the results, labels are excluded."""
    judge = workflow.score
    if not isinstance(judge, LLMJudge):
        return request
    hidden = {judge.label, *workflow.labels}
    return Request(request.id, {key: value for key, value in request.data.items() if key not in hidden})


def _input_digest(workflow: Workflow, request: Request) -> str | None:
    # An error of the application's code, or an input that is not plain data.
    text = answered(lambda: json.dumps([request.id, workflow.graph_input(request)], sort_keys=True), None)
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def with_settings_of(identity: StoreIdentity, store: ObservationStore) -> StoreIdentity:
    """Return ``identity`` extended by the settings (such as a seed) that only the store's identity has."""
    settings = {part: value for part, value in store.identity.fingerprint.items() if part.startswith(SETTING)}
    return replace(identity, fingerprint={**settings, **identity.fingerprint})


def kinds_of(workflow: Workflow, requests: Iterable[Request]) -> dict[str, str]:
    """Return the type of each of the workflow's requests and of each of ``requests``, keyed by request id.

    The result is empty if the workflow declares no types.

    Raises:
        WorkflowError: ``kind`` raised or did not return a label. The message names the request.
    """
    found = {request.id: workflow.kind_of(request) for request in (*workflow.requests, *requests)}
    return {name: kind for name, kind in found.items() if kind is not None}


def bring_up_to_date(
    rows: KeptRows, identity: StoreIdentity, wanted: dict[str, RequestDigest], kinds: Mapping[str, str] | None = None
) -> None:
    """Adapt the store to the starting run: set its identity, score its results again and recompute their signals if needed.

    Writes to the store, and calls no model. Reports each change that had an effect in one line.

    Args:
        rows: the store's results.
        identity: the run's identity.
        wanted: the digests of all requests, by request id.
        kinds: the type of each request, by request id; empty if the workflow declares no types.

    Raises:
        StoreError: no result of the store would remain valid.
        WorkflowError: ``signal`` has too many values, ``agree`` is not symmetric, or one of them raised.
    """
    rows_before = len(rows.store)
    growth = _grown(rows, identity, wanted)
    if growth is not None and (growth.has_effect or growth.is_reshaped):
        rows.settings.note(growth.describe())
    is_restored = growth is not None and bool(growth.restored or growth.rescored)
    _renew_kinds(rows, kinds)
    _renew_shown(rows, has_restored=len(rows.store) > rows_before or is_restored)


# -- scores ------------------------------------------------------------------------------------------------------------


def _grown(rows: KeptRows, identity: StoreIdentity, wanted: dict[str, RequestDigest]) -> Growth | None:
    """Return what has changed in workflow, dataset and catalog, and how many results stay valid; None if nothing has changed.

    Scores results again if the scorer or a label has changed, but calls no judge. Results that only a judge can score stay
    valid, and are judged later, when money may be spent.
    """
    growth = grow(rows.store, identity, wanted)
    waiting = RowsToScore(rows.store, wanted)
    if not waiting.is_pending:
        return growth
    with rows.pool() as pool:
        while wave := waiting.wave():
            stopped = rows.stopped() if any(row.is_continued for row in wave) else {}
            scores = pool.map(lambda row: _score(rows, row, stopped), wave)  # noqa: B023 - used up in this turn
            waiting.record(list(zip(wave, scores, strict=True)))
    lost = dict(waiting.finish())
    if growth is None or not growth.rescored:
        return growth
    failed = sum(lost.values()) - sum(growth.retired.values())
    return replace(growth, kept=growth.kept - failed, rescored=growth.rescored - failed, retired=lost)


def _score(rows: KeptRows, row: RowToScore, stopped: Mapping[Cell, bool]) -> Rescored:
    """Return the success of a result, or the reason why it cannot be scored. Makes no paid model call.

    ``stopped`` states, for each (request id, models), whether the answer passed the workflow's own check. It is used only if an
    earlier answer had passed the check and the request continued.
    """
    job = rows.job((row.request_id, row.prefix), row.state, stopped if row.is_continued else None)
    found = rows.evaluated(job).observation
    if found is None:
        return Rescored(reason="scoring them again asks for calls after the loop")
    if rows.units.judging is not None and found.failure is None:
        return Rescored(False)  # until it is judged; an estimate reads only judgements
    if _has_reference(rows) and found.failure is None:  # a row without a label has no score, and is compared later
        return Rescored(found.success, answer=found.answer)
    return Rescored(found.success, reason="scoring them again failed" if found.success is None else "")


def _has_reference(rows: KeptRows) -> bool:
    """Return whether answers are stored with the results, to be compared with the current setup's answers."""
    return isinstance(rows.units.workflow.score, AsToday)


def _renew_kinds(rows: KeptRows, kinds: Mapping[str, str] | None) -> None:
    """Store the requests' declared types. Requests that are no longer in the dataset keep their stored types.

    Without declared types, all stored types are removed.
    """
    before = request_kinds(rows.store)
    now = {**before, **kinds} if kinds else {}
    if now == before:
        return
    set_request_kinds(rows.store, now)
    changed = sum(now.get(name) != kind for name, kind in before.items())
    if changed:
        rows.settings.note(f"the kinds of {changed:,} requests are others, as kind is declared now: made anew without a call")


# -- what rows showed --------------------------------------------------------------------------------------------------


def record_for(signals: Signals) -> SignalRecord:
    """Return a record with digests of the declared signal and answers, to compare with a later declaration."""
    signal = signals.signal if signals.signal is None or isinstance(signals.signal, str) else code_digest(signals.signal)
    agree = None if signals.agree is None else code_digest(signals.agree)
    return SignalRecord(signal=signal, edges=signals.edges, agree=agree, answer=signals.answer)


def _renew_shown(rows: KeptRows, *, has_restored: bool) -> None:
    """Recompute and store the signals, answers and answer classes of results if the workflow's declaration of them has changed.

    Also recompute them if ``has_restored``, that is, if retired (unused) results are used again. Such results may have values
    from an older declaration.
    """
    store, signals, shown = rows.store, rows.units.signals, ShownRows(rows.store)
    before = shown.record
    if not signals:
        if before is not None:
            shown.forget(with_answers=not _has_reference(rows))
        return
    now, every = record_for(signals), store.observations()
    if before is not None and before.shows_as(now) and not (has_restored and before.is_behind):
        now = replace(before, agree=now.agree, rows=before.rows if before.agree == now.agree else -1)
    elif every:
        now = _Renewal(rows, signals, before, now).made_anew(every)
    if now.rows != len(every) or now != shown.record or has_restored:
        _classify(store, signals, now, rows.settings.on_note)


def _classify(store: ObservationStore, signals: Signals, record: SignalRecord, on_note: Note | None = None) -> None:
    """Compute the answer classes (sets of equal answers to a request) of all results, and store them.

    ``record`` describes the workflow's declaration of answers, and is stored with the classes.

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


def classify_new(store: ObservationStore, signals: Signals, on_note: Note | None = None) -> None:
    """Compute and store the answer classes (sets of equal answers to a request) of a store to which a run has added results.

    Does nothing if the workflow declares no signals.

    Raises:
        WorkflowError: ``agree`` raised, or is not symmetric.
    """
    if signals:
        _classify(store, signals, ShownRows(store).record or record_for(signals), on_note)


class _Renewal:
    """Recomputes signals and answers of results after their declaration in the workflow has changed.

    Args:
        rows: the store's results.
        signals: the workflow's declared signals.
        before: the declaration with which the stored signals and answers were computed; None if there is none.
        now: the current declaration.
    """

    def __init__(self, rows: KeptRows, signals: Signals, before: SignalRecord | None, now: SignalRecord) -> None:
        self._rows, self._signals, self._before, self._now = rows, signals, before, now
        self._shown = ShownRows(rows.store)
        self._states, self._stopped = set(RunRecords(rows.store).checkpoint_cells()), rows.stopped()
        self._needs_state = bool(signals.answer) or callable(signals.signal)

    def made_anew(self, every: Sequence[Observation]) -> SignalRecord:
        """Compute the signals and answers of all results, ``every``, again, and store them.

        Return a record of what the workflow now declares about signals and answers.
        """
        found: dict[Cell, Shown] = {}
        labels, lost = Labels(), 0
        for row, shown in self._evaluated(every):
            lost += shown is None
            one = found[row.request_id, row.prefix] = self._kept(row) if shown is None else shown
            labels.add(one.signal, row.request_id)
        record = replace(self._now, rows=-1, without_state=lost, is_behind=self._shown.has_retired())
        self._shown.set_shown(found, record)
        text = f"what {len(every) - lost:,} rows showed was made anew, as signal and answer are declared now, without a call"
        self._rows.settings.note(text + (f"; {lost:,} rows keep less, since the state after them is not kept" if lost else ""))
        return record

    def _evaluated(self, every: Sequence[Observation]) -> Iterator[tuple[Observation, Shown | None]]:
        with self._rows.pool() as pool:
            yield from zip(every, pool.map(self._of, every), strict=True)

    def _of(self, row: Observation) -> Shown | None:
        """Return the result's signal and answer; None if they need a state that is not stored."""
        cell = row.request_id, row.prefix
        if row.failure is not None:
            return Shown(with_error(replace(row, signal=None), self._signals).signal)
        if not self._needs_state:
            return self._compared(row, Shown(self._verdict(row)))
        if row.request_id not in self._rows.requests or cell not in self._states:
            return None
        state = self._rows.store.checkpoint(*cell)
        found = self._rows.evaluated(self._rows.job(cell, state, self._stopped if row.is_continued else None)).observation
        if found is None:
            return None  # a node after the loop makes a call
        label = found.signal if callable(self._signals.signal) else self._verdict(row)
        return Shown(label, found.answer, found.answer_digest)

    def _kept(self, row: Observation) -> Shown:
        """Return the signal and the answer of a result whose state is not stored, as far as they are still known.

        Each is kept if its declaration is unchanged. A signal that needs no state is computed again.
        """
        before, now = self._before, self._now
        label, has_answer = None if callable(self._signals.signal) else self._verdict(row), True
        if before is None or (before.signal, before.edges) == (now.signal, now.edges):
            label = row.signal if label is None else label
        if before is not None:
            has_answer = before.answer == now.answer
        return Shown(label, row.answer, row.answer_digest) if has_answer and now.answer else self._compared(row, Shown(label))

    def _compared(self, row: Observation, shown: Shown) -> Shown:
        """Return ``shown`` with the answer that is stored in ``row``, if answers are compared with the current setup's.

        Otherwise return ``shown``, which is what the result shows at run time, unchanged.
        """
        return shown._replace(answer=row.answer, answer_digest=row.answer_digest) if _has_reference(self._rows) else shown

    def _verdict(self, row: Observation) -> str | None:
        stage = self._rows.units.template.stage(row.stage)
        if stage.verdict is not None:
            return row.signal
        return self._signals.label({}, passed=row.stopped if stage.answerable else None, model=row.model)

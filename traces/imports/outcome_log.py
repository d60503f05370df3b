"""Imports a table of recorded results into an observation store, so that existing logs can replace profiling.

Two kinds of table:

- *Runs* (with a ``run`` column): each row is one call of one execution of the application. Its prefix is the sequence of
  models that the run had called so far.
- *Answers* (without a ``run`` column): each row is a model's own answer to a request. All sequences of models up to a given
  depth are built from these answers: the n-th call of a model on a path returns that model's answer of round n (without a
  ``round`` column, always the same answer). This is exact if the answers are independent; the data do not show how one model's
  output affects the next model.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from vinelm.catalog import Catalog, Model, Price
from vinelm.errors import ConfigError, DatasetError
from vinelm.rows.observation import Cell, Observation
from vinelm.signals.classes import answer_classes
from vinelm.signals.declaration import Signals, digest_of_text
from vinelm.template import Loop, Stage, StopRule, Template
from vinelm.template.stop_rules import ENDED_BY
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.imports.export_import import file_digest
from vinelm.traces.imports.log_columns import LogColumns, RecordedAnswer, read_log
from vinelm.traces.store.atomic import new_store
from vinelm.traces.store.rows import cell_name, ledger_entry
from vinelm.traces.store.shown import ShownRows, SignalRecord
from vinelm.traces.store.store import ObservationStore

MAX_ROWS = 3_000_000
Cells = dict[Cell, RecordedAnswer]


@dataclass(frozen=True, kw_only=True)
class LogImport:
    """The settings of an import of recorded results.

    Args:
        columns: names of the table's columns.
        workflow: the name that the store gives the workflow.
        catalog: the models with prices; None gives each model its mean recorded cost per call as its price.
        models: import only these models; default: all models of the catalog, or all models in the table.
        stages: names of the calls' stages in order; the last name repeats.
        depth: the maximum number of calls on a path. With None, it is the largest ``round``, or with ``run`` the number of
            calls of the longest run.
        stop: the stop rule; None means ``workflow``.
    """

    columns: LogColumns
    workflow: str
    catalog: Catalog | None = None
    models: tuple[str, ...] = ()
    stages: tuple[str, ...] = ("answer",)
    depth: int | None = None
    stop: StopRule | None = None


@dataclass(frozen=True)
class ImportedLog:
    """Summary of an import.

    Attributes:
        rows: the number of rows in the new store.
        requests: the number of its requests.
        models: the names of its models.
        depth: the maximum number of calls on a path.
        paid_usd: the cost of the recorded calls in dollars. An answer that is on several paths makes several rows, so the rows
            together can cost more.
        stop: the stop rule.
        notes: sentences about information that the table lacks.
    """

    rows: int
    requests: int
    models: tuple[str, ...]
    depth: int
    paid_usd: float
    stop: StopRule
    notes: tuple[str, ...] = field(default=())


def import_log(table: Path, path: Path, settings: LogImport) -> ImportedLog:
    """Create the store at ``path`` from ``table``, all or nothing. Spends no money.

    Raises:
        ConfigError: a setting that this table requires is missing.
        DatasetError: a row cannot be used; names file and line.
        StoreError: ``path`` exists, or cannot be written.
    """
    columns = settings.columns
    _require_price(settings)
    _require_stop(settings)
    answers = list(read_log(table, columns, settings.models or (tuple(settings.catalog) if settings.catalog else None)))
    if not answers:
        raise DatasetError(f"{table}: no row is left: check the conditions and the names of the models", code="log-no-rows")
    models = _models(table, answers, settings)
    catalog = settings.catalog.subset(models) if settings.catalog else _recorded_catalog(table, answers, models, columns)
    answers = [_priced(answer, catalog) if answer.cost_usd is None else answer for answer in answers]
    stop = settings.stop or "workflow"
    cells = _runs(table, answers, settings) if columns.run else _cascade(table, answers, models, stop, settings)
    depth = settings.depth or max(len(prefix) for _, prefix in cells)
    stages = _stages_of_runs(table, cells) if columns.stage else _stage_names(settings.stages, depth)
    template = _template(stages[:depth], stop).bind(tuple(catalog))
    digest = file_digest(table)
    identity = StoreIdentity(
        workflow=settings.workflow,
        template=template.to_dict(),
        catalog=catalog.to_dict(),
        dataset_digest=digest,
        fingerprint={"recorded table": digest, "columns": _digest(asdict(columns))},
        is_simulated=False,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    requests = dict.fromkeys(answer.request_id for answer in answers)
    with new_store(path, identity) as store:
        store.register_digests({request: _digest(request) for request in requests})
        rows = [_observation(*key, answer, template) for key, answer in cells.items()]
        count = store.add_many(rows, unpaid=_used_again(cells))
        store.add_entries(_without_a_row(answers, cells))
        if columns.answer is not None:
            _classify(store, rows, columns.answer)
        store.record_source("import", table.name, digest, count)
    paid_usd = sum(answer.cost_usd or 0.0 for answer in answers)
    n_timed = sum(not math.isnan(answer.latency_s) for answer in answers)
    return ImportedLog(
        count, len(requests), models, depth, paid_usd, stop, _notes(columns, depth, len(answers) - n_timed, stop)
    )


def _require_price(settings: LogImport) -> None:
    columns = settings.columns
    if columns.cost_usd is not None:
        return
    if settings.catalog is None:
        raise ConfigError(
            "the cost of a call is unknown: name the cost column, or give a catalog with prices (and the token columns)",
            code="log-no-cost",
        )
    has_tokens = columns.tokens_in is not None and columns.tokens_out is not None
    per_token = [m.name for m in settings.catalog.models if m.price.input or m.price.output]
    if per_token and not has_tokens:
        raise ConfigError(
            f"model {per_token[0]!r} is priced by token: name both token columns, or the cost column", code="log-no-tokens"
        )


def _require_stop(settings: LogImport) -> None:
    columns = settings.columns
    known = {"success", *(["stopped"] if columns.stopped_if or columns.run is not None else [])}
    if ENDED_BY[settings.stop or "workflow"] not in known and (settings.depth or 2) > 1:
        raise ConfigError(
            "it is unknown when a request ends: give the condition of the application's own check, or the oracle stop rule",
            code="log-no-stop",
        )
    if columns.run is None and columns.stage is not None:
        raise ConfigError("a stage column needs a run column: without runs, name the stages", code="log-stage-without-run")


def _models(table: Path, answers: Sequence[RecordedAnswer], settings: LogImport) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(answer.model for answer in answers))
    for model in settings.models:
        if model not in found:
            raise DatasetError(f"{table}: no row of the model {model!r} in column {settings.columns.model!r}")
    return tuple(settings.models) or (tuple(m for m in settings.catalog if m in found) if settings.catalog else found)


def _recorded_catalog(table: Path, answers: Sequence[RecordedAnswer], models: Sequence[str], columns: LogColumns) -> Catalog:
    """Return a catalog of the models in the table, each priced per call at its mean recorded cost."""
    as_of = datetime.fromtimestamp(table.stat().st_mtime, UTC).date()
    entries = []
    for name in models:
        costs = [answer.cost_usd or 0.0 for answer in answers if answer.model == name]
        source = f"mean of {columns.cost_usd} in {table.name}, per call"
        price = Price(input=0.0, output=0.0, call=sum(costs) / len(costs), source=source, as_of=as_of)
        entries.append(Model(name=name, provider="recorded", model_id=name, engine=name, price=price))
    return Catalog(entries)


def _priced(answer: RecordedAnswer, catalog: Catalog) -> RecordedAnswer:
    price = catalog[answer.model].price
    is_by_token = bool(price.input or price.output)
    if is_by_token and answer.failure is None and (answer.tokens_in is None or answer.tokens_out is None):
        raise DatasetError(
            f"line {answer.line}: no token counts, and {answer.model!r} is priced by token: add them, or name the cost column",
            code="log-no-tokens",
        )
    return replace(answer, cost_usd=price.cost_usd(answer.tokens_in or 0, answer.tokens_out or 0))


# -- independent answers, expanded to a cascade ------------------------------------------------------------------------


def _cascade(
    table: Path, answers: Sequence[RecordedAnswer], models: Sequence[str], stop: StopRule, settings: LogImport
) -> Cells:
    """Return the recorded answer of each call that a request reaches, keyed by (request, prefix).

    The table records answers without the calls before them. So a model's recorded answer is used after every possible sequence
    of earlier models. Requests come in the table's order, and each prefix before its extensions.
    """
    by_request: dict[str, dict[tuple[str, int], RecordedAnswer]] = {}
    for answer in answers:
        known = by_request.setdefault(answer.request_id, {})
        first = known.setdefault((answer.model, answer.round or 1), answer)
        if first is not answer:
            which = "" if settings.columns.round is None else f" in round {answer.round}"
            raise DatasetError(
                f"{table}:{answer.line}: {answer.model!r} answers request {answer.request_id!r} twice{which} (first on line "
                f"{first.line}): identify requests by more columns, or keep one of them",
                code="log-duplicate-answer",
            )
    depth = _cascade_depth(answers, settings)
    cells: Cells = {}
    for request, known in by_request.items():
        for prefix, answer in _reached(known, models, stop, depth, has_rounds=settings.columns.round is not None):
            cells[request, prefix] = answer
        if len(cells) > MAX_ROWS:
            raise ConfigError(
                f"more than {MAX_ROWS:,} rows at depth {depth}: use a smaller depth or fewer models", code="log-too-many-rows"
            )
    return cells


def _cascade_depth(answers: Iterable[RecordedAnswer], settings: LogImport) -> int:
    if settings.columns.round is None:
        return settings.depth or 1
    rounds = max(answer.round or 1 for answer in answers)
    if settings.depth is not None and settings.depth > rounds:
        raise ConfigError(
            f"depth {settings.depth} needs {settings.depth} rounds of answers, but the table has {rounds}: use depth {rounds}",
            code="log-depth",
        )
    return settings.depth or rounds


def _reached(
    known: Mapping[tuple[str, int], RecordedAnswer], models: Sequence[str], stop: StopRule, depth: int, *, has_rounds: bool
) -> Iterator[tuple[tuple[str, ...], RecordedAnswer]]:
    """Yield (prefix, answer) for each call that a request reaches, each prefix before its extensions.

    A path ends where the stop rule or a failure ends the request, or before an unrecorded answer.

    Args:
        known: the request's recorded answers, by (model, round).
        models: the models that a path may call.
        stop: the stop rule.
        depth: the maximum number of calls on a path.
        has_rounds: whether answers differ by round; if not, a model always gives its answer of round 1.
    """
    waiting: list[tuple[str, ...]] = [(model,) for model in reversed(models)]
    while waiting:
        prefix = waiting.pop()
        answer = known.get((prefix[-1], prefix.count(prefix[-1]) if has_rounds else 1))
        if answer is None:
            continue
        yield prefix, answer
        has_ended = answer.failure is not None or bool(getattr(answer, ENDED_BY[stop]))
        if not has_ended and len(prefix) < depth:
            waiting.extend((*prefix, model) for model in reversed(models))


# -- runs ------------------------------------------------------------------------------------------------------


def _runs(table: Path, answers: Sequence[RecordedAnswer], settings: LogImport) -> Cells:
    """Return the answer of each call of each recorded run, keyed by (request, prefix).

    If ``stopped_if`` is not given, a run's last answer counts as having passed the workflow's own check, and its earlier
    answers as having failed it.
    """
    by_run: dict[tuple[str, str], list[RecordedAnswer]] = {}
    for answer in answers:
        by_run.setdefault((answer.request_id, answer.run or ""), []).append(answer)
    cells: Cells = {}
    for (request, run), found in by_run.items():
        steps = sorted(found, key=lambda answer: answer.round or 0)
        for k, answer in enumerate(steps):
            if answer.round is not None and answer.round != k + 1:
                raise DatasetError(
                    f"{table}:{answer.line}: run {run!r} of request {request!r} does not have exactly one invocation {k + 1}"
                )
            key = (request, tuple(step.model for step in steps[: k + 1]))
            if settings.columns.stopped_if or answer.failure is not None:
                step = answer
            else:
                step = replace(answer, stopped=k + 1 == len(steps))
            first = cells.setdefault(key, step)
            if first is not step:
                raise DatasetError(
                    f"{table}:{answer.line}: {cell_name(*key)} is on line {first.line} too: keep one of them",
                    code="log-duplicate-cell",
                )
    return cells


def _stages_of_runs(table: Path, cells: Cells) -> list[str]:
    stages: dict[int, RecordedAnswer] = {}
    for (_, prefix), answer in cells.items():
        first = stages.setdefault(len(prefix), answer)
        if first.stage != answer.stage:
            raise DatasetError(
                f"{table}:{answer.line}: invocation {len(prefix)} is of stage {answer.stage!r}, but of {first.stage!r} on line "
                f"{first.line}: each position must have one stage"
            )
    return [str(stages[k].stage) for k in sorted(stages)]


# -- common ----------------------------------------------------------------------------------------------------


def _stage_names(names: Sequence[str], depth: int) -> list[str]:
    return [names[min(k, len(names) - 1)] for k in range(depth)]


def _template(stages: Sequence[str], stop: StopRule) -> Template:
    """Return a template in which consecutive calls of the same stage become a loop."""
    turns = [(name, len(list(group))) for name, group in groupby(stages)]
    return Template(tuple(Stage(name) if times == 1 else Loop((Stage(name),), times) for name, times in turns), stop)


def _observation(request: str, prefix: tuple[str, ...], answer: RecordedAnswer, template: Template) -> Observation:
    return Observation(
        request_id=request,
        prefix=prefix,
        stage=template.invocations[len(prefix) - 1].name,
        success=answer.success,
        stopped=answer.stopped,
        cost_usd=answer.cost_usd or 0.0,
        latency_s=answer.latency_s,
        tokens_in=answer.tokens_in,
        tokens_out=answer.tokens_out,
        failure=answer.failure,
        answer=(text := None if answer.answer is None else _SHOWN.answer_text({_ANSWER: answer.answer})),
        answer_digest=None if text is None else digest_of_text(text),
    )


_ANSWER = "answer"
_SHOWN = Signals(answer=(_ANSWER,))


def _classify(store: ObservationStore, rows: Sequence[Observation], column: str) -> None:
    """Compute which answers of a request are equal (the answer classes), and store them.

    ``column`` is the table's column with the answers.
    """
    found = answer_classes(rows, _SHOWN)
    record = SignalRecord(answer=(column,), rows=len(rows), compared=found.compared, intransitive=found.intransitive)
    ShownRows(store).set_classes(found.of, record)


def _used_again(cells: Cells) -> set[Cell]:
    """Return each (request, prefix) that shares its recorded answer with an earlier prefix, which pays for this answer.

    A recorded answer was bought once but can be on several paths.
    """
    seen: set[int] = set()
    again = set[Cell]()
    for cell, answer in cells.items():
        if answer.line in seen:
            again.add(cell)
        seen.add(answer.line)
    return again


def _without_a_row(answers: Sequence[RecordedAnswer], cells: Cells) -> list[dict[str, Any]]:
    """Return ledger entries with the costs of the recorded answers that no row of the store contains, one entry each."""
    used = {answer.line for answer in cells.values()}
    return [ledger_entry(one.request_id, (one.model,), one.cost_usd or 0.0) for one in answers if one.line not in used]


_NOTES: Mapping[StopRule, tuple[str, ...]] = {
    "workflow": (),
    "oracle": (
        "a request ends when its answer is right (oracle stop), which no service can see: figures are a bound, and no "
        "trie of this store can be served. The condition of the application's own check gives what serving reaches",
    ),
}


def _notes(columns: LogColumns, depth: int, n_untimed: int, stop: StopRule) -> tuple[str, ...]:
    notes = []
    if columns.latency_s is None:
        notes.append("latency is unknown: plan without latency bounds")
    elif n_untimed:
        notes.append(f"latency is unknown of {n_untimed:,} recorded calls")
    notes.extend(_NOTES[stop])
    if columns.run is None and depth > 1:
        repeats = "gives its answer of the next round" if columns.round else "repeats its answer"
        notes.append(
            f"expanded from independent answers: a repeated model {repeats}, a new one gives its first; "
            "the cost of an answer counts once for each path that uses it, and once on the ledger"
        )
    return tuple(notes)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]

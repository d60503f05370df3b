"""From a table of recorded outcomes to a store, so that a team with logs can start from them.

Two kinds of table. *Runs* (a ``run`` column): each row is one invocation of one execution of the application, and its prefix is
what that run asked before. *Answers* (no ``run`` column): each row is a model's own answer to a request, and the cascade over
them is laid out to a depth: the n-th time that a path asks a model it gets that model's answer of round n (without a ``round``
column the model repeats itself). Exact for independent answers; silent on what one model's feedback does to another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from vinelm.catalog import Catalog, Model, Price
from vinelm.errors import ConfigError, DatasetError
from vinelm.observation import Observation
from vinelm.template import Loop, Stage, StopRule, Template
from vinelm.traces.imports.export_import import file_digest
from vinelm.traces.imports.log_columns import LogColumns, RecordedAnswer, read_answers_of
from vinelm.traces.store.atomic import new_store
from vinelm.traces.store.identity import StoreIdentity
from vinelm.traces.store.row_validation import cell

MAX_ROWS = 3_000_000
Cells = dict[tuple[str, tuple[str, ...]], RecordedAnswer]


@dataclass(frozen=True, kw_only=True)
class LogImport:
    """How to read a table. ``models``: only these (default: all of the catalog, or all that occur).

    ``stages`` names the invocations: the last name stands for all that follow (default: ``answer``). ``depth``: how many
    invocations a path has at most; None: as many as there are rounds, or as the longest run has. ``stop`` None: ``workflow``.
    ``keeps_first``: of two rows for one cell the first counts, instead of refusing the table.
    """

    columns: LogColumns
    workflow: str
    catalog: Catalog | None = None
    models: tuple[str, ...] = ()
    stages: tuple[str, ...] = ("answer",)
    depth: int | None = None
    stop: StopRule | None = None
    keeps_first: bool = False


@dataclass(frozen=True)
class ImportedLog:
    """What came of it: rows and requests in the store, its models and depth, and what a reader of it must know."""

    rows: int
    requests: int
    models: tuple[str, ...]
    depth: int
    notes: tuple[str, ...] = field(default=())


def import_log(table: Path, path: Path, how: LogImport) -> ImportedLog:
    """Make the store at ``path`` from the table. All or nothing; spends nothing.

    :class:`DatasetError` names file and line of a bad row, :class:`ConfigError` what was not said, :class:`StoreError` if there
    is something at ``path``.
    """
    columns = how.columns
    _require_price(how)
    _require_stop(how)
    answers = list(read_answers_of(table, columns, how.models or (tuple(how.catalog) if how.catalog else None)))
    if not answers:
        raise DatasetError(f"{table}: no row is left: check --where and the names of the models")
    models = _models(table, answers, how)
    catalog = how.catalog.subset(models) if how.catalog else _recorded_catalog(table, answers, models, columns)
    answers = [_priced(answer, catalog) if answer.cost_usd is None else answer for answer in answers]
    stop = how.stop or "workflow"
    cells = _runs(table, answers, how) if columns.run else _cascade(table, answers, models, stop, how)
    depth = how.depth or max(len(prefix) for _, prefix in cells)
    stages = _stages_of_runs(table, cells) if columns.stage else _stage_names(how.stages, depth)
    template = _template(stages[:depth], stop).bind(tuple(catalog))
    digest = file_digest(table)
    identity = StoreIdentity(
        workflow=how.workflow,
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
        count = store.add_many(_observation(*key, answer, template) for key, answer in cells.items())
        store.note_source("import", table.name, digest, count)
    return ImportedLog(count, len(requests), models, depth, _notes(columns, depth))


def _require_price(how: LogImport) -> None:
    columns = how.columns
    if columns.cost_usd is not None:
        return
    if how.catalog is None:
        raise ConfigError(
            "no cost: give --cost-column, or --models with the prices (and --tokens-in-column, --tokens-out-column)"
        )
    has_tokens = columns.tokens_in is not None and columns.tokens_out is not None
    per_token = [m.name for m in how.catalog.models if m.price.input or m.price.output]
    if per_token and not has_tokens:
        raise ConfigError(
            f"model {per_token[0]!r} is priced by token: give --tokens-in-column and --tokens-out-column, or --cost-column"
        )


def _require_stop(how: LogImport) -> None:
    columns = how.columns
    if columns.run is None and not columns.stopped_if and how.stop != "oracle" and (how.depth or 2) > 1:
        raise ConfigError(
            "when does a request end? Give --stopped-if CONDITION (the application's own check), or --stop oracle (by success)"
        )
    if columns.run is None and columns.stage is not None:
        raise ConfigError("--stage-column needs --run-column: without runs, name the stages with --stage")


def _models(table: Path, answers: Sequence[RecordedAnswer], how: LogImport) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(answer.model for answer in answers))
    for model in how.models:
        if model not in found:
            raise DatasetError(f"{table}: no row of the model {model!r} in column {how.columns.model!r}")
    return tuple(how.models) or (tuple(m for m in how.catalog if m in found) if how.catalog else found)


def _recorded_catalog(table: Path, answers: Sequence[RecordedAnswer], models: Sequence[str], columns: LogColumns) -> Catalog:
    """Entries for models of which only the table speaks: priced by the call, at the mean of what was recorded."""
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
            f"line {answer.line}: no tokens, and {answer.model!r} is priced by token: mend it, or give --cost-column"
        )
    values = {name: getattr(answer, name) for name in RecordedAnswer.__slots__}
    return RecordedAnswer(**{**values, "cost_usd": price.cost_usd(answer.tokens_in or 0, answer.tokens_out or 0)})


# -- answers laid out as a cascade -----------------------------------------------------------------------------


def _cascade(table: Path, answers: Sequence[RecordedAnswer], models: Sequence[str], stop: StopRule, how: LogImport) -> Cells:
    """Every cell that a request reaches and the table knows, requests in the table's order, parents before children."""
    by_request: dict[str, dict[tuple[str, int], RecordedAnswer]] = {}
    for answer in answers:
        known = by_request.setdefault(answer.request_id, {})
        first = known.setdefault((answer.model, answer.round or 1), answer)
        if first is not answer and not how.keeps_first:
            which = "" if how.columns.round is None else f" in round {answer.round}"
            raise DatasetError(
                f"{table}:{answer.line}: {answer.model!r} answers request {answer.request_id!r} twice{which} (line "
                f"{first.line} too): is a request named by more columns, or use --keep-first"
            )
    depth = _cascade_depth(answers, how)
    cells: Cells = {}
    for request, known in by_request.items():
        for prefix, answer in _reached(known, models, stop, depth, has_rounds=how.columns.round is not None):
            cells[request, prefix] = answer
        if len(cells) > MAX_ROWS:
            raise ConfigError(
                f"more than {MAX_ROWS:,} rows at depth {depth}: use a smaller --depth or fewer models (--only-model)"
            )
    return cells


def _cascade_depth(answers: Iterable[RecordedAnswer], how: LogImport) -> int:
    if how.columns.round is None:
        return how.depth or 1
    rounds = max(answer.round or 1 for answer in answers)
    if how.depth is not None and how.depth > rounds:
        raise ConfigError(
            f"--depth {how.depth} asks a model {how.depth} times, and the table has {rounds} rounds: use --depth {rounds}"
        )
    return how.depth or rounds


def _reached(
    known: Mapping[tuple[str, int], RecordedAnswer], models: Sequence[str], stop: StopRule, depth: int, *, has_rounds: bool
) -> Iterator[tuple[tuple[str, ...], RecordedAnswer]]:
    """(prefix, answer) of one request, in trie order; nothing below an end or below a cell that was not recorded."""
    waiting: list[tuple[str, ...]] = [(model,) for model in reversed(models)]
    while waiting:
        prefix = waiting.pop()
        answer = known.get((prefix[-1], prefix.count(prefix[-1]) if has_rounds else 1))
        if answer is None:
            continue
        yield prefix, answer
        has_ended = answer.failure is not None or bool(answer.success if stop == "oracle" else answer.stopped)
        if not has_ended and len(prefix) < depth:
            waiting.extend((*prefix, model) for model in reversed(models))


# -- runs ------------------------------------------------------------------------------------------------------


def _runs(table: Path, answers: Sequence[RecordedAnswer], how: LogImport) -> Cells:
    """A cell per invocation of a run; where nothing else says so, the workflow's own check ended where the run did."""
    by_run: dict[tuple[str, str], list[RecordedAnswer]] = {}
    for answer in answers:
        by_run.setdefault((answer.request_id, answer.run or ""), []).append(answer)
    cells: Cells = {}
    for (request, run), found in by_run.items():
        steps = sorted(found, key=lambda answer: answer.round or 0)
        for k, answer in enumerate(steps):
            if answer.round is not None and answer.round != k + 1:
                raise DatasetError(
                    f"{table}:{answer.line}: run {run!r} of request {request!r} has no or two invocations {k + 1}"
                )
            key = (request, tuple(step.model for step in steps[: k + 1]))
            if how.columns.stopped_if or answer.failure is not None:
                step = answer
            else:
                values = {name: getattr(answer, name) for name in RecordedAnswer.__slots__}
                step = RecordedAnswer(**{**values, "stopped": k + 1 == len(steps)})
            first = cells.setdefault(key, step)
            if first is not step and not how.keeps_first:
                raise DatasetError(
                    f"{table}:{answer.line}: {cell(*key)} was run on line {first.line} too: use --keep-first to take that one"
                )
    return cells


def _stages_of_runs(table: Path, cells: Cells) -> list[str]:
    stages: dict[int, RecordedAnswer] = {}
    for (_, prefix), answer in cells.items():
        first = stages.setdefault(len(prefix), answer)
        if first.stage != answer.stage:
            raise DatasetError(
                f"{table}:{answer.line}: invocation {len(prefix)} is of stage {answer.stage!r}, on line {first.line} of "
                f"{first.stage!r}: one position needs one stage"
            )
    return [str(stages[k].stage) for k in sorted(stages)]


# -- common ----------------------------------------------------------------------------------------------------


def _stage_names(names: Sequence[str], depth: int) -> list[str]:
    return [names[min(k, len(names) - 1)] for k in range(depth)]


def _template(stages: Sequence[str], stop: StopRule) -> Template:
    """Neighbours of one name become a loop."""
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
    )


def _notes(columns: LogColumns, depth: int) -> tuple[str, ...]:
    notes = []
    if columns.latency_s is None:
        notes.append("latency is not known: it is 0 everywhere, so plan without latency bounds")
    if columns.run is None and depth > 1:
        repeats = "gives its answer of the next round" if columns.round else "repeats its answer"
        notes.append(
            f"laid out from independent answers: a model that is asked again {repeats}, another one gives its first; "
            "dollars count an answer once for each path that uses it"
        )
    return tuple(notes)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]

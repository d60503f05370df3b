"""``vinelm store import``: creates a store from an export, or from a table of recorded outcomes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from vinelm.cli.console import echo, print_json, say
from vinelm.cli.options import json_option, option, path_argument
from vinelm.cli.quantities import Count
from vinelm.errors import ConfigError
from vinelm.io.file_kinds import near
from vinelm.reports import usd

if TYPE_CHECKING:
    from vinelm.template import StopRule
    from vinelm.traces import LogImport

FIELDS = (
    "request",
    "model",
    "success",
    "cost_usd",
    "latency_s",
    "tokens_in",
    "tokens_out",
    "failure",
    "answer",
    "round",
    "run",
    "stage",
)
"""The fields of :class:`~vinelm.traces.LogColumns` that name a column; those of the request may be several."""
REQUIRED = ("request", "model", "success")


@click.command("import", short_help="Create a store from an export or a table of outcomes.")
@path_argument("table")
@option("-o --output DB", "Store to create; must not exist.", Path, required=True)
@option(
    "--column FIELD=COLUMN",
    "Column of a field: request (several together may identify it), model, success (1/0 or true/false), cost_usd, "
    "latency_s (empty: unknown), tokens_in, tokens_out, failure (its kind; empty: none), answer, round (number of this "
    "model's answer to the request, from 1; with runs, the position in the run), run (of your application), stage (with "
    "runs). Repeatable.",
    into="columns",
    multiple=True,
)
@option(
    "--stopped-if CONDITION",
    "Condition under which the application's own check passed: COLUMN, COLUMN=VALUE or COLUMN>NUMBER. Repeatable: all "
    "must hold.",
    multiple=True,
)
@option("--where CONDITION", "Import only rows that meet this condition. Repeatable: all must hold.", multiple=True)
@option("--models TOML", "Catalog with the prices of the models.", Path)
@option("--only-model NAME", "Import only this model; repeatable.", multiple=True)
@option("--workflow NAME", "Name of the workflow [default: the table's name].")
@option(
    "--stage NAME",
    "Name of each invocation's stage, in order; the last one repeats [default: answer].",
    multiple=True,
)
@option("--depth N", "Invocations of the longest path [default: the rounds, or the longest run].", Count(1))
@option(
    "--stop",
    "When a request ends: by --stopped-if, or when its answer is right, which no service can see: figures of the oracle are a "
    "bound, and no advice [default: workflow].",
    ("workflow", "oracle"),
)
@json_option
def command(*, table: Path, output: Path, as_json: bool, **how: Any) -> None:
    """Create a store from TABLE (.csv, .jsonl or .parquet, also .gz), to use with `vinelm estimate`.

    TABLE is an export of `vinelm store export`, or your own log of recorded outcomes, with its columns named by --column. If a
    column names the run of your application, each row is one invocation in that run. Otherwise each row is one model's answer
    to a request. Paths of up to --depth models are then built from these answers, as if the models had tried the request one
    after another. This is exact if answers are independent.

    Example: vinelm store import log.csv -o log.db --column request=id --column model=model --column success=correct
    --column cost_usd=usd --stopped-if passed --depth 2
    """
    from vinelm.traces import import_export
    from vinelm.traces.imports.export_import import is_export, side_file

    given = [name for name, value in how.items() if value]
    if not given and is_export(table):
        count = import_export(table, output)
        facts: dict[str, Any] = {"store": str(output), "rows": count}
    elif not given and not table.exists():
        raise ConfigError(f"{table}: no such file{near(table)}: check the path")
    else:
        columns = _columns(how.pop("columns"))
        missing = [name for name in REQUIRED if name not in columns]
        if missing:
            options = ", ".join(f"--column {name}=COLUMN" for name in missing)
            hint = "" if given else f" (there is no {side_file(table).name} beside it, so it is not an export)"
            raise ConfigError(f"{table}: name the columns of the outcomes with {options}{hint}")
        facts = _import_log(table, output, columns, how)
    if as_json:
        print_json(facts)
    else:
        _show(facts)


def _columns(texts: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the names of each field's columns, from option values of the form ``FIELD=COLUMN``.

    Raise :class:`ConfigError` for an unknown field, or if a field other than ``request`` has several columns.
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        field, _, column = text.partition("=")
        if field not in FIELDS or not column:
            raise ConfigError(f"--column {text}: write FIELD=COLUMN, where FIELD is {', '.join(FIELDS)}")
        found.setdefault(field, []).append(column)
        if len(found[field]) > 1 and field != "request":
            raise ConfigError(f"--column: {field} is given {' and '.join(found[field])}: name one column")
    return found


def _import_log(table: Path, output: Path, columns: dict[str, list[str]], how: dict[str, Any]) -> dict[str, Any]:
    from vinelm.traces import import_log

    return {"store": str(output), **asdict(import_log(table, output, _settings(table, columns, how)))}


def _settings(table: Path, columns: dict[str, list[str]], how: dict[str, Any]) -> LogImport:
    from vinelm.catalog.catalog import Catalog
    from vinelm.traces import Condition, LogColumns, LogImport

    one = {field: names[0] for field, names in columns.items() if field != "request"}
    return LogImport(
        columns=LogColumns(
            request=tuple(columns["request"]),
            **one,
            stopped_if=tuple(map(Condition.parse, how["stopped_if"])),
            where=tuple(map(Condition.parse, how["where"])),
        ),
        workflow=how["workflow"] or table.name.split(".")[0],
        catalog=None if how["models"] is None else Catalog.from_file(how["models"]),
        models=how["only_model"],
        stages=how["stage"] or ("answer",),
        depth=how["depth"],
        stop=cast("StopRule | None", how["stop"]),
    )


def _show(facts: dict[str, Any]) -> None:
    if "models" in facts:
        say(
            f"{facts['rows']:,} rows: {facts['requests']:,} requests, {len(facts['models'])} models, "
            f"paths of up to {facts['depth']} invocations; {usd(facts['paid_usd'])} paid for the recorded calls."
        )
        for note in facts["notes"]:
            say(f"Note: {note}.")
    else:
        say(f"{facts['rows']:,} rows.")
    echo(f"wrote {facts['store']}. Next: vinelm estimate {facts['store']}")

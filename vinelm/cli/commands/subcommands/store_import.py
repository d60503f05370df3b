"""``vinelm store import``: create a store from an export, or from a table of recorded outcomes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from vinelm.cli.console import echo
from vinelm.cli.options import json_option, stacked

if TYPE_CHECKING:
    from vinelm.template import StopRule
    from vinelm.traces import LogImport

_COLUMNS = {
    "success": "Column: whether the answer is right: 1/0 or true/false.",
    "cost": "Column: dollars of the call.",
    "latency": "Column: seconds of the call.",
    "tokens-in": "Column: prompt tokens.",
    "tokens-out": "Column: generated tokens.",
    "failure": "Column: kind of the failure; empty if the call succeeded.",
    "round": "Column: number of this model's answer to the request, from 1; with runs, the position in the run.",
    "run": "Column: run of the application that the invocation belongs to.",
    "stage": "Column: stage of the invocation (with runs).",
}


def _column_option(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(f"--{name}-column", metavar="NAME", help=text)


columns = stacked(
    click.option("--request-column", multiple=True, metavar="NAME", help="Column(s) that identify the request; repeatable."),
    click.option("--model-column", metavar="NAME", help="Column: name of the model."),
    *(_column_option(name, text) for name, text in _COLUMNS.items()),
)


@click.command("import", short_help="Create a store from an export or a table of outcomes.")
@click.argument("table", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="DB", help="Store to create; must not exist."
)
@columns
@click.option(
    "--stopped-if", multiple=True, metavar="CONDITION",
    help="Condition under which the application's own check passed: COLUMN, COLUMN=VALUE or COLUMN>NUMBER. Repeatable: all "
    "must hold.",
)  # fmt: skip
@click.option(
    "--where", multiple=True, metavar="CONDITION", help="Import only rows that meet this condition. Repeatable: all must hold."
)
@click.option("--models", type=click.Path(path_type=Path), metavar="TOML", help="Catalog with the prices of the models.")
@click.option("--only-model", multiple=True, metavar="NAME", help="Import only this model; repeatable.")
@click.option("--workflow", metavar="NAME", help="Name of the workflow [default: the table's name].")
@click.option(
    "--stage", multiple=True, metavar="NAME",
    help="Name of each invocation's stage, in order; the last one repeats [default: answer].",
)  # fmt: skip
@click.option(
    "--depth", type=click.IntRange(min=1), help="Invocations of the longest path [default: the rounds, or the longest run]."
)
@click.option(
    "--stop", type=click.Choice(["workflow", "oracle"]),
    help="When a request ends: by --stopped-if, or when its answer is right (needs labels) [default: workflow].",
)  # fmt: skip
@click.option("--keep-first", is_flag=True, help="If a cell has two rows, use the first instead of failing.")
@json_option
def command(*, table: Path, output: Path, as_json: bool, **how: Any) -> None:
    """Create a store from TABLE (.csv, .jsonl or .parquet, also .gz), to use with `vinelm estimate`.

    TABLE is an export of `vinelm store export`, or your own log of recorded outcomes, with its columns named by options. With
    a run column, each row is one invocation in a run of your application. Without, each row is one model's answer to a
    request; paths are then built as retries over these answers up to --depth, which is exact if answers are independent.

    Example: vinelm store import log.csv -o log.db --request-column id --model-column model --success-column correct
    --cost-column usd --stop oracle --depth 2
    """
    from vinelm.errors import ConfigError
    from vinelm.traces import import_export, is_export, side_file

    given = [name for name, value in how.items() if value]
    if not given and is_export(table):
        count = import_export(table, output)
        facts: dict[str, Any] = {"store": str(output), "rows": count}
    elif not given and not table.exists():
        raise ConfigError(f"{table}: no such file: check the path")
    else:
        missing = [name for name in ("request_column", "model_column", "success_column") if not how[name]]
        if missing:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
            hint = "" if given else f" (there is no {side_file(table).name} beside it, so it is not an export)"
            raise ConfigError(f"{table}: name the columns of the outcomes with {options}{hint}")
        facts = _import_log(table, output, how)
    if as_json:
        from vinelm.cli.console import print_json

        print_json(facts)
    else:
        _show(facts)


def _import_log(table: Path, output: Path, how: dict[str, Any]) -> dict[str, Any]:
    from dataclasses import asdict

    from vinelm.traces import import_log

    return {"store": str(output), **asdict(import_log(table, output, _settings(table, how)))}


def _settings(table: Path, how: dict[str, Any]) -> LogImport:
    from vinelm.catalog import Catalog
    from vinelm.traces import Condition, LogColumns, LogImport

    return LogImport(
        columns=LogColumns(
            request=how["request_column"],
            model=how["model_column"],
            success=how["success_column"],
            cost_usd=how["cost_column"],
            latency_s=how["latency_column"],
            tokens_in=how["tokens_in_column"],
            tokens_out=how["tokens_out_column"],
            failure=how["failure_column"],
            round=how["round_column"],
            run=how["run_column"],
            stage=how["stage_column"],
            stopped_if=tuple(map(Condition.parse, how["stopped_if"])),
            where=tuple(map(Condition.parse, how["where"])),
        ),
        workflow=how["workflow"] or table.name.split(".")[0],
        catalog=None if how["models"] is None else Catalog.from_file(how["models"]),
        models=how["only_model"],
        stages=how["stage"] or ("answer",),
        depth=how["depth"],
        stop=cast("StopRule | None", how["stop"]),
        keeps_first=how["keep_first"],
    )


def _show(facts: dict[str, Any]) -> None:
    from vinelm.cli.console import say

    if "models" in facts:
        say(
            f"{facts['rows']:,} rows: {facts['requests']:,} requests, {len(facts['models'])} models, "
            f"paths of up to {facts['depth']} invocations."
        )
        for note in facts["notes"]:
            say(f"Note: {note}.")
    else:
        say(f"{facts['rows']:,} rows.")
    echo(f"wrote {facts['store']}. Next: vinelm estimate {facts['store']}")

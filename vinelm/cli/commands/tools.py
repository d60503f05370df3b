"""``vinelm tools``: records an application's tool calls, and mines patterns from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo, print_json, progress, say
from vinelm.cli.declared import declared
from vinelm.cli.inputs import in_options
from vinelm.cli.options import (
    SuggestingGroup,
    flag,
    json_option,
    option,
    output_options,
    path_argument,
    resumable,
)
from vinelm.cli.quantities import USD
from vinelm.errors import BudgetExhausted, ConfigError
from vinelm.reports import percent, seconds, usd

if TYPE_CHECKING:
    from vinelm.api import VineLM
    from vinelm.api.profiling import Inputs
    from vinelm.api.tool_patterns import MinedPatterns
    from vinelm.verdicts.tool_recording import RecordedTools

read_only_option = option(
    "--read-only NAME",
    "A tool that only reads, or a pattern such as 'get_*'. Repeatable; every other tool counts as one that writes.",
    multiple=True,
)
app_option = option("--app FILE:GRAPH", "The application, whose tools' schemas are kept with the patterns.")


@click.group("tools", cls=SuggestingGroup, for_file="mine", short_help="Mine which tools can be called ahead.")
def command() -> None:
    """Find tool calls that can be made before the model asks for them, and say whether that saves anything.

    Only `record` calls models and tools.

    Example: vinelm tools mine app.db -o app.patterns
    """


@command.command("record", short_help="Run requests once and record their tool calls.")
@click.argument("app")
@declared("vinelm.api.profiling:profile", only=("models", "preset", "dataset", "columns", "limit", "seed"))
@option("--store DB", "Store to create or continue [default: APP with .tools.db].", Path)
@flag("--values", "Record arguments, results and what users said, too: patterns are mined from them.", into="has_values")
@read_only_option
@option("--budget-usd USD", "Never spend more than this, interrupted runs included.", USD)
@output_options
@resumable
def record(
    *,
    app: str,
    store: Path | None,
    has_values: bool,
    read_only: tuple[str, ...],
    budget_usd: float | None,
    as_json: bool,
    quiet: bool,
    **how: Any,
) -> None:
    """Serve each request of APP once with the models that it uses today, and write the calls of its tools to a store.

    APP is a workflow, as for `vinelm profile`, or FILE.py:GRAPH with --dataset, whose rows are inputs of the graph. The tools
    are really called. Every request is stored before the next one starts, so the same command continues an interrupted run.
    Without --values the store has only names, digests of arguments, seconds and dollars, from which no pattern can be mined.

    Exit code 3 if the budget ended the run early.

    Example: vinelm tools record workflow:workflow --models models.toml --values --store app.tools.db --budget-usd 2
    """
    from vinelm.backends.diagnostics import require_keys
    from vinelm.verdicts.tool_recording import record_tools

    inputs, own = _recorded_inputs(app, how)
    if inputs.note and not quiet:
        echo(inputs.note, err=True)
    require_keys(inputs.catalog.models)
    target = store or Path(f"{inputs.workflow.name}.tools.db")
    with in_options(), progress(quiet=quiet) as advance:
        found = record_tools(
            inputs.workflow,
            inputs.catalog,
            inputs.backends,
            target,
            vine=own,
            record="values" if has_values else "digests",
            read_only=read_only,
            budget_usd=budget_usd,
            seed=how["seed"],
            on_done=lambda done, total: advance(done, total, "record", f"{done} of {total} requests"),
        )
    if as_json:
        print_json({"store": str(target), **found.to_dict()})
    else:
        _show_recorded(found, target)
    if not found.is_complete:
        raise BudgetExhausted(
            f"the budget is reached after {found.served} of {found.requests} requests: raise --budget-usd and run the same line"
            " to continue"
        )


def _recorded_inputs(app: str, how: dict[str, Any]) -> tuple[Inputs, VineLM | None]:
    """Return what is needed to record tool calls (workflow, models and the like), and the application's own
    :class:`~vinelm.VineLM`.

    The VineLM is None if ``app`` is a workflow, or a graph whose module has no single VineLM. ``how`` has the command's
    options.

    Raises:
        ConfigError: A graph has no ``--dataset``, or its models are stated both by its VineLM and by options, or by neither.
    """
    from vinelm.api.profiling import load_inputs, prepared
    from vinelm.cli.inputs import catalog_for_check
    from vinelm.datasets import Columns, read_dataset

    if not app.partition(":")[0].endswith(".py"):
        return load_inputs(app, **how), None
    if how["dataset"] is None:
        raise ConfigError(f"{app}: a graph needs --dataset: a file whose rows are its inputs")
    from vinelm.scaffold.recorded import graph_workflow

    rows = read_dataset(how["dataset"], Columns.parse(how["columns"]), limit=how["limit"])
    workflow, own = graph_workflow(app, Path.cwd(), rows)
    is_named = how["models"] is not None or how["preset"] is not None
    if is_named == (own is not None):
        unknown = "no VineLM in its module says which models there are: give --models"
        known = "its VineLM says which models there are: leave --models and --preset out"
        raise ConfigError(f"{app}: {known if is_named else unknown}")
    catalog = catalog_for_check(how["models"], how["preset"]) if own is None else own.catalog
    return prepared(workflow, catalog, seed=how["seed"]), own


def _show_recorded(found: RecordedTools, store: Path) -> None:
    simulated = " Simulated models." if found.is_simulated else ""
    say(f"Recorded {found.calls:,} calls of {found.served:,} requests in {store}; {usd(found.spent_usd)} spent.{simulated}")
    for reason, number in found.failures.items():
        say(f"{number:,} of {found.served:,} failed: {reason}", indent="  ", hanging=2)
    if not found.calls:
        say("No tool was called. Only LangChain tools are heard: nodes that are plain functions are not.")


@command.command("mine", short_help="Mine patterns from recorded tool calls.")
@path_argument("source")
@option("-o --output PATTERNS", "File of patterns to write [default: SOURCE with .patterns].", Path)
@read_only_option
@app_option
@json_option
def mine(*, source: Path, output: Path | None, read_only: tuple[str, ...], app: str | None, as_json: bool) -> None:
    """Find patterns in the tool calls of SOURCE, a store or a log of messages in JSON lines, and measure what they save.

    A pattern predicts the next tool call. Patterns are tested on requests that were not used to mine them. The output says how
    many results of read-only tools would have been ready when the model asked for them, with how many guesses for each call,
    and the effect in seconds and dollars. If even perfect guesses would save nothing, the command says so and writes no file.
    The file of patterns has no values from the requests, except constants that many requests share.

    Example: vinelm tools mine messages.jsonl --read-only 'get_*' -o app.patterns
    """
    from vinelm.api.tool_patterns import mine_tools
    from vinelm.estimator.patterns.pattern_file import write_patterns

    target = output or source.with_suffix(".patterns")
    if target.exists() and target.suffix != ".patterns":
        raise ConfigError(f"{target}: exists and is no file of patterns: use another name for -o, or move the file away")
    schemas = None
    if app is not None:
        from vinelm.scaffold.application import tool_schemas

        schemas = tool_schemas(app, Path.cwd())
    mined = mine_tools(source, read_only, schemas=schemas)
    if mined.patterns is not None:
        write_patterns(mined.patterns, target)
    if as_json:
        print_json({**mined.to_dict(), "patterns": str(target) if mined.patterns is not None else None})
    else:
        _show(mined, target)


def _show(mined: MinedPatterns, target: Path) -> None:
    replayed = mined.replayed
    if mined.patterns is None:
        say(f"{replayed.calls:,} calls of {mined.sessions:,} requests: {replayed.nothing_to_gain}.", bold=True)
        return
    say(f"{len(mined.patterns.sets)} patterns of {replayed.calls:,} calls in {mined.sessions:,} requests.", bold=True)
    say(
        f"Held out by request: {percent(replayed.ready_share)} of {replayed.reads:,} reads ready when asked for, at "
        f"{replayed.speculations_per_call:.2f} guesses for each call, {percent(replayed.precision)} of them right."
    )
    if mined.without_values:
        say(f"{mined.without_values:,} more requests are recorded without arguments: nothing was learnt from them.")
    if replayed.total_s:
        waste = f", {usd(replayed.waste_usd / mined.sessions)} wasted" if replayed.waste_usd else ""
        say(
            f"A request of {seconds(replayed.total_s / mined.sessions)} would take "
            f"{seconds(replayed.saved_s / mined.sessions)} less{waste}."
        )
    else:
        say("No times were recorded, so that the seconds are not known.")
    echo(f"Wrote {target}")


@command.command("check", short_help="Compare patterns with the tools of an application.")
@path_argument("patterns")
@click.argument("app")
@json_option
def check(*, patterns: Path, app: str, as_json: bool) -> None:
    """Check that the tools of APP are those in PATTERNS: names, arguments, and schemas if known.

    Exit code 2 names the first tool that differs.

    Example: vinelm tools check app.patterns app.py:graph
    """
    from vinelm.estimator.patterns.pattern_file import read_patterns
    from vinelm.scaffold.application import tool_schemas

    found = read_patterns(patterns)
    schemas = tool_schemas(app, Path.cwd())
    found.check(schemas)
    tools = sorted({tool for tool, _ in found.sets})
    if as_json:
        print_json({"patterns": str(patterns), "sets": len(found.sets), "tools": tools, "application_tools": sorted(schemas)})
    else:
        say(f"{len(found.sets)} patterns fit the application's tools: {', '.join(tools)}.")


@command.command("import", short_help="Add a log of messages or spans to a store.")
@path_argument("log")
@option("--store DB", "Store to add the tool calls to.", Path, required=True)
@read_only_option
@json_option
def import_(*, log: Path, store: Path, read_only: tuple[str, ...], as_json: bool) -> None:
    """Add the tool calls of LOG to a store: OpenAI's or LangChain's messages, one request a line, or OpenTelemetry spans.

    Spans are OTLP's JSON, as one object or one per line. Of the spans, those named `execute_tool` are used, by OpenTelemetry's
    conventions for generative AI. The store then has the arguments and results that LOG has, and what users said. A request
    that the store already has is replaced.

    Example: vinelm tools import messages.jsonl --store app.db --read-only 'get_*'
    """
    from vinelm.api.tool_patterns import import_sessions

    sessions, calls = import_sessions(log, store, read_only)
    if as_json:
        print_json({"store": str(store), "sessions": sessions, "calls": calls})
    else:
        say(f"Added {calls:,} calls of {sessions:,} requests to {store}.")

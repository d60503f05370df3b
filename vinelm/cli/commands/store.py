"""``vinelm store``: inspects, checks, imports and merges observation stores."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.commands.export import command as export_command
from vinelm.cli.commands.reprice import command as reprice_command
from vinelm.cli.commands.store_import import command as import_command
from vinelm.cli.console import echo, print_json, say, show_table
from vinelm.cli.options import SuggestingGroup, flag, json_option, option, store_argument
from vinelm.reports import percent, usd
from vinelm.reports.formatting import PROMPT_COLUMNS, PROMPT_TITLE, oracle_words, prompt_row

if TYPE_CHECKING:
    from vinelm.template import Template
    from vinelm.traces import CheckedStore

_AFTER = {"first": "first in a request", "switched": "after another model", "kept": "after itself"}


@click.group("store", cls=SuggestingGroup, for_file="info", short_help="Inspect, check, import and merge stores.")
def command() -> None:
    """Inspect, check, import and merge observation stores.

    These commands call no model. Files are written atomically.

    Example: vinelm store info runs/nl2sql.db
    """


@command.command("info", short_help="Show what a store contains and what it cost.")
@store_argument
@json_option
def info(*, store: Path, as_json: bool) -> None:
    """Show the workflow whose results STORE contains, the number of these results, and their cost.

    Example: vinelm store info runs/nl2sql.db
    """
    from vinelm.estimator.prompt_cache import cached_shares
    from vinelm.profiler import coverage_of
    from vinelm.traces import ObservationStore, contents_of
    from vinelm.traces.store.prompts import StoredPrompts, prompt_stages
    from vinelm.traces.store.rows import misfit

    with ObservationStore.open(store) as opened:
        identity, contents = opened.identity, contents_of(opened)
        spend = {by: opened.spend(by) for by in ("model", "depth", "stage")}
        rows = opened.observations()
        prompts = prompt_stages(rows, StoredPrompts(opened).read())
    template = identity.bound_template()
    fitting = [row for row in rows if misfit(row, template) is None]
    account = coverage_of(fitting, template, contents.requests) if fitting else None
    facts: dict[str, Any] = {
        "store": str(store),
        "workflow": identity.workflow,
        "is_simulated": identity.is_simulated,
        "stop": template.stop,
        "created_at": identity.created_at,
        "models": list(identity.models()),
        **_shape(template),
        "dataset_digest": identity.dataset_digest,
        "rows": len(rows),
        **asdict(contents),
        "coverage": account.fraction if account else None,
        "exhaustive_usd": account.exhaustive_usd() if account else None,
        "cached_share": cached_shares(fitting, identity.models()),
        "prompts": [asdict(stage) for stage in prompts],
        "spend": {by: {str(key): asdict(item) for key, item in found.items()} for by, found in spend.items()},
    }
    if as_json:
        print_json(facts)
    else:
        _show_info(facts)
        if prompts:
            show_table(PROMPT_TITLE, PROMPT_COLUMNS, [prompt_row(stage) for stage in prompts])


def _shape(template: Template) -> dict[str, Any]:
    """Return how the workflow's calls follow each other, as JSON types: the key ``invocations`` has the stage of each call in
    order.

    For a template that branches, the keys are ``stages`` (all stages) and ``template`` (the template as JSON types) instead.
    """
    if template.listed:
        return {"invocations": [stage.name for stage in template.listed]}
    return {"stages": [stage.name for stage in template.stages], "template": template.to_dict()}


def _show_info(facts: dict[str, Any]) -> None:
    kind = "simulated models" if facts["is_simulated"] else "real models"
    created = facts["created_at"] or "at an unknown time"
    say(f"{facts['workflow']}: {facts['rows']:,} rows of {kind}, created {created}", bold=True)
    say(f"{_shape_words(facts)}; stop rule: {facts['stop']}; models: {len(facts['models'])}.")
    say(f"Requests: {facts['requests_observed']:,} of {facts['requests']:,} observed.")
    for by in ("model", "depth"):
        cells = [
            (key, f"{item['rows']:,}", f"{item['calls']:,}", str(item["failures"]), usd(item["cost_usd"]))
            for key, item in facts["spend"][by].items()
        ]
        show_table(f"By {by}", (by, "rows", "calls", "failed", "cost"), cells)
    lost = f", {usd(facts['abandoned_usd'])} of it for calls without a recorded result" if facts["abandoned_usd"] else ""
    open_ = f", {usd(facts['open_usd'])} reserved for calls in flight" if facts["open_usd"] else ""
    rows_usd = sum(item["cost_usd"] for item in facts["spend"]["model"].values())
    shared = (
        "; rows that use one recorded answer each have its dollars, which were paid once" if _is_shared(facts, rows_usd) else ""
    )
    say(f"Ledger: {usd(facts['committed_usd'])}{lost}{open_}{shared}.")
    if oracle := oracle_words(facts["stop"]):
        say(oracle)
    _show_growth(facts)
    _show_signals(facts)
    if facts["tools"]:
        calls, sessions, valued = (facts["tools"][name] for name in ("calls", "sessions", "with_values"))
        say(f"Tool calls: {calls:,} of {sessions:,} sessions, {valued:,} of them with values.")
    if facts["coverage"] is not None:
        say(
            f"Coverage: {percent(facts['coverage'])} of {usd(facts['exhaustive_usd'])}, "
            "the estimated cost of executing every reachable cell once."
        )
    for model, shares in facts["cached_share"].items():
        if any(shares.values()):
            by_edge = ", ".join(f"{percent(share)} {_AFTER[edge]}" for edge, share in shares.items())
            say(f"Cached prompt tokens of {model}: {by_edge}.")
    for source in facts["sources"]:
        say(f"From {source['name']} ({source['kind']}): {source['row_count']:,} rows, {source['added_at']}.")
    held = f" Locked by a running profile: {facts['held_by']}." if facts["held_by"] else ""
    size = (
        f"{facts['size_bytes'] / 1e6:.1f} MB, {facts['checkpoints']:,} checkpoints of {facts['checkpoint_bytes'] / 1e6:.1f} MB"
    )
    if facts["checkpoint_url"]:
        size += f" in it, others under {facts['checkpoint_url']}"
    say(f"Size: {size}; schema version {facts['version']}.{held}")


def _is_shared(facts: dict[str, Any], rows_usd: float) -> bool:
    """Return whether an imported log records one payment in several rows, so that the rows' costs exceed what was paid.

    Args:
        facts: The facts about the store, with the dollars really paid as ``committed_usd``.
        rows_usd: The sum of the rows' costs, in dollars.
    """
    return any(source["kind"] == "import" for source in facts["sources"]) and rows_usd > facts["committed_usd"] * (1 + 1e-9)


def _shape_words(facts: dict[str, Any]) -> str:
    from vinelm.template import Template

    if "invocations" in facts:
        return f"Invocations: {', '.join(facts['invocations'])}"
    return f"Steps: {Template.from_dict(facts['template']).words}"


def _show_growth(facts: dict[str, Any]) -> None:
    """Print how many results of the store became invalid, have to be scored again, or have costs at new prices.

    The reason is that the workflow, dataset or catalog changed after the results were recorded.
    """
    if facts["retired"]:
        count = sum(facts["retired"].values())
        say(
            f"No longer valid: {count:,} more rows, for which {usd(facts['retired_usd'])} of that was paid. They are kept, and "
            "used again if the change is undone."
        )
        for reason, rows in facts["retired"].items():
            say(f"  {rows:,}: {reason}", hanging=2)
    if facts["waiting"]:
        say("Some of these wait to be scored again: the next `vinelm profile` does it, without a call.")
    if facts["repriced"]:
        say(f"{facts['repriced']:,} rows count at a later price than the one they were charged at.")


def _show_signals(facts: dict[str, Any]) -> None:
    """Print which signals (what calls show without the label, such as a passed check) the results have, if the workflow
    declares any.
    """
    from vinelm.reports.store_text import shown_lines
    from vinelm.traces.store.shown import SignalRecord

    if facts["continued"]:
        say(f"{facts['continued']:,} rows lie below an answer that the workflow's own check passed.")
    if facts["signals"]:
        say(f"Signal: {', '.join(f'{label} {count:,}' for label, count in facts['signals'].items())}.")
    if facts["shown"] is not None:
        for line in shown_lines(SignalRecord.of_plain(facts["shown"]), facts["rows"], facts["answers"]):
            say(line)


@command.command("check", short_help="Check the integrity of a store.")
@store_argument
@flag("--accept", "For a copy made during a run: accept the rows that it has as complete.")
@json_option
def check(*, store: Path, accept: bool, as_json: bool) -> int | None:
    """Check the integrity of STORE: file, rows, checkpoints, ledger and tool calls. Exit code 1 if something is damaged.

    Example: vinelm store check runs/nl2sql.db
    """
    from vinelm.traces import check_store
    from vinelm.traces.databases.recovery import recover

    if accept and store.exists():
        recover(store, accept=True)
    found = check_store(store)
    if as_json:
        print_json({"store": str(store), "is_whole": found.is_whole, **asdict(found)})
    else:
        _show_check(found, store)
    return None if found.is_whole else 1


def _show_check(found: CheckedStore, store: Path) -> None:
    for item in found.findings:
        say(f"{'DAMAGE' if item.is_damage else 'note  '}  {item.what}: {item.count:,}, first: {item.first}", hanging=8)
    checked = f"{found.rows:,} rows, {found.checkpoints:,} checkpoints, {found.ledger_entries:,} ledger entries"
    checked += f", {found.tool_calls:,} tool calls" if found.tool_calls else ""
    say(f"{store}: {'no damage' if found.is_whole else 'damaged'} ({checked})")


@command.command("merge", short_help="Merge several stores of the same workflow.")
@click.argument("stores", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="STORE STORE ...")
@option("-o --output DB", "Store to create; must not exist.", Path, required=True)
def merge(*, stores: tuple[Path, ...], output: Path) -> None:
    """Merge the rows, checkpoints, ledgers and tool calls of several stores of the same workflow into a new store.

    The input stores are not changed. If two of them have results for the same request and the same models, these results must
    be equal.

    Example: vinelm store merge ann.db ben.db -o both.db
    """
    from vinelm.traces import merge_stores

    merged = merge_stores(stores, output)
    for store, count in zip(stores, merged.added, strict=True):
        echo(f"{store}: {count:,} new rows")
    for store, count in zip(stores, merged.without_shapes, strict=True):
        if count:
            say(f"note: {count:,} rows of {store} go without prompt shapes, which another key made: {store} keeps them")
    echo(f"wrote {merged.rows:,} rows to {output}")


for _more in (import_command, export_command, reprice_command):
    command.add_command(_more)

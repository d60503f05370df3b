"""``vinelm demo``: a tour of VineLM on bundled requests and simulated models."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo
from vinelm.cli.demo_output import result_facts, show_comparison, show_each_model
from vinelm.cli.options import dataset_option, limit_option, output_options, seed_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vinelm.demo import DemoResult, DemoSettings
    from vinelm.recorded_table import RecordedTable

PRESETS = {"nl2sql": "paper", "support": "paper-4"}
"""Simulated models of each demo. A graph that branches has more histories: the support desk is shown with four models."""
COVERAGE = 0.02
"""Default coverage of every demo: that of a profile without any limit."""


@click.command("demo", short_help="Tour on simulated models: no API keys, no network, under a minute.")
@click.argument("workflow", type=click.Choice(["nl2sql", "support"]), default="nl2sql")
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    help="Folder for all files [default: runs/demo, or runs/demo-support].",
)
@click.option(
    "--preset",
    metavar="NAME",
    help="Simulated models: paper, paper-2, paper-4, one-wins [default: paper; of the support desk paper-4].",
)
@click.option(
    "--coverage",
    type=float,
    metavar="FRACTION",
    default=COVERAGE,
    show_default=True,
    help="Fraction of the training split's cost to profile.",
)
@dataset_option
@seed_option
@limit_option
@output_options
def command(
    *,
    workflow: str,
    output_dir: Path | None,
    as_json: bool,
    quiet: bool,
    preset: str | None,
    coverage: float,
    seed: int,
    **data: Any,
) -> None:
    """Profile, estimate, plan, serve and report on a bundled WORKFLOW: no API keys, no network, under a minute.

    nl2sql (the default): simulated models write SQL, which is really executed. The demo profiles a sample of a training split,
    plans for three objectives, serves held-out requests through the LangGraph app under VineLM, the best static plan and every
    single model, and compares them. Writes report.html, demo.db and one .vine file per stop rule; replaces those of an earlier
    demo.

    support: a support desk, whose graph branches. A router sends each ticket to one of three desks; two of them look something
    up, and a reply follows. Plans are contingent: each desk has its own next model.

    Example: vinelm demo support --seed 1 --output-dir runs/demo
    """
    from vinelm.cli.console import progress
    from vinelm.cli.inputs import load_inputs
    from vinelm.demo import DemoSettings
    from vinelm.errors import ConfigError

    data["preset"] = preset or PRESETS[workflow]
    if not 0.0 < coverage <= 1.0:
        raise ConfigError(f"--coverage is {coverage}: it must be a fraction in (0, 1]")
    folder = output_dir or Path("runs/demo" if workflow == "nl2sql" else f"runs/demo-{workflow}")
    with progress(quiet=quiet) as start:
        inputs = load_inputs(workflow, seed=seed, **data)
        settings = DemoSettings(
            workflow=inputs.workflow, catalog=inputs.catalog, backends=inputs.backends, output_dir=folder, seed=seed,
            coverage=coverage, recorded_table=partial(_recorded_table, seed=seed, **data) if workflow == "nl2sql" else None,
        )  # fmt: skip
        finish = _run(settings, start) if workflow == "nl2sql" else _run_branching(settings, start)
    finish(as_json)


def _run(settings: DemoSettings, start: Callable[[str], Any]) -> Callable[[bool], None]:
    """Run the demo of a workflow without branches, and return what prints it, as JSON or not."""
    from vinelm.demo import demo_page, run_demo
    from vinelm.reports import write_page

    result = run_demo(settings, start)
    page = write_page(demo_page(result), settings.output_dir / "report.html")
    return lambda as_json: _print_json(result, page) if as_json else _show(result, page)


def _run_branching(settings: DemoSettings, start: Callable[[str], Any]) -> Callable[[bool], None]:
    """The same for a workflow that branches."""
    from vinelm.cli.console import print_json
    from vinelm.cli.demo_output import branching_facts, show_branching
    from vinelm.demo import branching_page, run_branching_demo
    from vinelm.reports import write_page

    result = run_branching_demo(settings, start)
    page = write_page(branching_page(result), settings.output_dir / "report.html")
    return lambda as_json: print_json(branching_facts(result, page)) if as_json else show_branching(result, page)


def _recorded_table(request_ids: Sequence[str], *, seed: int, **data: Any) -> RecordedTable:
    """Compute the complete table of these requests, in a process that loads the same inputs again."""
    from vinelm.cli.inputs import load_inputs
    from vinelm.workflows.nl2sql import exact_table

    inputs = load_inputs("nl2sql", seed=seed, **data)
    by_id = {request.id: request for request in inputs.workflow.requests}
    requests = [by_id[request_id] for request_id in request_ids]
    return exact_table(inputs.workflow, inputs.catalog, inputs.backends, requests, only_reached="either")


def _show(result: DemoResult, page: Path) -> None:
    from vinelm.cli.console import say
    from vinelm.demo import demo_headline, interval_note, own_check_line, stop_note
    from vinelm.reports import percent, usd, verdict_lines

    profile, oracle_stop, own_check = result.profiled.result, result.oracle_stop, result.own_check
    say("Simulated models: answers, prices and latencies are not those of real models.", bold=True)
    say(
        f"Profiled {sum(profile.counts):,} (request, path) cells of {len(result.training)} training requests for "
        f"{usd(profile.spent_usd)}: {percent(profile.coverage)} of the cost of all "
        f"{oracle_stop.annotated.trie.n_nodes:,} paths."
    )
    echo()
    say("1. Plans from this sample", bold=True)
    _show_plans(result)
    say(f"2. {len(result.held_out)} held-out requests served through the LangGraph app", bold=True)
    say("As in the VineLM paper, a request leaves the repair loop when its answer is right (oracle stop).")
    for compared in oracle_stop.verdict.results:
        show_comparison(compared.comparison)
    show_each_model(oracle_stop.verdict.results[0].comparison)
    say("3. The same requests replayed with the workflow's own check", bold=True)
    say(stop_note(result.held_out_table))
    for line in verdict_lines(own_check.verdict):
        say(line, indent="  ", hanging=2)
    echo()
    say(f"Verdict. {demo_headline(result)}", bold=True)
    for line in verdict_lines(oracle_stop.verdict):
        say(line, indent="  ", hanging=2)
    say(own_check_line(own_check.verdict), bold=True)
    say(interval_note(oracle_stop.verdict))
    echo(f"\nReport: {page}")


def _show_plans(result: DemoResult) -> None:
    from vinelm.cli.console import show_table
    from vinelm.evaluation import NAMES, Plans, path_text
    from vinelm.reports import objective_words, percent, seconds, usd

    plans = Plans(result.oracle_stop.annotated)
    for compared in result.oracle_stop.verdict.results:
        rows = []
        for role, name in NAMES.items():
            found = plans.decision(compared.comparison.objective, role)
            figures = (percent(found.accuracy), usd(found.path_cost_usd), seconds(found.path_latency_s))
            rows.append((name, *figures, path_text(plans.trie, found.target)))
        columns = ("policy", "accuracy", "cost", "latency", "<plan")
        show_table(objective_words(compared.comparison.objective), columns, rows)


def _print_json(result: DemoResult, page: Path) -> None:
    from vinelm.cli.console import print_json
    from vinelm.demo import demo_headline, provenance
    from vinelm.reports import verdict_headline

    print_json(
        {
            "report": str(page),
            "is_simulated": True,
            "verdict": demo_headline(result),
            "objectives": [result_facts(compared) for compared in result.oracle_stop.verdict.results],
            "own_check_replay": {
                "verdict": verdict_headline(result.own_check.verdict),
                "objectives": [result_facts(compared) for compared in result.own_check.verdict.results],
            },
            "provenance": dict(provenance(result)),
        }
    )

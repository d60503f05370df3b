"""``vinelm demo``: a tour of VineLM on bundled requests and simulated models."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo
from vinelm.cli.options import dataset_option, limit_option, output_options, seed_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vinelm.demo import DemoResult
    from vinelm.evaluation import ComparisonResult, PolicyComparison
    from vinelm.recorded_table import RecordedTable

WORKFLOW = "nl2sql"


@click.command("demo", short_help="Tour on simulated models: no API keys, no network, under a minute.")
@click.option(
    "--output-dir", type=click.Path(path_type=Path), default=Path("runs/demo"), show_default=True, help="Folder for all files."
)
@click.option(
    "--preset", default="paper", show_default=True, metavar="NAME", help="Simulated models: paper, paper-2, one-wins."
)
@click.option(
    "--coverage", type=float, default=0.02, show_default=True, help="Fraction of the training split's cost to profile."
)
@dataset_option
@seed_option
@limit_option
@output_options
def command(*, output_dir: Path, as_json: bool, quiet: bool, coverage: float, seed: int, **data: Any) -> None:
    """Profile, estimate, plan, serve and report on NL2SQL: no API keys, no network, under a minute.

    Simulated models write SQL, which is really executed. The demo profiles a sample of a training split, plans for three
    objectives, serves held-out requests through the LangGraph app under VineLM, the best static plan and every single model,
    and compares them. Writes report.html, demo.db and one .vine file per stop rule; replaces those of an earlier demo.

    Example: vinelm demo --seed 1 --output-dir runs/demo
    """
    from vinelm.cli.console import progress
    from vinelm.cli.inputs import load_inputs
    from vinelm.demo import DemoSettings, demo_page, run_demo
    from vinelm.errors import ConfigError
    from vinelm.reports import write_page

    if not 0.0 < coverage <= 1.0:
        raise ConfigError(f"--coverage is {coverage}: it must be a fraction in (0, 1]")
    with progress(quiet=quiet) as start:
        inputs = load_inputs(WORKFLOW, seed=seed, **data)
        settings = DemoSettings(
            workflow=inputs.workflow, catalog=inputs.catalog, backends=inputs.backends, output_dir=output_dir, seed=seed,
            coverage=coverage, recorded_table=partial(_recorded_table, seed=seed, **data),
        )  # fmt: skip
        result = run_demo(settings, start)
    page = write_page(demo_page(result), output_dir / "report.html")
    if as_json:
        _print_json(result, page)
    else:
        _show(result, page)


def _recorded_table(request_ids: Sequence[str], *, seed: int, **data: Any) -> RecordedTable:
    """Compute the complete table of these requests, in a process that loads the same inputs again."""
    from vinelm.cli.inputs import load_inputs
    from vinelm.workflows.nl2sql import exact_table

    inputs = load_inputs(WORKFLOW, seed=seed, **data)
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
        _show_comparison(compared.comparison)
    _show_each_model(oracle_stop.verdict.results[0].comparison)
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


def _show_comparison(comparison: PolicyComparison) -> None:
    """Show VineLM, the baselines and the best single model in hindsight: estimated accuracy, and results as served."""
    from vinelm.cli.console import show_table
    from vinelm.reports import objective_words, percent, seconds, usd

    cap, best_single_in_hindsight = comparison.objective.max_latency_s, comparison.best_single_in_hindsight
    hindsight = (replace(best_single_in_hindsight, policy=f"hindsight: {best_single_in_hindsight.policy}"),)
    rows = []
    for run in (comparison.vinelm, comparison.static, comparison.single, *hindsight):
        right = float(run.utility(comparison.objective).mean()) if cap is not None else run.accuracy
        figures = (percent(run.expected_accuracy), percent(right), usd(run.mean_cost_usd), seconds(run.mean_latency_s))
        rows.append((run.policy, *figures))
    right_name = "right in time" if cap is not None else "accuracy"
    columns = ("policy", "estimate", right_name, "cost", "latency")
    show_table(objective_words(comparison.objective), columns, rows)


def _show_each_model(comparison: PolicyComparison) -> None:
    from vinelm.cli.console import show_table
    from vinelm.demo import run_cells
    from vinelm.objective import Objective

    rows = [run_cells(run, Objective(maximize="accuracy"))[:6] for run in comparison.others]
    columns = ("model", "estimate", "accuracy", "95 % interval", "cost", "latency")
    show_table("Every single model, served", columns, rows)


def _print_json(result: DemoResult, page: Path) -> None:
    from vinelm.cli.console import print_json
    from vinelm.demo import demo_headline, provenance
    from vinelm.reports import verdict_headline

    print_json(
        {
            "report": str(page),
            "is_simulated": True,
            "verdict": demo_headline(result),
            "objectives": [_result_facts(compared) for compared in result.oracle_stop.verdict.results],
            "own_check_replay": {
                "verdict": verdict_headline(result.own_check.verdict),
                "objectives": [_result_facts(compared) for compared in result.own_check.verdict.results],
            },
            "provenance": dict(provenance(result)),
        }
    )


def _result_facts(compared: ComparisonResult) -> dict[str, Any]:
    from vinelm.demo import comparison_runs
    from vinelm.reports import advice_text

    comparison = compared.comparison
    return {
        "objective": comparison.objective.to_dict(),
        "advice": advice_text(compared),
        "comparisons": [
            {
                "against": found.rival.policy,
                "outcome": found.outcome,
                "difference": found.difference.value,
                "low": found.difference.low,
                "high": found.difference.high,
            }
            for found in (compared.static, compared.single)
        ],
        "runs": [
            {
                "policy": run.policy,
                "plan": run.plan,
                "accuracy": run.accuracy,
                "cost_usd": run.mean_cost_usd,
                "latency_s": run.mean_latency_s,
            }
            for run, _ in comparison_runs(comparison)
        ],
    }

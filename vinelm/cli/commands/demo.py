"""``vinelm demo``: the whole idea in a minute, on bundled requests and simulated models."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.options import dataset_option, limit_option, output_options, seed_option

if TYPE_CHECKING:
    from vinelm.demo import DemoResult
    from vinelm.evaluation import ComparisonResult, PolicyComparison


@click.command("demo", short_help="The whole idea in a minute: no keys, no network.")
@click.option(
    "--output-dir", type=click.Path(path_type=Path), default=Path("runs/demo"), show_default=True, help="Where files go."
)
@click.option(
    "--preset", default="paper", show_default=True, metavar="NAME", help="Simulated models: paper, paper-2, one-wins."
)
@click.option("--coverage", type=float, default=0.02, show_default=True, help="Share of the training split's cost to profile.")
@dataset_option
@seed_option
@limit_option
@output_options
def command(*, output_dir: Path, as_json: bool, quiet: bool, coverage: float, seed: int, **data: Any) -> None:
    """Profile, estimate, plan, serve and report on NL2SQL: no keys, no network, under a minute.

    Simulated models write SQL, which is really executed. Profiles a sample of a training split, plans for three objectives,
    serves held-out requests through the LangGraph app under VineLM, the best static plan and every single model, and ends
    with a plain verdict. Writes report.html, demo.db and a .vine file per stop rule, replacing those of an
    earlier demo.

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
        load = partial(load_inputs, "nl2sql", seed=seed, **data)
        inputs = load()
        settings = DemoSettings(
            workflow=inputs.workflow, catalog=inputs.catalog, backends=inputs.backends, load=load, output_dir=output_dir,
            seed=seed, coverage=coverage,
        )  # fmt: skip
        result = run_demo(settings, start)
    page = write_page(demo_page(result), output_dir / "report.html")
    if as_json:
        _print_json(result, page)
    else:
        _show(result, page)


def _show(result: DemoResult, page: Path) -> None:
    from vinelm.cli.console import say
    from vinelm.demo import headline, interval_note, own_check_line, stop_note
    from vinelm.reports import percent, usd, verdict_lines

    profile, perfect, own = result.profiled.result, result.perfect, result.own
    say("Simulated models: answers, prices and latencies are not those of real ones.", bold=True)
    say(
        f"Profiled {sum(profile.counts):,} cells of {len(result.training)} training requests for {usd(profile.spent_usd)}: "
        f"{percent(profile.coverage)} of the cost of all {perfect.annotated.trie.n_nodes:,} paths."
    )
    click.echo()
    say("1. The plans, from that sample alone", bold=True)
    _show_plans(result)
    say(f"2. Served: {len(result.held_out)} held-out requests through the LangGraph app", bold=True)
    say("As in the paper, a request leaves the repair loop when its answer is right.")
    for ruling in perfect.verdict.rulings:
        _show_contest(ruling.contest)
    _show_each_model(perfect.verdict.rulings[0].contest)
    say("3. The same with the workflow's own check, replayed", bold=True)
    say(stop_note(result.held_out_table))
    for line in verdict_lines(own.verdict):
        say(line, indent="  ", hanging=2)
    click.echo()
    say(f"Verdict: {headline(result)}", bold=True)
    for line in verdict_lines(perfect.verdict):
        say(line, indent="  ", hanging=2)
    say(own_check_line(own.verdict), bold=True)
    say(interval_note(perfect.verdict))
    click.echo(f"\nReport: {page}")


def _show_plans(result: DemoResult) -> None:
    from vinelm.cli.console import show_table
    from vinelm.evaluation import NAMES, Plans, path_text
    from vinelm.reports import objective_words, percent, seconds, usd

    plans = Plans(result.perfect.annotated)
    for ruling in result.perfect.verdict.rulings:
        rows = []
        for role, name in NAMES.items():
            found = plans.decision(ruling.contest.objective, role)
            figures = (percent(found.accuracy), usd(found.path_cost_usd), seconds(found.path_latency_s))
            rows.append((name, *figures, path_text(plans.trie, found.target)))
        columns = ("policy", "accuracy", "cost", "latency", "<plan")
        show_table(objective_words(ruling.contest.objective), columns, rows)


def _show_contest(contest: PolicyComparison) -> None:
    """VineLM and its rivals, as promised and as served; and the single model that turned out best."""
    from vinelm.cli.console import show_table
    from vinelm.reports import objective_words, percent, seconds, usd

    cap, best_single_in_hindsight = contest.objective.max_latency_s, contest.best_single_in_hindsight
    hindsight = (replace(best_single_in_hindsight, policy=f"hindsight: {best_single_in_hindsight.policy}"),)
    rows = []
    for run in (contest.vinelm, contest.static, contest.single, *hindsight):
        right = float(run.worth(contest.objective).mean()) if cap is not None else run.accuracy
        figures = (percent(run.expected_accuracy), percent(right), usd(run.mean_cost_usd), seconds(run.mean_latency_s))
        rows.append((run.policy, *figures))
    right_name = "right in time" if cap is not None else "accuracy"
    columns = ("policy", "expected", right_name, "cost", "latency")
    show_table(objective_words(contest.objective), columns, rows)


def _show_each_model(contest: PolicyComparison) -> None:
    from vinelm.cli.console import show_table
    from vinelm.demo import run_cells
    from vinelm.objective import Objective

    rows = [run_cells(run, Objective(maximize="accuracy"))[:6] for run in contest.others]
    columns = ("one model throughout", "expected", "accuracy", "95 % interval", "cost", "latency")
    show_table("Each single model, served", columns, rows)


def _print_json(result: DemoResult, page: Path) -> None:
    from vinelm.cli.console import print_json
    from vinelm.demo import headline, provenance
    from vinelm.reports import verdict_headline

    print_json(
        {
            "report": str(page),
            "is_simulated": True,
            "verdict": headline(result),
            "objectives": [_ruled(ruling) for ruling in result.perfect.verdict.rulings],
            "own_check_replay": {
                "verdict": verdict_headline(result.own.verdict),
                "objectives": [_ruled(ruling) for ruling in result.own.verdict.rulings],
            },
            "provenance": dict(provenance(result)),
        }
    )


def _ruled(ruling: ComparisonResult) -> dict[str, Any]:
    from vinelm.demo import contest_runs
    from vinelm.reports import advice_text

    contest = ruling.contest
    return {
        "objective": contest.objective.to_dict(),
        "advice": advice_text(ruling),
        "comparisons": [
            {
                "against": found.rival.policy,
                "outcome": found.outcome,
                "difference": found.difference.value,
                "low": found.difference.low,
                "high": found.difference.high,
            }
            for found in (ruling.static, ruling.single)
        ],
        "runs": [
            {
                "policy": run.policy,
                "plan": run.plan,
                "accuracy": run.accuracy,
                "cost_usd": run.mean_cost_usd,
                "latency_s": run.mean_latency_s,
            }
            for run, _ in contest_runs(contest)
        ],
    }

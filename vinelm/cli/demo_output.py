"""What the demos print: results as served or replayed, and their JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vinelm.cli.console import echo

if TYPE_CHECKING:
    from vinelm.controller import Decision
    from vinelm.demo import DemoResult
    from vinelm.evaluation.verdicts.budget_sweep import SweepVerdict
    from vinelm.evaluation.verdicts.verdict import ComparisonResult, PolicyComparison, Verdict


def show_comparison(comparison: PolicyComparison) -> None:
    """Show VineLM, the baselines and the best single model in hindsight: estimated accuracy, and results."""
    from vinelm.cli.console import show_table
    from vinelm.reports import objective_words, percent, seconds, usd

    cap, best_single_in_hindsight = comparison.objective.max_latency_s, comparison.best_single_in_hindsight
    hindsight = (replace(best_single_in_hindsight, policy=f"hindsight: {best_single_in_hindsight.policy}"),)
    rows = []
    paths = () if comparison.paths is None else (comparison.paths,)
    for run in (comparison.vinelm, *paths, comparison.static, comparison.single, *hindsight):
        right = float(run.utility(comparison.objective).mean()) if cap is not None else run.accuracy
        figures = (percent(run.expected_accuracy), percent(right), usd(run.mean_cost_usd), seconds(run.mean_latency_s))
        rows.append((run.policy, *figures))
    right_name = "right in time" if cap is not None else "accuracy"
    columns = ("policy", "estimate", right_name, "cost", "latency")
    show_table(objective_words(comparison.objective), columns, rows)


def show_each_model(comparison: PolicyComparison) -> None:
    """Show every single model, run to the last invocation."""
    from vinelm.cli.console import show_table
    from vinelm.demo import run_cells
    from vinelm.objective import Objective

    rows = [run_cells(run, Objective(maximize="accuracy"))[:6] for run in comparison.others]
    columns = ("model", "estimate", "accuracy", "95 % interval", "cost", "latency")
    show_table("Every single model", columns, rows)


def result_facts(compared: ComparisonResult) -> dict[str, Any]:
    """Return one objective's results as plain JSON types."""
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


def show_sweep(sweep: SweepVerdict) -> None:
    """Show each policy's mean accuracy over the budgets, and VineLM's difference from it."""
    from vinelm.cli.console import show_table
    from vinelm.reports import SWEEP_COLUMNS, budgets_words, sweep_rows

    show_table(f"Mean over {budgets_words(sweep)}", SWEEP_COLUMNS, [cells for _, cells in sweep_rows(sweep)])


def sweep_facts(sweep: SweepVerdict) -> dict[str, Any]:
    """Return the verdict over a sweep as plain JSON types: accuracies and differences are fractions."""
    pairs = {"static": sweep.static, "single": sweep.single, "hindsight": sweep.hindsight, **sweep.others}
    return {
        "caps_usd": list(sweep.caps),
        "accuracy": sweep.accuracy,
        "is_gain": sweep.is_gain,
        "comparisons": [
            {
                "against": role,
                "accuracy": pair.accuracy,
                "outcome": pair.outcome,
                "difference": pair.difference.value,
                "low": pair.difference.low,
                "high": pair.difference.high,
            }
            for role, pair in pairs.items()
        ],
    }


def show_demo(result: DemoResult) -> None:
    """Print what was profiled and the verdict: a screen of 80 columns and 24 lines."""
    from vinelm.cli.console import say
    from vinelm.demo import demo_headline, oracle_line, sweep_findings

    own = result.own_check.verdict
    _show_profile(result)
    say(f"Verdict. {demo_headline(result)}", bold=True)
    for line in sweep_findings(own):
        say(line, indent="  ", hanging=2)
    show_advice(own)
    say(oracle_line(result.oracle_stop.verdict))
    say("In parentheses: 95 % intervals.")


def show_advice(verdict: Verdict) -> None:
    """Print what to use for each objective, a line or two each."""
    from vinelm.cli.console import say
    from vinelm.reports import objective_words, short_advice

    for compared in verdict.results:
        words = objective_words(compared.comparison.objective)
        say(f"{words}: {short_advice(compared)}.", indent="  ", hanging=2)


def show_page(page: Path, *, is_opened: bool) -> None:
    """Print where the report is."""
    echo(f"\nReport: {page}{' (opened in the browser)' if is_opened else ''}")


def _show_profile(result: DemoResult) -> None:
    from vinelm.cli.console import say
    from vinelm.reports import percent, usd

    profile = result.profiled.result
    say("Simulated models: answers, prices and latencies are not those of real models.", bold=True)
    say(
        f"Profiled {sum(profile.counts):,} (request, path) cells of {len(result.table.request_ids)} requests for "
        f"{usd(profile.spent_usd)}: {percent(profile.coverage)} of the cost of all {result.table.trie.n_nodes:,} paths. Each "
        "half of the requests is answered by plans made from the rows of the other half."
    )
    echo()


def show_details(result: DemoResult) -> None:
    """Print the plans, the results under both stop rules and the verdict; the workflow's own check comes first."""
    from vinelm.cli.console import say
    from vinelm.demo import demo_headline, interval_note, oracle_line, stop_note, sweep_findings
    from vinelm.reports import verdict_lines

    own, oracle = result.own_check.verdict, result.oracle_stop.verdict
    n_requests = len(result.table.request_ids)
    _show_profile(result)
    say("1. With the workflow's own check", bold=True)
    say(stop_note(result.table))
    say(
        "VineLM therefore plans by what a request shows, too: the rows that its query found, and whether two queries agree. "
        f"All {n_requests} requests were served through the LangGraph app."
    )
    echo()
    _show_plans(result)
    for compared in own.results:
        show_comparison(compared.comparison)
    show_each_model(own.results[0].comparison)
    if own.sweep is not None:
        show_sweep(own.sweep)
    say("2. With an oracle that ends each request once it is right (the paper's case)", bold=True)
    say("Labels are needed for that. Plans are paths, replayed on the complete table of outcomes.")
    for line in (*sweep_findings(oracle), *verdict_lines(oracle)):
        say(line, indent="  ", hanging=2)
    echo()
    say(f"Verdict. {demo_headline(result)}", bold=True)
    for line in (*sweep_findings(own), *verdict_lines(own)):
        say(line, indent="  ", hanging=2)
    say(oracle_line(oracle), bold=True)
    say(interval_note(own))


def _show_plans(result: DemoResult) -> None:
    """Show the plans made from one half of the rows."""
    from vinelm.cli.console import say, show_table
    from vinelm.evaluation.contingent.plans import ContingentPlans
    from vinelm.evaluation.policy_plans import NAMES, PATHS, path_text
    from vinelm.reports import objective_words, percent, seconds, usd

    say("Plans from the rows of one half, with their estimates; a model after “or” depends on what is shown:")
    half = result.own_check.halves[0]
    assert half.annotated.signals is not None
    by_signals = ContingentPlans(half.annotated.signals)
    for compared in result.own_check.verdict.results:
        objective = compared.comparison.objective
        best = by_signals.decision(objective)
        planned: list[tuple[str, Decision, str]] = [(NAMES["vinelm"], best, by_signals.plan_text(best))]
        for role, name in {**NAMES, "vinelm": PATHS}.items():
            found = half.plans.decision(objective, role)
            planned.append((name, found, path_text(half.plans.trie, found.target)))
        rows = [(n, percent(d.accuracy), usd(d.path_cost_usd), seconds(d.path_latency_s), text) for n, d, text in planned]
        columns = ("policy", "accuracy", "cost", "longest", "<plan")
        show_table(objective_words(objective), columns, rows)


def demo_facts(result: DemoResult, page: Path) -> dict[str, Any]:
    """Return the results of a demo as plain JSON types."""
    from vinelm.demo import demo_headline, provenance

    return {
        "report": str(page),
        "is_simulated": True,
        "verdict": demo_headline(result),
        **_verdict_facts(result.own_check.verdict),
        "oracle_stop": _verdict_facts(result.oracle_stop.verdict),
        "provenance": dict(provenance(result)),
    }


def _verdict_facts(verdict: Verdict) -> dict[str, Any]:
    from vinelm.reports import verdict_headline

    return {
        "headline": verdict_headline(verdict),
        "sweep": None if verdict.sweep is None else sweep_facts(verdict.sweep),
        "objectives": [result_facts(compared) for compared in verdict.results],
    }

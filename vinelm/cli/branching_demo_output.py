"""What the demo of a workflow that branches prints: its arms, contingent plans and the results as served, and their JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vinelm.cli.console import echo
from vinelm.cli.demo_output import result_facts, show_advice, show_comparison, show_each_model

if TYPE_CHECKING:
    from vinelm.demo import BranchingDemoResult


def show_branching(result: BranchingDemoResult) -> None:
    """Print what was profiled and the verdict: a screen of 80 columns and 24 lines."""
    from vinelm.cli.console import say
    from vinelm.reports import verdict_headline

    _show_profile(result)
    say(f"{len(result.held_out)} held-out tickets were served through the LangGraph app.")
    say(f"Verdict. {verdict_headline(result.verdict)}", bold=True)
    show_advice(result.verdict)


def _show_profile(result: BranchingDemoResult) -> None:
    from vinelm.cli.console import say
    from vinelm.reports import percent, template_words, usd

    profile, annotated = result.profiled.result, result.annotated
    say("Simulated models: answers, prices and latencies are not those of real models.", bold=True)
    say(f"The workflow branches: {template_words(annotated.template)}.")
    say(
        f"Profiled {sum(profile.counts):,} cells of {len(result.training)} training tickets for {usd(profile.spent_usd)}: "
        f"{percent(profile.coverage)} of the cost of all {annotated.trie.n_nodes:,} histories."
    )
    echo()


def show_branching_details(result: BranchingDemoResult) -> None:
    """Print the plans, the results as served and the verdict of a demo of a workflow that branches."""
    from vinelm.cli.arms_table import show_arms
    from vinelm.cli.console import say
    from vinelm.demo import interval_note
    from vinelm.reports import verdict_headline, verdict_lines

    verdict = result.verdict
    _show_profile(result)
    show_arms(result.annotated)
    say("1. Plans from this sample", bold=True)
    _show_contingent_plans(result)
    say(f"2. {len(result.held_out)} held-out tickets served through the LangGraph app", bold=True)
    for compared in verdict.results:
        show_comparison(compared.comparison)
    show_each_model(verdict.results[0].comparison)
    say(f"Verdict. {verdict_headline(verdict)}", bold=True)
    for line in verdict_lines(verdict):
        say(line, indent="  ", hanging=2)
    say(interval_note(verdict))


def _show_contingent_plans(result: BranchingDemoResult) -> None:
    from vinelm.cli.console import show_table
    from vinelm.cli.contingent_output import show_tree
    from vinelm.evaluation.contingent.plans import ContingentPlans
    from vinelm.reports import objective_words, percent, seconds, usd

    plans = ContingentPlans(result.annotated)
    for compared in result.verdict.results:
        objective = compared.comparison.objective
        planned = plans.compare(objective)
        rows = []
        for item in planned:
            found = item.decision
            figures = (percent(found.accuracy), usd(found.path_cost_usd), seconds(found.path_latency_s))
            rows.append((item.policy, *figures, item.plan))
        show_table(objective_words(objective), ("policy", "accuracy", "cost", "longest", "<plan"), rows)
        show_tree(planned[0].decision, "VineLM's plan")


def branching_facts(result: BranchingDemoResult, page: Path) -> dict[str, Any]:
    """Return the results of a demo of a workflow that branches as plain JSON types."""
    from vinelm.cli.arms_table import arm_facts
    from vinelm.demo import branching_provenance
    from vinelm.reports import verdict_headline

    return {
        "report": str(page),
        "is_simulated": True,
        "verdict": verdict_headline(result.verdict),
        "objectives": [result_facts(compared) for compared in result.verdict.results],
        "arms": arm_facts(result.annotated),
        "provenance": dict(branching_provenance(result)),
    }

"""The report of a demo of a workflow that branches: the verdict, contingent plans and their arms."""

from __future__ import annotations

from vinelm.demo.page import comparison_tables, interval_note, profile_section
from vinelm.demo.result import BranchingDemoResult
from vinelm.demo.tables import summary_table
from vinelm.evaluation.contingent.plans import ContingentPlans
from vinelm.reports import (
    Report,
    Section,
    arm_tables,
    catalog_facts,
    frontier_section,
    percent,
    plans_section,
    simulated_line,
    stage_table,
    template_words,
    usd,
    verdict_headline,
    verdict_lines,
    version_facts,
    workflow_facts,
)

_SERVED_INTRO = (
    "Every row is the same LangGraph application answering the same held-out requests, none of which was profiled; its own "
    "edges choose the arms and end the requests. VineLM, the best static plan (a model for each stage) and the best single "
    "model were planned from the same trie by the same criterion; “in hindsight” is the single model that did best on these "
    "requests."
)
_PROFILE_INTRO = "Each request went the way that the application took; the models of each stage were drawn in advance."
_ARMS_INTRO = (
    "Which stage comes next is the application's choice. How often it takes each way depends on the model that ran before, and "
    "so does whether that was right."
)


def branching_page(result: BranchingDemoResult) -> Report:
    """Build the report of a demo of a workflow that branches."""
    settings, verdict, annotated = result.settings, result.verdict, result.annotated
    plans = ContingentPlans(annotated)
    objectives = [compared.comparison.objective for compared in verdict.results]
    return Report(
        title=f"VineLM on {settings.workflow.name}",
        subtitle=f"{len(result.held_out)} held-out requests served; {percent(result.profiled.result.coverage)} of the cost of "
        f"{len(result.training)} others profiled; {len(settings.catalog)} models, {annotated.trie.n_nodes:,} histories of "
        f"{template_words(annotated.template)}",
        headline=verdict_headline(verdict),
        is_gain=bool(verdict.gains),
        summary=summary_table(verdict),
        findings=(interval_note(verdict),),
        sections=(
            Section(
                title="Held-out requests, served", intro=_SERVED_INTRO, findings=verdict_lines(verdict),
                parts=comparison_tables(verdict),
            ),
            plans_section(plans, objectives),
            frontier_section(plans),
            Section(
                title="What the application does", intro=_ARMS_INTRO, parts=(*arm_tables(annotated), stage_table(annotated)),
            ),
            profile_section(result, _PROFILE_INTRO),
        ),
        provenance=branching_provenance(result),
        simulated=simulated_line(settings.catalog, settings.backends, "What they write is really looked up and executed."),
    )  # fmt: skip


def branching_provenance(result: BranchingDemoResult) -> tuple[tuple[str, str], ...]:
    """Return the provenance: dataset, split, coverage, seed, models, prices and versions."""
    settings, profile = result.settings, result.profiled.result
    counts = ", ".join(f"depth {depth}: {count:,}" for depth, count in enumerate(profile.counts, start=1))
    return (
        *workflow_facts(settings.workflow),
        ("Split", f"{len(result.training)} training, {len(result.held_out)} held out, by request id and seed"),
        ("Seed", str(settings.seed)),
        ("Profiled rows", counts),
        ("Coverage", f"{percent(profile.coverage)} of {usd(profile.exhaustive_usd)} (every reachable cell once, estimated)"),
        ("Estimator", str(result.annotated.meta["estimator"])),
        *catalog_facts(settings.catalog),
        *version_facts(),
    )

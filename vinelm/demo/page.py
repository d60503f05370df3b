"""The report of a demo: the verdict, then tables and charts."""

from __future__ import annotations

from vinelm.demo.oracle_stop import COVERAGE
from vinelm.demo.result import BranchingDemoResult, DemoResult, StopRuleResult
from vinelm.demo.tables import comparison_table, singles_table, summary_table
from vinelm.evaluation.verdicts.verdict import Verdict
from vinelm.recorded_table import RecordedTable
from vinelm.reports import (
    Chart,
    Report,
    Row,
    Section,
    Table,
    catalog_facts,
    cost_chart,
    frontier_table,
    latency_chart,
    percent,
    price_table,
    simulated_line,
    sweep_line,
    sweep_table,
    usd,
    verdict_headline,
    verdict_lines,
    version_facts,
    workflow_facts,
)


def demo_page(result: DemoResult) -> Report:
    """Build the report of a demo: the workflow's own check first, then the oracle stop."""
    own_check, oracle_stop, settings = result.own_check, result.oracle_stop.verdict, result.settings
    profile, trie = result.profiled.result, result.table.trie
    return Report(
        title=f"VineLM on {settings.workflow.name}",
        subtitle=f"{len(result.table.request_ids)} requests served, each by plans made from the rows of the other half; "
        f"{percent(profile.coverage)} of the cost of everything profiled; {len(settings.catalog)} models, "
        f"{trie.n_nodes:,} paths",
        headline=demo_headline(result),
        is_gain=own_check.verdict.is_gain,
        summary=summary_table(own_check.verdict),
        findings=(*sweep_findings(own_check.verdict), oracle_line(oracle_stop), interval_note(own_check.verdict)),
        sections=(_own_check(result), profile_section(result, _PROFILE_INTRO), _oracle_stop(result)),
        provenance=provenance(result),
        simulated=simulated_line(settings.catalog, settings.backends, "Their answers are really executed."),
    )


_PROFILE_INTRO = (
    "Each request went as far as the workflow's own check let it; some of the paths go on below an answer that the check had "
    "passed, so that a second opinion can be learned about."
)


def demo_headline(result: DemoResult) -> str:
    """Summarise the demo in one sentence, naming the stop rule under which it holds."""
    return f"With the workflow's own check: {_uncapitalised(verdict_headline(result.own_check.verdict))}"


def oracle_line(verdict: Verdict) -> str:
    """Summarise the verdict under the oracle stop."""
    return (
        f"With an oracle that ends each request once it is right, as in the paper: {_uncapitalised(verdict_headline(verdict))}"
    )


def sweep_findings(verdict: Verdict) -> tuple[str, ...]:
    """Return the line about the sweep of budgets, if one was judged."""
    return () if verdict.sweep is None else (sweep_line(verdict.sweep),)


def _uncapitalised(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def interval_note(verdict: Verdict) -> str:
    """Explain the intervals of the verdict."""
    over_all = "" if verdict.sweep is None else "at 95 % for the mean over all budgets, and "
    return (
        f"In parentheses: paired bootstrap intervals over the requests, {over_all}at {100 * verdict.level:.1f} % so that all "
        f"{len(verdict.results)} objectives together have 95 % confidence (Bonferroni). A gain needs an interval that "
        "excludes zero, and no significantly missed bound."
    )


def stop_note(table: RecordedTable) -> str:
    """Describe how the workflow's own check differs from the labels after the first invocation, averaged over the models."""
    first = table.trie.levels[1]
    right, stopped = table.success[:, first], table.stopped[:, first]
    accepted_wrong = float((stopped & ~right).sum() / max(stopped.sum(), 1))
    refused_right = float((right & ~stopped).sum() / max(right.sum(), 1))
    return (
        f"After the first invocation the workflow's own check ends {percent(float(stopped.mean()))} of the requests. "
        f"{percent(accepted_wrong)} of the answers that it accepts are wrong, and a plan over paths returns them. It "
        f"rejects {percent(refused_right)} of the right answers."
    )


def provenance(result: DemoResult) -> tuple[tuple[str, str], ...]:
    """Return the provenance of a demo: dataset, split, coverage, seed, models, prices and versions."""
    settings, profile = result.settings, result.profiled.result
    counts = ", ".join(f"depth {depth}: {count:,}" for depth, count in enumerate(profile.counts, start=1))
    same, total = result.agreed
    first, second = (len(half.judged) for half in result.own_check.halves)
    return (
        *workflow_facts(settings.workflow),
        ("Halves", f"{first} and {second} requests, by request id and seed; each is judged by plans from the other's rows"),
        ("Seed", str(settings.seed)),
        ("Profiled rows", counts),
        (
            "Coverage",
            f"{percent(profile.coverage)} of {usd(profile.exhaustive_usd)} (every reachable cell once, estimated); under the "
            f"oracle stop {percent(COVERAGE)}, looked up in the complete table",
        ),
        ("Estimator", str(result.oracle_stop.halves[0].annotated.meta["estimator"])),
        *catalog_facts(settings.catalog),
        (
            "Served against replayed",
            f"{same:,} of {total:,} requests served by VineLM had exactly the result of their replay",
        ),
        *version_facts(),
    )


def _own_check(result: DemoResult) -> Section:
    found = result.own_check
    assert found.verdict.sweep is not None
    return Section(
        title="With the workflow's own check",
        intro="A service has no labels: a request leaves the repair loop when the workflow's own check accepts its answer. "
        f"{stop_note(result.table)} So VineLM plans by what a request shows, too: whether its query failed, found nothing or "
        "found rows, and whether two queries found the same. It may ask another model although the check has passed, and "
        "return an earlier answer. Its requests were served by the LangGraph application. “VineLM over paths”, the static plan "
        "(one model per stage and a maximum depth) and single models are fixed paths, planned from the same rows and replayed "
        "on the complete table of outcomes, which gives what serving them would give. “In hindsight” is the single model that "
        "did best on these requests.",
        findings=(*sweep_findings(found.verdict), *verdict_lines(found.verdict)),
        parts=(
            sweep_table(found.verdict.sweep),
            *_frontier_parts(found, "own-", _OWN_NOTE),
            *comparison_tables(found.verdict),
        ),
    )


_OWN_NOTE = (
    "A vote asks several models for a first answer and returns the most frequent one; “until two agree” asks in turn. Both "
    "were chosen from the same rows under each budget."
)


def _oracle_stop(result: DemoResult) -> Section:
    found = result.oracle_stop
    assert found.verdict.sweep is not None
    return Section(
        title="With the oracle stop, the paper's special case",
        intro="As in the VineLM paper, a request leaves the repair loop as soon as its answer is right. That needs labels, "
        "which no service has; every answer that is returned early is right, so signals add nothing and plans are paths. Rows "
        f"of {percent(COVERAGE)} of the cost of everything were bought, and all policies replayed, on the complete table of "
        "outcomes. “Fully profiled” plans from the complete table of the other half. The oracle knows the best path of each "
        "request in advance: an upper bound.",
        findings=(verdict_headline(found.verdict), *sweep_findings(found.verdict), *verdict_lines(found.verdict)),
        parts=(sweep_table(found.verdict.sweep), *_frontier_parts(found, "oracle-"), *comparison_tables(found.verdict)),
    )


def comparison_tables(verdict: Verdict) -> tuple[Table, ...]:
    """Return two tables per objective: the compared policies, and every single model (folded)."""
    return tuple(
        table
        for compared in verdict.results
        for table in (comparison_table(compared.comparison, compared), singles_table(compared.comparison))
    )


def _frontier_parts(found: StopRuleResult, prefix: str, note: str = "") -> tuple[Table | Chart, ...]:
    cost, latency = found.frontiers.cost, found.frontiers.latency
    by_cost = (
        cost_chart(f"{prefix}cost", cost, note=note),
        frontier_table("Data of the accuracy–cost frontier", cost, "budget", is_cost=True),
    )
    if not latency:
        return by_cost
    return (
        *by_cost,
        latency_chart(f"{prefix}latency", latency),
        frontier_table("Data of the accuracy–latency frontier", latency, "cap", is_cost=False),
    )


def profile_section(result: DemoResult | BranchingDemoResult, intro: str) -> Section:
    """Return what was profiled: the cost by model, what checkpoints and sampling saved, and the prices."""
    spend, total = result.profiled.spend_by_model, result.profiled.result.spent_usd
    rows = tuple(
        Row(
            cells=(
                name,
                f"{item.rows:,}",
                str(item.failures),
                usd(item.cost_usd),
                percent(item.cost_usd / total if total else 0),
            )
        )
        for name, item in spend.items()
    )
    saved = result.profiled.result
    saving = (
        f"{usd(saved.spent_usd)} spent: {saved.exhaustive_usd / saved.spent_usd:.0f} times less than executing every reachable "
        f"cell once, {saved.naive_usd / saved.spent_usd:.0f} times less than executing every path from the start (estimated)."
        if saved.spent_usd
        else ""
    )
    bought = Table(title="Cost of the profile", columns=("model", "rows", "failed", "cost", "share"), rows=rows, note=saving)
    return Section(title="What was profiled", intro=intro, parts=(bought, price_table(result.settings.catalog)))

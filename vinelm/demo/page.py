"""The report of a demo: the verdict, then tables and charts."""

from __future__ import annotations

from collections.abc import Iterable

from vinelm.demo.result import BranchingDemoResult, DemoResult, FullProfilePlans, StopRuleResult
from vinelm.demo.tables import comparison_table, plain_runs, singles_table, summary_table
from vinelm.evaluation import NAMES, Verdict
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
    objective_words,
    percent,
    price_table,
    simulated_line,
    usd,
    verdict_headline,
    verdict_lines,
    version_facts,
    workflow_facts,
)


def demo_page(result: DemoResult) -> Report:
    """Build the report of a demo."""
    oracle_stop, own_check, settings = result.oracle_stop.verdict, result.own_check.verdict, result.settings
    return Report(
        title=f"VineLM on {settings.workflow.name}",
        subtitle=f"{len(result.held_out)} held-out requests served; {percent(result.profiled.result.coverage)} of the cost of "
        f"{len(result.training)} others profiled; {len(settings.catalog)} models, "
        f"{result.held_out_table.trie.n_nodes:,} paths",
        headline=demo_headline(result),
        is_gain=bool(oracle_stop.gains),
        summary=summary_table(oracle_stop),
        findings=(own_check_line(own_check), interval_note(oracle_stop)),
        sections=(
            _served(oracle_stop),
            _frontiers(result.oracle_stop, "", "Frontiers", _FRONTIER_INTRO),
            _full(result.oracle_stop.full),
            profile_section(result, _PROFILE_INTRO),
            *_own_check(result),
        ),
        provenance=provenance(result),
        simulated=simulated_line(settings.catalog, settings.backends, "Their answers are really executed."),
    )


_PROFILE_INTRO = (
    "Labels decided how far each request went, and every row also records whether the workflow's own check accepted the "
    "answer: one profile serves both stop rules."
)
_FRONTIER_INTRO = (
    "The same policies over a range of budgets, replayed on the complete table of every held-out request's outcome on every "
    "path. The oracle knows the best path of each request in advance: an upper bound that no policy can exceed."
)


def demo_headline(result: DemoResult) -> str:
    """Summarise the demo in one sentence, naming the stop rule under which it holds."""
    return f"With the oracle stop: {_uncapitalised(verdict_headline(result.oracle_stop.verdict))}"


def own_check_line(own: Verdict) -> str:
    """Summarise the verdict under the workflow's own check."""
    return f"With the workflow's own check, which can also accept wrong answers: {_uncapitalised(verdict_headline(own))}"


def _uncapitalised(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def interval_note(verdict: Verdict) -> str:
    """Explain the intervals of the verdict."""
    return (
        f"In parentheses: paired bootstrap intervals over the held-out requests, at {100 * verdict.level:.1f} % so that all "
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
        f"{percent(accepted_wrong)} of the answers that it accepts are wrong, and no later invocation can repair them. It "
        f"rejects {percent(refused_right)} of the right answers."
    )


def provenance(result: DemoResult) -> tuple[tuple[str, str], ...]:
    """Return the provenance of a demo: dataset, split, coverage, seed, models, prices and versions."""
    settings, profile = result.settings, result.profiled.result
    counts = ", ".join(f"depth {depth}: {count:,}" for depth, count in enumerate(profile.counts, start=1))
    same, total = result.agreed
    return (
        *workflow_facts(settings.workflow),
        ("Split", f"{len(result.training)} training, {len(result.held_out)} held out, by request id and seed"),
        ("Seed", str(settings.seed)),
        ("Profiled rows", counts),
        (
            "Coverage",
            f"{percent(profile.coverage)} of {usd(profile.exhaustive_usd)} (every reachable cell once, estimated)",
        ),
        ("Estimator", str(result.oracle_stop.annotated.meta["estimator"])),
        *catalog_facts(settings.catalog),
        (
            "Served against replayed",
            f"{same:,} of {total:,} requests served by VineLM had exactly the result of their replay",
        ),
        *version_facts(),
    )


def _served(verdict: Verdict) -> Section:
    return Section(
        title="Held-out requests, served",
        intro="Every row is the same LangGraph application answering the same held-out requests, none of which was profiled. "
        "As in the VineLM paper, a request leaves the repair loop when its answer is right (oracle stop). That needs labels; a "
        "production service needs a check of its own, which the last section uses. VineLM, the static plan (one model per "
        "stage and a maximum depth) and the best single model were planned with the same sampled observations; “in hindsight” "
        "is the single model that did best on these held-out requests.",
        findings=verdict_lines(verdict),
        parts=comparison_tables(verdict),
    )


def comparison_tables(verdict: Verdict) -> tuple[Table, ...]:
    """Return two tables per objective: the compared policies, and every single model (folded)."""
    return tuple(
        table
        for compared in verdict.results
        for table in (comparison_table(compared.comparison, compared), singles_table(compared.comparison))
    )


def _frontiers(found: StopRuleResult, prefix: str, title: str, intro: str) -> Section:
    return Section(title=title, intro=intro, parts=_frontier_parts(found, prefix))


def _frontier_parts(found: StopRuleResult, prefix: str) -> tuple[Table | Chart, ...]:
    cost, latency = found.frontiers.cost, found.frontiers.latency
    return (
        cost_chart(f"{prefix}cost", cost),
        frontier_table("Data of the accuracy–cost frontier", cost, "budget", is_cost=True),
        latency_chart(f"{prefix}latency", latency),
        frontier_table("Data of the accuracy–latency frontier", latency, "cap", is_cost=False),
    )


def _full(choices: Iterable[FullProfilePlans]) -> Section:
    return Section(
        title="With a complete profile",
        intro="The same policies planned with the complete training table instead of the sample, replayed on the held-out "
        "table. The difference is the loss from sparse profiling. Not part of the verdict.",
        parts=tuple(
            plain_runs(choice.runs, choice.objective, objective_words(choice.objective), _missing(choice)) for choice in choices
        ),
    )


def _missing(choice: FullProfilePlans) -> str:
    roles = {role for _, role in choice.runs}
    gone = [NAMES[role] for role in NAMES if ("full" if role == "vinelm" else role) not in roles]
    return f"With the complete table, no plan meets the bounds for: {', '.join(gone)}." if gone else ""


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


def _own_check(result: DemoResult) -> tuple[Section, ...]:
    own = result.own_check
    section = Section(
        title="With the workflow's own check",
        intro="A production service has no labels: a request leaves the loop when the workflow's own check accepts the answer. "
        "The trie of this stop rule was estimated from the same profile, and the policies were replayed on the complete "
        "held-out table. " + stop_note(result.held_out_table),
        findings=(verdict_headline(own.verdict), *verdict_lines(own.verdict)),
        parts=(*comparison_tables(own.verdict), *_frontier_parts(own, "own-")),
    )
    return (section,)

"""From what a demo found to a page, the verdict first."""

from __future__ import annotations

from collections.abc import Iterable

from vinelm.demo.result import DemoResult, FullChoice, Judged
from vinelm.demo.tables import contest_table, plain_runs, singles_table, summary_table
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
    """The page of a demo."""
    perfect, own, settings = result.perfect.verdict, result.own.verdict, result.settings
    return Report(
        title=f"VineLM on {settings.workflow.name}",
        subtitle=f"{len(result.held_out)} held-out requests served; {percent(result.profiled.result.coverage)} of the cost of "
        f"{len(result.training)} others profiled; {len(settings.catalog)} models, "
        f"{result.held_out_table.trie.n_nodes:,} paths",
        headline=headline(result),
        is_gain=bool(perfect.gains),
        summary=summary_table(perfect),
        findings=(own_check_line(own), interval_note(perfect)),
        sections=(
            _served(perfect),
            _frontiers(result.perfect, "", "Frontiers", _FRONTIER_INTRO),
            _full(result.perfect.full),
            _profile(result),
            *_own_check(result),
        ),
        provenance=provenance(result),
        simulated=simulated_line(settings.catalog, settings.backends, "The SQL they write is really executed."),
    )


_FRONTIER_INTRO = (
    "The same policies over a range of budgets, replayed on the complete table of what every held-out request shows on every "
    "path. The oracle knows for each request which path is best: no control can do better, and none can know it."
)


def headline(result: DemoResult) -> str:
    """What the demo claims, under the stop rule that it holds for."""
    return f"When the loop ends on right answers: {_uncapitalised(verdict_headline(result.perfect.verdict))}"


def own_check_line(own: Verdict) -> str:
    """The verdict under the application's own check, and what that check is."""
    said = _uncapitalised(verdict_headline(own))
    return f"With the app's own check instead (the query ran and returned rows; wrong answers pass it, too): {said}"


def _uncapitalised(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def interval_note(verdict: Verdict) -> str:
    """How the intervals were made."""
    return (
        f"In brackets: paired bootstrap over held-out requests at {100 * verdict.level:.1f} %, so that all "
        f"{len(verdict.rulings)} objectives together stay at 95 %. A gain needs the whole interval on the good side of zero, "
        "and no bound missed by more than chance."
    )


def stop_note(table: RecordedTable) -> str:
    """How far the workflow's own check and the truth differ after the first invocation, every model counted alike."""
    first = table.trie.levels[1]
    right, stopped = table.success[:, first], table.stopped[:, first]
    accepted_wrong = float((stopped & ~right).sum() / max(stopped.sum(), 1))
    refused_right = float((right & ~stopped).sum() / max(right.sum(), 1))
    return (
        f"After the first invocation the workflow's own check ends {percent(float(stopped.mean()))} of the requests. "
        f"{percent(accepted_wrong)} of the answers that it accepts are wrong, and it sends back {percent(refused_right)} of "
        "the right ones: what it accepts, no later model can repair."
    )


def provenance(result: DemoResult) -> tuple[tuple[str, str], ...]:
    """Dataset, coverage, counts, seed, versions, price dates."""
    settings, profile = result.settings, result.profiled.result
    counts = ", ".join(f"depth {depth}: {count:,}" for depth, count in enumerate(profile.counts, start=1))
    same, total = result.agreed
    return (
        *workflow_facts(settings.workflow),
        ("Split", f"{len(result.training)} training, {len(result.held_out)} held out, by request id and seed"),
        ("Seed", str(settings.seed)),
        ("Profiled rows", counts),
        ("Coverage", f"{percent(profile.coverage)} of {usd(profile.exhaustive_usd)} (every reached cell once, estimated)"),
        ("Estimator", str(result.perfect.annotated.meta["estimator"])),
        *catalog_facts(settings.catalog),
        (
            "Served against replayed",
            f"{same:,} of {total:,} requests served by VineLM showed exactly what the complete table says",
        ),
        *version_facts(),
    )


def _served(verdict: Verdict) -> Section:
    return Section(
        title="Held-out requests, served",
        intro="Every row is the same LangGraph application answering the same held-out requests, none of which was profiled. "
        "As in the paper, a request leaves the repair loop when its answer is right (oracle stop): a labelled replay can do "
        "that, a service needs a check of its own; the last section shows the same with such a check. "
        "VineLM, the static plan (one model per stage and a depth cap) and the best single model were chosen from the same "
        "sampled observations; “with hindsight” is the single model that turned out best on these very requests.",
        findings=verdict_lines(verdict),
        parts=_contests(verdict),
    )


def _contests(verdict: Verdict) -> tuple[Table, ...]:
    """Per objective what is judged, and folded below it every single model."""
    return tuple(
        table for ruling in verdict.rulings for table in (contest_table(ruling.contest, ruling), singles_table(ruling.contest))
    )


def _frontiers(judged: Judged, prefix: str, title: str, intro: str) -> Section:
    return Section(title=title, intro=intro, parts=_frontier_parts(judged, prefix))


def _frontier_parts(judged: Judged, prefix: str) -> tuple[Table | Chart, ...]:
    cost, latency = judged.frontiers.cost, judged.frontiers.latency
    return (
        cost_chart(f"{prefix}cost", cost),
        frontier_table("The table behind the accuracy–cost frontier", cost, "budget", is_cost=True),
        latency_chart(f"{prefix}latency", latency),
        frontier_table("The table behind the accuracy–latency frontier", latency, "cap", is_cost=False),
    )


def _full(choices: Iterable[FullChoice]) -> Section:
    return Section(
        title="With everything profiled",
        intro="The same choices made from the complete training table in place of the sample, replayed on the held-out table: "
        "what sparse profiling gave away. Not part of the verdict.",
        parts=tuple(
            plain_runs(choice.runs, choice.objective, objective_words(choice.objective), _missing(choice)) for choice in choices
        ),
    )


def _missing(choice: FullChoice) -> str:
    roles = {role for _, role in choice.runs}
    gone = [NAMES[role] for role in NAMES if ("full" if role == "vinelm" else role) not in roles]
    return f"By the complete table no plan meets the bounds for: {', '.join(gone)}." if gone else ""


def _profile(result: DemoResult) -> Section:
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
        f"{usd(saved.spent_usd)} spent: {saved.exhaustive_usd / saved.spent_usd:.0f} times less than every reached cell once, "
        f"{saved.naive_usd / saved.spent_usd:.0f} times less than every path anew (both estimated)."
        if saved.spent_usd
        else ""
    )
    bought = Table(
        title="What the profile bought", columns=("model", "rows", "failed", "cost", "share"), rows=rows, note=saving
    )
    intro = (
        "Labels decided how far each request went, and every row keeps the verdict of the workflow's own check beside the "
        "truth: one profile serves both stop rules."
    )
    return Section(title="What was profiled", intro=intro, parts=(bought, price_table(result.settings.catalog)))


def _own_check(result: DemoResult) -> tuple[Section, ...]:
    own = result.own
    section = Section(
        title="With the workflow's own check",
        intro="What a service has: a request leaves the loop when its query ran and returned a row. The same profile, "
        "estimated for this stop rule; policies replayed on the complete held-out table. " + stop_note(result.held_out_table),
        findings=(verdict_headline(own.verdict), *verdict_lines(own.verdict)),
        parts=(*_contests(own.verdict), *_frontier_parts(own, "own-")),
    )
    return (section,)

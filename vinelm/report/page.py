"""From evidence to a page: what was served, swept and replayed, with the verdict first."""

from __future__ import annotations

from dataclasses import dataclass

from vinelm.objective import Objective
from vinelm.report.charts import cost_chart, frontier_table, latency_chart
from vinelm.report.content import Report, Role, Section, Table
from vinelm.report.runs import PolicyRun
from vinelm.report.sweep import Frontier
from vinelm.report.tables import contest_table, plain_runs
from vinelm.report.verdict import Verdict
from vinelm.report.words import objective_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontiers:
    """Both sweeps of one stop rule."""

    cost: tuple[Frontier, ...]
    latency: tuple[Frontier, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FullyProfiled:
    """One objective's runs when plans are chosen from the complete training table: shown apart, not judged."""

    objective: Objective
    runs: tuple[tuple[PolicyRun, Role], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that a demo found. ``simulated`` says what was not real (None: nothing); ``profile``: what was bought."""

    title: str
    subtitle: str
    verdict: Verdict
    frontiers: Frontiers
    full: tuple[FullyProfiled, ...]
    oracle: Frontiers | None
    profile: Table
    stop_note: str
    provenance: tuple[tuple[str, str], ...]
    simulated: str | None


def page_of(evidence: Evidence) -> Report:
    """The page of a demo."""
    sections = [_served(evidence), _frontiers(evidence), _full(evidence), _profile(evidence)]
    if evidence.oracle is not None:
        sections.append(_oracle(evidence, evidence.oracle))
    return Report(
        title=evidence.title,
        subtitle=evidence.subtitle,
        headline=evidence.verdict.headline,
        is_gain=bool(evidence.verdict.gains),
        findings=(
            *evidence.verdict.lines,
            f"Intervals: paired bootstrap over held-out requests, {100 * evidence.verdict.level:.1f} % each, so that all "
            f"{len(evidence.verdict.rulings)} objectives together stay at 95 %. A gain needs the whole interval above zero and "
            "bounds kept at least as well as the rival's.",
        ),
        sections=tuple(sections),
        provenance=evidence.provenance,
        simulated=evidence.simulated,
    )


def _served(evidence: Evidence) -> Section:
    return Section(
        title="Held-out requests, served",
        intro="Every row is the same LangGraph application answering the same held-out requests, none of which was profiled. "
        "VineLM, the static plan (one model per stage and a depth cap) and the best single model were all chosen from the "
        "same sampled observations; the other rows run one model throughout, to the last repair.",
        parts=tuple(contest_table(ruling.contest, ruling) for ruling in evidence.verdict.rulings),
    )


def _frontiers(evidence: Evidence) -> Section:
    found = evidence.frontiers
    return Section(
        title="Frontiers under the workflow's own stop",
        intro="The same policies over a range of budgets, replayed on the complete table of what every held-out request "
        "shows on every path. “Planned in hindsight” chooses with the held-out outcomes themselves: a ceiling for fixed "
        "plans, not a policy.",
        parts=(
            cost_chart("cost", found.cost),
            frontier_table("The table behind the accuracy–cost frontier", found.cost, "budget", is_cost=True),
            latency_chart("latency", found.latency),
            frontier_table("The table behind the accuracy–latency frontier", found.latency, "cap", is_cost=False),
        ),
    )


def _full(evidence: Evidence) -> Section:
    return Section(
        title="With everything profiled",
        intro="The same choices made from the complete training table in place of the sample: what sparse profiling gave away. "
        "Replayed on the held-out table.",
        parts=tuple(plain_runs(item.runs, item.objective, objective_words(item.objective)) for item in evidence.full),
    )


def _profile(evidence: Evidence) -> Section:
    return Section(title="What was profiled", intro=evidence.stop_note, parts=(evidence.profile,))


def _oracle(evidence: Evidence, oracle: Frontiers) -> Section:
    return Section(
        title="Replay under the oracle stop",
        intro="The paper's case: a request ends exactly when its answer is right. Only labelled replay can do that; no served "
        "application has such a stop, so these figures say what a perfect check would be worth, not what users would get.",
        parts=(
            cost_chart("oracle-cost", oracle.cost),
            frontier_table("The table behind this frontier", oracle.cost, "budget", is_cost=True),
            latency_chart("oracle-latency", oracle.latency),
            frontier_table("The table behind this latency frontier", oracle.latency, "cap", is_cost=False),
        ),
    )

"""The output of a demo on recorded answers: its terminal lines and its HTML page."""

from __future__ import annotations

from collections.abc import Iterator

from vinelm.demo.recorded_result import DemoPolicy, RecordedResult
from vinelm.reports.card import AFTER, before, verdict_card
from vinelm.reports.document import ExampleAnswer, Report, Row, Section, Table
from vinelm.reports.examples import examples
from vinelm.reports.formatting import percent, seconds, thousand, usd
from vinelm.reports.plan_tree import plan_tree
from vinelm.reports.plan_words import plan_line
from vinelm.traces.served.served_requests import ServedRequest
from vinelm.trie.verdict import LEADS, ComparedPlan, Verdict

MOST_MODELS = 4
"""How many single models the terminal shows."""


_JUDGED = (
    "Each half of the requests is served, by the application, the plan that the rows of the other half recommend. A model alone"
    " is asked once, since it would repeat its recorded answer. The plan above is that of all rows."
)


def table_columns(found: RecordedResult) -> tuple[str, ...]:
    """Return the column headings for :func:`table_rows`."""
    timed = ("seconds",) if found.today.seconds else ()
    return (f"{len(found.groups)} {found.subject.noun}", "correct", "$ per 1,000", *timed, "dollars")


def table_rows(found: RecordedResult, *, most_models: int | None = None) -> Iterator[tuple[DemoPolicy, tuple[str, ...]]]:
    """Yield pairs (policy, texts of the cells in its table row).

    Args:
        found: The result.
        most_models: The maximum number of single models to list: first the current setup's model, then the most accurate
            of the others. A model is left out if another one is both cheaper and more accurate. None lists all models.
    """
    models = found.models
    if most_models is not None and len(models) > most_models:
        rest = [one for one in models[1:] if not any(_beats(other, one) for other in models)]
        models = (models[0], *sorted(rest, key=lambda one: -one.accuracy)[: most_models - 1])
    for one in (*models, *found.policies[len(found.models) :]):
        is_today, is_model = one is found.today, one in found.models
        name = f"{one.name} on every call{' (today)' if is_today else ''}" if is_model else one.name
        if one is found.vinelm:
            name = f"{one.name}, for {found.subject.share_words} of the dollars"
        timed = (seconds(one.seconds),) if found.today.seconds else ()
        change = "" if is_today else f"{100 * (one.usd / found.today.usd - 1.0):+.0f} %"
        yield one, (name, percent(one.accuracy), thousand(one.usd), *timed, change)


def _beats(one: DemoPolicy, other: DemoPolicy) -> bool:
    return one.usd < other.usd and one.accuracy > other.accuracy


def sentence(found: RecordedResult) -> str:
    """Return the verdict in one sentence."""
    verdict, today, noun = found.found, found.today.name, found.subject.noun
    plan = verdict.served
    assert plan is not None
    part = f" for {100 * verdict.share:.0f} % of the {noun}" if 0.0 < verdict.share < 1.0 else ""
    figures = f"VineLM costs {_change(verdict, plan)} than {today} on every call, at {_points(plan)}"
    return f"{LEADS[verdict.advice]}{part}: {figures}, on {noun} that did not choose the plan."


def open_question(found: RecordedResult) -> str | None:
    """Return a sentence on the cost and accuracy of the cheapest plan whose predicted accuracy reaches the current
    setup's; None if the demo did not run such a plan.
    """
    if found.equal is None:
        return None
    plan = f"the cheapest plan that promises {found.today.name}'s accuracy"
    (own,) = found.equal.plans
    return f"Open: {plan} costs {_change(found.equal, own)}, at {_points(own)}."


def _change(found: Verdict, plan: ComparedPlan) -> str:
    saved = plan.saved_usd / (found.cost_usd or 1.0)
    return f"{100 * abs(saved):.0f} % {'less' if saved >= 0.0 else 'more'}"


def _points(plan: ComparedPlan) -> str:
    return f"{100 * plan.gain:+z.1f} points of accuracy (95 %: {100 * plan.best_low:+z.1f} to {100 * plan.best_high:+z.1f})"


def bought(found: RecordedResult) -> str:
    """Return one sentence on how many results the plan is based on, and what they cost."""
    return f"The plan rests on {sum(found.profiled.counts):,} answers for {usd(found.profiled.spent_usd)}."


def recorded_page(found: RecordedResult) -> Report:
    """Return the demo's HTML page."""
    subject, columns = found.subject, table_columns(found)
    rows = tuple(
        Row(cells=cells, role=one.role if one.role in ("vinelm", "static") else None) for one, cells in table_rows(found)
    )
    table = Table(title=f"{len(found.groups)} {subject.noun}", columns=columns, rows=rows)
    asked, verdict = open_question(found), found.found
    return Report(
        title=f"VineLM on {len(found.groups)} recorded {subject.noun}",
        subtitle=subject.replayed,
        headline=sentence(found),
        is_gain=verdict.advice == "switch",
        card=verdict_card(
            verdict,
            plan=plan_line(plan_tree(found.decision)),
            annotated=found.annotated,
            files=(found.store, found.trie),
        ),
        examples=examples(
            [
                (one.request_id, _answer(one), _answer(two))
                for one, two in zip(found.today.served, found.vinelm.served, strict=True)
            ],
            before=before(verdict),
            after=AFTER[verdict.advice],
            note="Each half is answered by the plan of the other. The tables hold outcomes, no text.",
        ),
        findings=(*((asked,) if asked else ()), bought(found), subject.real, subject.chosen.replace("`", "")),
        sections=(Section(title="Every policy", intro=_JUDGED, parts=(table,)),),
        provenance=(("Store and trie", f"{found.store.name}, {found.trie.name}"), ("Plan", found.plan)),
    )


def _answer(one: ServedRequest) -> ExampleAnswer:
    return ExampleAnswer(models=" → ".join(one.prefix), is_right=one.success, usd=thousand(one.cost_usd))

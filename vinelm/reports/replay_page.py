"""Builds the page of a replay: the verdict on each step, the compared plans, and the lines to paste. Contains no prompts."""

from __future__ import annotations

from collections.abc import Iterator

from vinelm.replay import ReplayResult, StepResult
from vinelm.reports.document import Card, Measure, Report, Row, Section, Table
from vinelm.reports.formatting import percent, seconds, usd
from vinelm.trie.verdict import LEADS, change, counted

COLUMNS = ("plan", "dollars", "differ", "share")
"""Headings of :func:`plan_rows`; the first column is text."""
_MOST_PLANS = 8
_SIMULATED = "The answers of this replay are those of simulated models, not of real ones."
_TERMS = (
    ("differs", "The plan's answer is not the same as the recorded one; how that is decided is said beside each table."),
    ("loses at most", "The share of requests that the plan may answer worse than today, with 95 %, however often one looked."),
    ("label", "A person's word on which of two answers is better, given without knowing whose they are."),
)


def plan_rows(step: StepResult) -> list[tuple[str, ...]]:
    """Return (plan, change of cost, requests that differ, their share) as texts for each compared plan, largest saving
    first.

    The figures are from the requests that were used to choose plans.
    """
    return [
        (name, f"{-100 * saved:+.1f} %", f"{differing} of {seen}", percent(differing / seen))
        for name, saved, differing, seen in step.table[:_MOST_PLANS]
    ]


def replay_page(found: ReplayResult, store: str) -> Report:
    """Return the page of a replay.

    Args:
        found: The result; its examples of answers are not shown.
        store: The name of the store's file, for the command line.
    """
    switched = [step for step in found.steps if step.advice == "switch"]
    sentences = tuple(step.sentence for step in found.steps)
    return Report(
        title="Replay",
        subtitle=f"recorded calls of {len(found.steps)} steps",
        headline=found.together or sentences[0],
        is_gain=bool(switched),
        findings=sentences if found.together else sentences[1:],
        sections=tuple(_sections(found)),
        provenance=(
            ("store", store),
            ("spent", f"{usd(found.spent_usd)} of {usd(found.budget_usd)}"),
            ("attempt", str(found.attempt)),
            *((f"not looked at: {name}", f"{percent(share)} of the bill") for name, share in found.others.items()),
        ),
        simulated=_SIMULATED if found.is_simulated else None,
        card=_card(found, switched, store),
        terms=_TERMS,
    )


def _card(found: ReplayResult, switched: list[StepResult], store: str) -> Card:
    ranks = ("switch", "undecided", "keep", "not enough data")  # an open question matters more than an unchanged step
    advice = next(one for one in ranks if any(step.advice == one for step in found.steps))
    before, saved = (sum(values) for values in ([one.usd for one in found.steps], [one.saved_usd for one in switched]))
    time = "a month" if all(step.is_monthly for step in found.steps) else "of these calls"
    differing, seen = (sum(values) for values in ([one.differing for one in switched], [one.seen for one in switched]))
    measures = [Measure(name=f"Dollars {time}", before=usd(before))]
    if switched:
        after, loss = before - saved, max(step.proven or 0.0 for step in switched)
        measures = [
            Measure(name=f"Dollars {time}", before=usd(before), after=usd(after), change=change(after, before)),
            Measure(name="Answers that differ", before=percent(differing / max(seen, 1)), change=f"of {seen:,} requests"),
            Measure(name="Loss of a step, at most", before=f"{100 * loss:.3g} points", change="95 %, at any look"),
        ]
        known = [(one.today_s, one.latency_s) for one in switched if one.today_s is not None and one.latency_s is not None]
        if len(known) == len(switched):
            today, plan = (sum(one[at] for one in known) for at in (0, 1))
            measures.append(
                Measure(name="Seconds of these steps", before=seconds(today), after=seconds(plan), change=change(plan, today))
            )
    if open_ := sum(step.saved_usd for step in found.steps if step.advice == "undecided"):
        measures.append(Measure(name="Not proven yet", before=usd(open_), change="that could be saved"))
    labels = sum(step.labels for step in found.steps)
    return Card(
        word=LEADS[advice],
        rest=f"in {len(switched)} of {len(found.steps)} steps" if switched else "",
        basis=f"cheaper plans against the recorded answers; {counted(labels, 'label')} of persons",
        measures=tuple(measures),
        plan="; ".join(f"{step.step}: {step.plan}" for step in switched),
        picture=None,
        code="\n\n".join(f"# {step.step}\n{step.paste}" for step in switched),
        command=f"vinelm label {store}" if found.waiting else f"vinelm replay TRACES --store {store}",
        data={"steps": [{**step.to_dict(), "texts": ()} for step in found.steps], "together": found.together},
    )


def _sections(found: ReplayResult) -> Iterator[Section]:
    for step in found.steps:
        rows = tuple(Row(cells=cells) for cells in plan_rows(step))
        note = f"On the requests that chose the plan. Answers are compared as {step.how}."
        yield Section(
            title=step.step,
            intro=step.sentence,
            findings=tuple(step.notes),
            parts=(Table(title="Compared plans", columns=COLUMNS, rows=rows, note=note),) if rows else (),
        )

"""What a demo on recorded answers says: the lines of the terminal, and the page."""

from __future__ import annotations

from collections.abc import Iterator

from vinelm.demo.recorded_result import Difference, RecordedResult, ServedPolicy, mean_over_groups
from vinelm.reports.document import Dot, Report, Row, Scatter, Section, Table
from vinelm.reports.formatting import percent, seconds, thousand, usd

MOST_MODELS = 4
"""Most models alone that the terminal shows."""


_JUDGED = (
    "Each half of the requests is served, by the application, the plan that the rows of the other half recommend. A model alone"
    " is asked once, since it would repeat its recorded answer. The plan above is that of all rows."
)


def table_columns(found: RecordedResult) -> tuple[str, ...]:
    """Return the headings of :func:`table_rows`."""
    timed = ("seconds",) if found.today.seconds else ()
    return (f"{len(found.groups)} {found.subject.noun}", "correct", "$ per 1,000", *timed, "dollars")


def table_rows(found: RecordedResult, *, most_models: int | None = None) -> Iterator[tuple[ServedPolicy, tuple[str, ...]]]:
    """Yield each policy with its cells.

    Args:
        found: The result.
        most_models: Show no more models alone than so many: today's, and of those that no other beats the most accurate.
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


def _beats(one: ServedPolicy, other: ServedPolicy) -> bool:
    return one.usd < other.usd and one.accuracy > other.accuracy


def sentence(found: RecordedResult) -> str:
    """Return the verdict in one sentence."""
    one, today, noun = found.found, found.today.name, found.subject.noun
    figures = f"VineLM costs {_change(one)} than {today} on every call, at {_points(one)}"
    return f"{one.word}: {figures}, on {noun} that did not choose the plan."


def open_question(found: RecordedResult) -> str | None:
    """Return what is not settled, in one sentence; None where nothing is asked."""
    if found.equal is None:
        return None
    plan = f"the cheapest plan that promises {found.today.name}'s accuracy"
    return f"Open: {plan} costs {_change(found.equal)}, at {_points(found.equal)}."


def _change(found: Difference) -> str:
    return f"{100 * abs(found.saved):.0f} % {'less' if found.saved >= 0.0 else 'more'}"


def _points(found: Difference) -> str:
    gain = found.gain
    return f"{100 * gain.value:+.1f} points of accuracy (95 %: {100 * gain.low:+.1f} to {100 * gain.high:+.1f})"


def bought(found: RecordedResult) -> str:
    """Return what the plan rests on, in one sentence."""
    return f"The plan rests on {sum(found.profiled.counts):,} answers for {usd(found.profiled.spent_usd)}."


def recorded_page(found: RecordedResult) -> Report:
    """Return the page of the demo."""
    subject, columns = found.subject, table_columns(found)
    rows = tuple(
        Row(cells=cells, role=one.role if one.role in ("vinelm", "static") else None) for one, cells in table_rows(found)
    )
    table = Table(title=f"{len(found.groups)} {subject.noun}", columns=columns, rows=rows)
    asked = open_question(found)
    return Report(
        title=f"VineLM on {len(found.groups)} recorded {subject.noun}",
        subtitle=subject.replayed,
        headline=sentence(found),
        is_gain=found.found.word == "SWITCH",
        findings=(
            f"The plan: {found.plan}.",
            *((asked,) if asked else ()),
            bought(found),
            subject.real,
            subject.chosen.replace("`", ""),
        ),
        sections=(Section(title="Every policy", intro=_JUDGED, parts=(table,)),),
        hero=_scatter(found),
        provenance=(("Store and trie", f"{found.store.name}, {found.trie.name}"), ("Plan", found.plan)),
    )


def _scatter(found: RecordedResult) -> Scatter:
    dots, subject = [], found.subject
    for one in found.policies:
        accuracy = mean_over_groups(one.right, found.groups)
        role = "model" if one.role == "in_use" else one.role
        dots.append(
            Dot(
                name=f"{one.name} (today)" if one is found.today else one.name,
                role=role,
                usd=1000 * one.usd,
                accuracy=one.accuracy,
                low=max(accuracy.low, 0.0),
                high=min(accuracy.high, 1.0),
            )
        )
    return Scatter(
        name="accuracy-and-dollars",
        title="Right answers and dollars",
        caption=f"On {len(found.groups)} {subject.noun}. Upwards: more right answers, with 95 % intervals; left: cheaper.",
        dots=tuple(dots),
    )

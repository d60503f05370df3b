"""Builds the card that shows a :class:`~vinelm.trie.verdict.Verdict` at a glance, the same on every page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote

from vinelm.reports.document import Card, Dot, Measure, Scatter
from vinelm.reports.plan_words import plan_code
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.verdict import LEADS, ComparedPlan, Verdict, change, counted, dollars, percent, seconds

AFTER = {"switch": "VineLM", "undecided": "nearest plan", "keep": "best other plan", "not enough data": ""}
"""The name of the verdict's plan, by the advice."""
NOT_MEASURED = "not measured"
_CAPTION = "Up: more right answers; left: fewer dollars. Lines: 95 % intervals of the difference to {before}."


def verdict_card(found: Verdict, *, plan: str, annotated: AnnotatedTrie, files: tuple[Path, Path]) -> Card:
    """Return the card of a verdict.

    Args:
        found: The verdict.
        plan: The verdict's plan in one line; empty without a plan.
        annotated: The trie whose plans the verdict compares.
        files: The store and the trie, for command lines.
    """
    store, trie = map(_shown_path, files)
    is_switch = found.advice == "switch"
    return Card(
        word=LEADS[found.advice],
        rest=_rest(found),
        basis=_basis(found),
        measures=_measures(found),
        plan=plan,
        picture=_scatter(found),
        code="\n".join(plan_code(replace(annotated, verdict=found), files[1].name)) if is_switch else "",
        command=f"vinelm plan {trie} --as-code" if is_switch else f"vinelm evaluate {store} {trie}",
        data=found.to_dict(),
    )


def before(found: Verdict) -> str:
    """Return a short name of the baseline of a verdict, such as ``today (gpt-4)``, ``today``, or the name of a model."""
    models = set(found.models.values())
    if not found.is_today:
        return found.opponent
    return f"today ({models.pop()})" if len(models) == 1 else "today"


def _shown_path(path: Path) -> str:
    """Return a path for a command line; an absolute path is reduced to the file's name, so that a shared page reveals
    no folders.
    """
    return quote(path.name if path.is_absolute() else path.as_posix())


def _rest(found: Verdict) -> str:
    if found.advice == "switch" and found.share < 1.0:
        return f"for {100 * found.share:.0f} % of the requests"
    if found.is_fixed:
        return "a fixed plan is enough"
    if found.waiting:
        return f"{found.waiting:,} question{'s' if found.waiting > 1 else ''} may settle it"
    settling = found.settling if found.by_today is None else None
    if settling is None:
        return ""
    more = counted(settling.labels, "more label") if settling.labels else counted(settling.runs, "more run")
    return f"about {more} would settle it"


def _basis(found: Verdict) -> str:
    if found.served is None:
        return f"{found.requests:,} {'labelled ' if found.by_today is None else ''}requests" if found.requests else ""
    how = "served" if found.is_served else "judged"
    return f"{before(found)} → {AFTER[found.advice]}, {how} on {found.requests:,} requests that did not choose the plan"


def _measures(found: Verdict) -> tuple[Measure, ...]:
    plan, usd = found.served, found.cost_usd
    if plan is None or usd is None:
        known = ("-" if usd is None else dollars(usd), percent(found.accuracy), _seconds(found.latency_s))
        return tuple(map(_single, ("Cost per 1,000 requests", _counted(found), "Latency"), known))
    cost = usd - plan.saved_usd
    right = tuple(percent(None if found.accuracy is None else _share(found.accuracy + gain)) for gain in (0.0, plan.gain))
    latency = _single("Latency", NOT_MEASURED)
    if plan.latency_s is not None and found.latency_s is not None:
        gone = change(plan.latency_s, found.latency_s)
        latency = Measure(
            name="Latency", before=seconds(found.latency_s), after=seconds(plan.latency_s), change=f"{gone}, mean per request"
        )
    return (
        Measure(name="Cost per 1,000 requests", before=dollars(usd), after=dollars(cost), change=change(cost, usd)),
        Measure(name=_counted(found), before=right[0], after=right[1], change=_points(plan)),
        latency,
    )


def _counted(found: Verdict) -> str:
    """Return the name of the accuracy figure on the card: "Right answers" or, if today's answers replace labels, "As good
    as today's answers".
    """
    return "Right answers" if found.by_today is None else "As good as today's answers"


def _single(name: str, value: str) -> Measure:
    return Measure(name=name, before=value)


def _seconds(value: float | None) -> str:
    return NOT_MEASURED if value is None else seconds(value)


def _scatter(found: Verdict) -> Scatter | None:
    """Return a picture of the baseline, the plan and each single model, placed by accuracy and cost.

    Plans that cost nothing are left out. None if fewer than two different points remain.
    """
    dots = tuple(one for one in _dots(found) if one.usd > 0.0)
    if len({(one.usd, one.accuracy) for one in dots}) < 2:
        return None
    return Scatter(
        name="accuracy-and-dollars",
        title="Right answers and dollars",
        caption=_CAPTION.format(before=before(found)),
        dots=dots,
    )


def _dots(found: Verdict) -> Iterator[Dot]:
    if found.accuracy is None or found.cost_usd is None:
        return
    right = _share(found.accuracy)
    told = f"{before(found)}\n{dollars(found.cost_usd)} per 1,000 requests\n{percent(right)} right"
    yield Dot(name=before(found), role="in_use", usd=1000 * found.cost_usd, accuracy=right, low=right, high=right, hover=told)
    own = found.served
    for model, plan in _alone(found).items():
        if plan is not found.plan:
            yield _dot(found, plan, model, is_own=False)
    if own is not None:
        yield _dot(found, own, AFTER[found.advice], is_own=True)


def _alone(found: Verdict) -> dict[str, ComparedPlan]:
    """Return the compared plans that run one model on every call, keyed by the model.

    The baseline is left out. So are plans with too few recorded results, whose figures rely on the statistical model.
    """
    shown = (plan for plan in found.plans if plan.is_identified and not plan.is_same and len(plan.models) == 1)
    return {plan.models[0]: plan for plan in shown if plan.words.partition(",")[0] == plan.models[0]}


def _dot(found: Verdict, plan: ComparedPlan, name: str, *, is_own: bool) -> Dot:
    usd, now = (found.cost_usd or 0.0) - plan.saved_usd, found.accuracy or 0.0
    right, low, high = (_share(now + gain) for gain in (plan.gain, plan.best_low, plan.best_high))
    told = f"{name}\n{dollars(usd)} per 1,000 requests\n{percent(right)} right, {_points(plan)} against {before(found)}"
    return Dot(name=name, role="vinelm" if is_own else "model", usd=1000 * usd, accuracy=right, low=low, high=high, hover=told)


def _points(plan: ComparedPlan) -> str:
    return f"{100 * plan.gain:+z.1f} points (95 %: {100 * plan.best_low:+z.1f} to {100 * plan.best_high:+z.1f})"


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)

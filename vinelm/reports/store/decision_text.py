"""The decision of a report in words: keep what is in use, or the best single model, or switch."""

from __future__ import annotations

from math import floor, log10

from vinelm.evaluation import JudgedStore, OffPolicyEstimate, PlanComparison, SwitchDecision
from vinelm.reports.formatting import percent, usd
from vinelm.reports.page.document import Row, Section, Table

_VINELM = {"signals": "VineLM over signals", "paths": "VineLM over paths"}


def decision_sentence(judged: JudgedStore, kept: str | None, n_models: int) -> str:
    """Return the decision, one sentence first.

    Args:
        judged: What the rows say.
        kept: What to keep where nothing was judged; None if there is nothing, or no answer at all.
        n_models: Number of models.
    """
    if judged.decision is None:
        why = judged.unjudged or "no policy met the bounds of both halves"
        return f"{_keep(kept, n_models)}: {why.rstrip('.')}."
    shown = judged.decision.shown
    rival, own = _rival(shown), _VINELM[shown.policy]
    costs = f"{thousand(shown.cost_usd.value)} against {thousand(shown.rival_cost_usd.value)} per 1,000 requests"
    if shown.verdict == "switch":
        also = "" if shown.beats_static else " A static plan may do as well."
        if shown.kind == "cheaper":
            return f"Switch: −{_saving(shown):.0f} % cost at the same accuracy. {own} costs {costs} for {rival}.{also}"
        points = f"+{100 * shown.gain.value:.1f} points of accuracy at no more cost"
        return (
            f"Switch: {points}. {own} is {percent(shown.accuracy.value)} right, {rival} {_percent(shown.rival_accuracy)}.{also}"
        )
    if shown.verdict == "keep":
        return (
            f"Keep {rival}. No plan of VineLM is judged to cost less at the same accuracy, or to be more accurate for the same."
        )
    if shown.verdict == "open":
        return f"Keep {rival} for now. {_open(shown, own)}"
    return f"Keep {rival} for now. The rows do not show what VineLM's plan would do: profile more, or serve it."


def _rival(shown: PlanComparison) -> str:
    return " or ".join(shown.rival_names)


def _keep(kept: str | None, n_models: int) -> str:
    if kept is None:
        return "Nothing to decide yet"
    return f"Keep {kept}{' for now' if n_models > 1 else ''}"


def _open(shown: PlanComparison, own: str) -> str:
    if shown.kind == "better":
        return f"{own} may be more accurate at no more cost ({_points(shown.gain)}), but the rows do not settle it."
    saved, less = shown.saved_usd.low > 0.0, -100 * shown.gain.low
    what = f"saves {_saving(shown):.0f} % of the cost" if saved else "may cost less"
    return f"{own} {what}, but it could be up to {less:.1f} points less accurate."


def decision_section(decision: SwitchDecision) -> Section:
    """Return both comparisons with the rival as a table."""
    first = decision.comparisons[0]
    rival = f"in use today: {_rival(first)}" if first.is_in_use else "most accurate single model"
    single = (rival, _percent(first.rival_accuracy), _thousand(first.rival_cost_usd))
    rows = [row for one in decision.comparisons for row in _rows(one)]
    rows.append(Row(role="single", cells=(*single, "reference", "reference", "-"), detail=" / ".join(first.rivals)))
    return Section(
        title="The decision",
        intro="Each half of the requests chose plans, and the other half judged them, so that no plan is judged by the "
        "requests that it was chosen from. Two plans after a slash are those of the two halves.",
        findings=tuple(decision_findings(decision)),
        parts=(
            Table(
                title="Against what is in use today" if first.is_in_use else "Against the most accurate single model",
                columns=("plan", "accuracy", "$ per 1,000", "points more right", "saved", "says"),
                rows=tuple(rows),
                note="In parentheses: paired 97.5 % intervals, since there are two ways to say “switch”. “The same accuracy” "
                "means at most 2 points less, the whole interval included.",
            ),
        ),
    )


def _rows(one: PlanComparison) -> tuple[Row, ...]:
    """VineLM's plan, and the best static plan for the same objective."""
    aim = "cheaper, same accuracy" if one.kind == "cheaper" else "more accurate, same cost"
    own = (f"{_VINELM[one.policy]}: {aim}", _percent(one.accuracy), _thousand(one.cost_usd))
    static = (f"best static plan: {aim}", _percent(one.static_accuracy), _thousand(one.static_cost_usd))
    vinelm = Row(role="vinelm", cells=(*own, _points(one.gain), _saved(one), _verdict(one)), detail=" / ".join(one.plans))
    if not one.static_plans:
        return (vinelm,)
    return vinelm, Row(role="static", cells=(*static, "-", "-", "-"), detail=" / ".join(one.static_plans))


def decision_findings(decision: SwitchDecision) -> list[str]:
    """Return what stands behind the decision, a sentence each."""
    shown = decision.shown
    lines = [
        f"{_VINELM[shown.policy]}, judged: {_points(shown.gain)} points of accuracy; it saves {_saved(shown)} of the cost of "
        f"{_rival(shown)}."
    ]
    if not shown.is_judged:
        lines = [f"Too few rows follow {_VINELM[shown.policy]} and {_rival(shown)} to their ends to tell them apart."]
    over = shown.over_static
    if not shown.static_plans:
        return [
            *lines,
            f"No static plan promises {'that accuracy' if shown.kind == 'cheaper' else 'to stay within that cost'}.",
        ]
    if not over.is_identified:
        return [*lines, "The rows do not tell VineLM's plan from the best static plan."]
    if over.is_same:
        return [*lines, "The best static plan is the same plan: it needs no controller."]
    amount = (
        f"{_points(over)} points"
        if shown.kind == "better"
        else f"{_dollars(over, shown.static_cost_usd.value)} saved per 1,000 requests"
    )
    better = "is better than" if shown.beats_static else "is not known to be better than"
    return [*lines, f"VineLM's plan {better} the best static plan ({' / '.join(shown.static_plans)}): {amount}."]


def thousand(value: float) -> str:
    """Format dollars per request as dollars per 1,000 requests."""
    return usd(1000.0 * max(value, 0.0))


def _thousand(one: OffPolicyEstimate) -> str:
    return thousand(one.value) if one.is_identified else "not identified"


def _percent(one: OffPolicyEstimate) -> str:
    return percent(min(max(one.value, 0.0), 1.0)) if one.is_identified else "not identified"


def _saving(shown: PlanComparison) -> float:
    return 100.0 * shown.saved_usd.value / max(shown.rival_cost_usd.value, 1e-12)


def _saved(one: PlanComparison) -> str:
    if not one.saved_usd.is_identified:
        return "not identified"
    if one.saved_usd.is_same:
        return "0 %"
    scale = 100.0 / max(one.rival_cost_usd.value, 1e-12)
    low, high = scale * one.saved_usd.low, scale * one.saved_usd.high
    return f"{scale * one.saved_usd.value:.0f} % ({low:.0f} to {high:.0f})"


def _points(one: OffPolicyEstimate) -> str:
    if one.is_same:
        return "same"
    if not one.is_identified:
        return "not identified"
    return f"{100 * one.value:+.1f} ({100 * one.low:+.1f} to {100 * one.high:+.1f})"


def _dollars(one: OffPolicyEstimate, of: float) -> str:
    """The difference of dollars per 1,000 requests, in thousandths of what they are of: finer would be rounding errors."""
    unit = 10.0 ** floor(log10(max(1000.0 * of, 1e-9)) - 2.0)
    value, low, high = (unit * round(1000.0 * amount / unit) for amount in (one.value, one.low, one.high))
    shown = [f"{'-' if amount < 0 else ''}{usd(abs(amount))}" for amount in (value, low, high)]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def _verdict(one: PlanComparison) -> str:
    return "same plan" if one.gain.is_same else str(one.verdict)

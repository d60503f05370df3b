"""A verdict in one sentence, and its table: the same words everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vinelm.trie.verdict import ComparedPlan, Verdict

LEADS = {"switch": "SWITCH", "keep": "KEEP", "undecided": "UNDECIDED", "not enough data": "NOT ENOUGH DATA"}
MOST_WORDS = 120
"""Most characters of a plan in a sentence: those of mixtures and graphs are too long, and the table below has them."""
_MANY = 2.2 * 0.5
COLUMNS = ("<plan", "right", "<points against it (95 % each end)", "$ per 1,000", "dollars", "seconds")


def sentence(found: Verdict) -> str:
    """Return the verdict, one of four words first, with its dollars, accuracies, and the loss that is ruled out."""
    lead, plan = LEADS[found.advice], found.served
    if found.advice == "not enough data" or plan is None:
        return f"{lead}: {why_not_enough(found)}."
    if found.advice == "keep":
        among = f"plans of {_and(found.compared)}" if found.compared else "the compared plans"
        name = f" ({plan.words})" if _is_short(plan) else ""
        best = f"The best of these{name} has {_costs(found, plan)} and {_points(plan)}"
        return f"{lead} {found.opponent}: nothing cheaper or better is left among {among}. {best}{_counted(found)}."
    if found.is_fixed:
        named = plan.words if _is_short(plan) else "one plan for all requests"
        tail = "You need no runtime: `vinelm plan TRIE --as-code` prints the lines to write."
        return f"{lead}, A FIXED PLAN IS ENOUGH: {named}. {_figures(found, plan)} {_loss(found)} {tail}"
    if found.advice == "switch":
        part = "" if found.share >= 1.0 else f" for {100 * found.share:.0f} % of the requests"
        named = f": {plan.words}." if _is_short(plan) else "."
        return f"{lead}{part}{named} {_figures(found, plan)} {_loss(found)}"
    name = f"{plan.words} is the nearest plan" if _is_short(plan) else "the nearest plan is not proven"
    return f"{lead}: {name}. {_figures(found, plan)} {_loss(found)}{_settles(found)}"


def why_not_enough(found: Verdict) -> str:
    """Return what the rows lack, in a few words."""
    if found.why_not:
        return found.why_not
    if found.uncompared:
        return (
            f"no cheaper plan than {found.opponent} was compared, since too few requests have run "
            f"{' or '.join(found.uncompared)} to the end: profile more (a larger --budget-usd, or more requests)"
        )
    return (
        f"no other plan than {found.opponent} was compared: too few requests have run another one to its end; profile more (a"
        " larger --budget-usd)"
    )


def table_rows(found: Verdict) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table below the sentence: the opponent, the plans that were compared, and which one it is about."""
    usd = found.cost_usd
    if usd is None:
        return
    now = "today" if found.is_today else found.opponent
    yield now, percent(found.accuracy), "", dollars(usd), "", _seconds(found.latency_s)
    shown = [plan for plan in found.plans if plan.is_identified and not plan.is_same]
    for plan in sorted(shown, key=lambda plan: -plan.saved_usd):
        mark = " *" if plan is found.plan else ""
        cost = usd - plan.saved_usd
        points = f"{100 * plan.gain:+.1f} ({100 * plan.best_low:+.1f} to {100 * plan.best_high:+.1f})"
        words = plan.words if len(plan.words) <= MOST_WORDS // 2 else f"{plan.words[: MOST_WORDS // 2 - 3]}..."
        yield (
            f"{words}{mark}",
            percent(_accuracy(found, plan)),
            points,
            dollars(cost),
            _change(cost, usd),
            _seconds(plan.latency_s),
        )


def what_can_be_proven(requests: int, max_loss: float) -> str:
    """Return, before anything is bought, what so many labelled requests can prove at most, in one sentence.

    Where no answer differs 1 - 0.05^(1/n) is left. A plan that changes a quarter of the answers, as many to the better as to
    the worse, has a standard error of 0.5 / sqrt(n), and the end that holds for the best of a few plans is 2.2 of them off.
    """
    if requests < 1:
        return "No labelled request: nothing can be proven."
    least, many = nothing_differs(requests), _MANY / requests**0.5
    enough = "" if max_loss <= 0.0 else (
        f" {100 * max_loss:g} points take {_round_up(3.0 / max_loss):,} to {_round_up((_MANY / max_loss) ** 2):,} labelled"
        " requests."
    )  # fmt: skip
    return (
        f"With {requests:,} labelled requests a loss below {100 * least:.1f} points cannot be excluded, whatever is bought;"
        f" for a plan that changes many answers about {100 * many:.0f}.{enough}"
    )


def nothing_differs(requests: int) -> float:
    """Return the loss that n requests without a lost answer rule out with 95 %: about 3/n (the rule of three)."""
    return float(1.0 - 0.05 ** (1.0 / max(requests, 1)))


def _round_up(value: float) -> int:
    """To two digits."""
    digits = 10 ** max(len(str(int(value))) - 2, 0)
    return int(-(-value // digits) * digits)


def _figures(found: Verdict, plan: ComparedPlan) -> str:
    """Dollars, accuracies and seconds, before and after."""
    right = f"{percent(_accuracy(found, plan))} right instead of {percent(found.accuracy)}"
    took = ""
    if plan.latency_s is not None and found.latency_s is not None:
        took = f", {_seconds(plan.latency_s)} instead of {_seconds(found.latency_s)}"
    against = "" if found.is_today else f", against {found.opponent}, the strongest single model"
    return f"It costs {_costs(found, plan)}, with {right} ({_points(plan)}){took}{against}."


def _costs(found: Verdict, plan: ComparedPlan) -> str:
    usd = found.cost_usd or 0.0
    cost = usd - plan.saved_usd
    return f"{dollars(cost)} instead of {dollars(usd)} per 1,000 requests ({_change(cost, usd)})"


def _change(cost: float, usd: float) -> str:
    return f"{100 * (cost / usd - 1.0):+z.0f} %" if usd else "-"


def _points(plan: ComparedPlan) -> str:
    return f"{100 * plan.gain:+.1f} points, {100 * plan.best_low:+.1f} to {100 * plan.best_high:+.1f}"


def _counted(found: Verdict) -> str:
    return f" (95 %, {'as the judge counts, ' if found.is_judged else ''}as of these requests)"


def _loss(found: Verdict) -> str:
    """The smallest loss that is ruled out."""
    plan, loss = found.served, found.loss
    assert plan is not None
    assert loss is not None
    seen = "" if plan.lost is None else f"{plan.lost} of {plan.answers} answers lost; "
    allowed = ""
    if found.advice == "undecided":
        allowed = f", and {100 * found.max_loss:g} are allowed (--max-loss)" if plan.saved_usd > 0.0 else ""
    if loss == 0.0:
        return f"No accuracy is lost{_counted(found)}."
    begin = seen or "At most "
    most = "at most " if seen else ""
    return f"{begin}{most}{100 * loss:.1f} points could be lost{_counted(found)}{allowed}."


def _settles(found: Verdict) -> str:
    settling = found.settling
    if settling is None:
        return " More requests like these would hardly settle it."
    price = f", about {plain_dollars(settling.usd)} of rows" if settling.usd else ""
    return f" About {settling.requests:,} labelled requests would settle it: {settling.labels:,} more labels{price}."


def _accuracy(found: Verdict, plan: ComparedPlan) -> float | None:
    return None if found.accuracy is None else found.accuracy + plan.gain


def _is_short(plan: ComparedPlan) -> bool:
    return 0 < len(plan.words) <= MOST_WORDS


def _and(names: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def percent(share: float | None) -> str:
    """Return a share of answers as a percentage with one digit, within 0 and 100 %."""
    return "-" if share is None else f"{100 * min(max(share, 0.0), 1.0):.1f} %"


def dollars(per_request: float) -> str:
    """Return dollars per request as those of 1,000 requests."""
    return plain_dollars(1000 * per_request)


def plain_dollars(usd: float) -> str:
    """Return dollars with three digits, or cents from 10 on."""
    sign, size = "-" if usd < 0 else "", abs(usd)
    return f"{sign}${size:,.2f}" if size >= 10 else f"{sign}${size:.3g}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2g} s" if value < 10 else f"{value:.0f} s"

"""What the strangers' trial says of an application, and of all of them: intervals, differences, the aims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

TODAY = "what runs today"
"""How ``vinelm plan`` calls it."""
Z = 1.96
"""Standard deviations of a 95 % interval."""
Outcomes = Sequence[Mapping[str, Any]]


def served_figures(outcomes: Outcomes, today: Outcomes, billed_usd: float) -> dict[str, Any]:
    """Accuracy and dollars per request with 95 % intervals, and both paired with today's on the same requests.

    The dollars are those of the calls that VineLM saw. ``billed_usd`` are those of all calls that the server has answered; per
    request they are higher where the application makes calls past VineLM.
    """
    right = [float(one["right"]) for one in outcomes]
    usd = [float(one["usd"]) for one in outcomes]
    right_today = [float(one["right"]) for one in today]
    usd_today = [float(one["usd"]) for one in today]
    errors = [one["error"] for one in outcomes if one["error"]]
    return {
        "accuracy": round(_mean(right), 4),
        "accuracy_interval": _wilson(sum(right), len(right)),
        "usd": _mean(usd),
        "usd_interval": _interval(usd, digits=8),
        "billed_usd": billed_usd / len(outcomes),
        "accuracy_less_today": round(_mean(right) - _mean(right_today), 4),
        "accuracy_less_today_interval": _interval([a - b for a, b in zip(right, right_today, strict=True)]),
        "usd_less_today_interval": _interval([a - b for a, b in zip(usd, usd_today, strict=True)], digits=8),
        "errors": len(errors),
        "first_error": errors[0] if errors else "",
    }


def best_single(served: Mapping[str, Mapping[str, Any]], models: Sequence[str]) -> dict[str, Any]:
    """The single model with the highest accuracy, the cheaper of two that are alike."""
    best = max(models, key=lambda model: (served[model]["accuracy"], -served[model]["usd"]))
    return {"model": best, **served[best]}


def planned_figures(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What ``vinelm plan --json`` promises of what a service then runs, and of the plan itself; None where it does not say."""
    rows = plan.get("plans") or [{}]
    own, advice = _promised(rows[0]), plan.get("verdict") or {}
    today = next((_promised(row) for row in rows if row.get("policy") == TODAY), own)
    return {
        **_mixed(own, today, advice.get("share", 1.0)),
        "plan_itself": {name.removeprefix("promised_"): value for name, value in own.items()},
        "recommendation": plan.get("verdict"),
        "objective": plan.get("objective"),
    }


def _mixed(own: Mapping[str, Any], other: Mapping[str, Any], share: float) -> dict[str, Any]:
    """What is promised where one plan serves a share of the requests and another one the rest; intervals add up."""

    def between(one: Any, two: Any) -> Any:
        if share in (0.0, 1.0) or one is None or two is None:
            return one if share else two
        if isinstance(one, Sequence):
            return tuple(map(between, one, two))
        return share * one + (1.0 - share) * two

    return {name: between(own[name], other[name]) for name in own}


def _promised(row: Mapping[str, Any]) -> dict[str, Any]:
    promise, intervals = row.get("promise") or {}, row.get("intervals") or {}
    accuracy = promise.get("interval") or intervals.get("accuracy")
    return {
        "promised_accuracy": promise.get("accuracy", row.get("accuracy")),
        "promised_accuracy_interval": accuracy,
        "promised_usd": row.get("path_cost_usd", row.get("cost_usd")),
        "promised_usd_interval": intervals.get("path_cost_usd") or intervals.get("cost_usd"),
        "half_width": None if not accuracy else round((accuracy[1] - accuracy[0]) / 2, 4),
    }


def verdict(recommendation: Any) -> str | None:
    """``switch`` or another of the four words, however the verdict is written; None if it says none of them."""
    if isinstance(recommendation, Mapping) and "advice" in recommendation:
        recommendation = recommendation["advice"]
    words = " ".join(map(str, _leaves(recommendation)))
    return next((word for word in ("switch", "keep", "undecided", "not enough data") if word in words.casefold()), None)


def is_worse(figures: Mapping[str, Any]) -> bool:
    """Whether it is worse than today's by more than a point, and certainly worse at all."""
    return bool(figures["accuracy_less_today"] < -0.01 and figures["accuracy_less_today_interval"][1] < 0)


def aims(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each aim of the trial, what was reached, and whether it is met; scaled down where fewer applications ran."""
    number = len(found)
    served = [one for one in found if one["served"]]
    checked = sum("check" in one["passed"] for one in found)
    kept = sum(is_kept(one["served"]["plan"], one["promised_accuracy"], one["half_width"]) for one in served)
    itself = [(one["served"]["plan_itself"], one["plan_itself"]) for one in served if "plan_itself" in one["served"]]
    itself_kept = sum(is_kept(figures, plan["accuracy"], plan["half_width"]) for figures, plan in itself)
    worse = [one["app"] for one in served if is_worse(one["served"]["plan"])]
    switched = sum(one["verdict"] == "switch" for one in found)
    widths = [one["half_width"] for one in found if one["half_width"] is not None]
    narrow = sum(width <= 0.10 for width in widths)
    return [
        _aim("init to check without an edit", checked, math.ceil(12 / 15 * number), number),
        _aim("promise kept, inside the 95 % interval of served and promised", kept, math.ceil(14 / 15 * number), number),
        _aim("promise of the plan itself kept, where it is not recommended, too", itself_kept, len(itself), len(itself)),
        {"aim": "plans worse than today's", "reached": len(worse), "of": number, "wanted": 0, "met": not worse, "apps": worse},
        _aim("verdicts to switch", switched, math.ceil(8 / 15 * number), number),
        _aim("half-width of the promise at most 10 points", narrow, number, number),
    ]


def is_kept(served: Mapping[str, Any], promised: float | None, half_width: float | None) -> bool:
    """Whether what was served agrees with the promise, given the errors of both (95 %); False where one is not known.

    A promised interval is of 90 %, and so 1.645 standard errors wide on each side.
    """
    if promised is None or half_width is None:
        return False
    own = (served["accuracy_interval"][1] - served["accuracy_interval"][0]) / 2
    return bool(abs(served["accuracy"] - promised) <= math.hypot(own, half_width * Z / 1.645))


def _aim(words: str, reached: int, wanted: int, number: int) -> dict[str, Any]:
    return {"aim": words, "reached": reached, "of": number, "wanted": wanted, "met": reached >= wanted}


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [leaf for inner in value.values() for leaf in _leaves(inner)]
    return [value]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _interval(values: Sequence[float], digits: int = 4) -> tuple[float, float]:
    mean = _mean(values)
    error = math.sqrt(sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1) / len(values))
    return round(mean - Z * error, digits), round(mean + Z * error, digits)


def _wilson(right: float, number: int) -> tuple[float, float]:
    """Wilson's interval, which has a width where all answers are right."""
    share, weight = right / number, Z**2 / number
    middle = (share + weight / 2) / (1 + weight)
    half = Z / (1 + weight) * math.sqrt(share * (1 - share) / number + weight / (4 * number))
    return round(middle - half, 4), round(middle + half, 4)

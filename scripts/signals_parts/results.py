"""The figures that the pages quote, as a small file for `scripts/result_tables.py`; `signals.py --results FILE` writes it."""

from __future__ import annotations

from typing import Any

from signals_parts.curves import KINDS, MIXED, UNMIXED
from signals_parts.methods import TITLES as METHOD_TITLES

from vinelm.errors import ConfigError

DEPTH, SAMPLER, ONE_CALL = "3", "priced", "1"
TITLES = {
    "spider": "eight text-to-SQL systems, development",
    "spider-1": "another eight of them",
    "spider-2": "a third choice of eight",
    "exams": "nine models, exam questions",
    "classeval": "eight code models, ClassEval",
    "routerbench": "eleven models, three tasks (RouterBench)",
    "llmrouter": "nine models, fourteen tasks, one call (LLMRouter)",
}


def require_measured(depths: str, samplers: str) -> None:
    """Refuse a run that does not measure what is written."""
    if DEPTH not in depths.split(",") or SAMPLER not in samplers.split(","):
        raise ConfigError(
            f"--results has the figures of depth {DEPTH} and sampler {SAMPLER!r}: ask for --depths and --samplers with them"
        )


def page_figures(result: dict[str, Any]) -> dict[str, Any]:
    """What each sampler's rows gave at depth 3 (or with one call), in percent and points: the default's as ``tables``."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, table in result["tables"].items():
        depths = table["depths"]
        for sampler, one in depths.get(DEPTH, depths.get(ONE_CALL, {})).items():
            found.setdefault("tables" if sampler == SAMPLER else sampler, []).append(row(name, one))
    return found


def row(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """One table's figures. Every rival is at the dollars that VineLM spent on the held-out requests; leads are in points."""
    equal, mine = found["equal_dollars"], found["methods"]["vinelm"]
    right, best = 100 * mean_right(equal), equal["best_rival"]
    leads = equal["over"][MIXED]
    return {
        "title": TITLES.get(name, name),
        "rows": found["rows"],
        "usd_of_rows": found["spent_usd"],
        "right": {"vinelm": right} | {method: right - 100 * one["value"] for method, one in leads.items()},
        "lead": {method: points(one) for method, one in leads.items()},
        "lead_in_hindsight": {method: points(one) for method, one in equal["over_in_hindsight"].items()},
        "best_rival": METHOD_TITLES.get(best, best),
        "over_best": interval(leads[best]),
        "over_best_in_hindsight": interval(equal["over_in_hindsight"][best]),
        "over_static": interval(leads["static"]),
        "over_mixed_single": interval(leads["mixed_single"]),
        "unmixed_over_static": interval(equal["over"][UNMIXED]["static"]),
        "mixing_at_the_same_bound": points(equal["mixed_less_unmixed_at_the_same_bound"])
        | {"text": interval(equal["mixed_less_unmixed_at_the_same_bound"])},
        "saved": {reference: points(by_method[MIXED]) for reference, by_method in equal["saved"].items()},
        "saved_text": {reference: share(by_method[MIXED]) for reference, by_method in equal["saved"].items()},
        "promised_less_achieved": 100 * equal["promises"][MIXED]["promised_less_achieved"],
        "spent_over_promised": equal["promises"][MIXED]["spent_over_promised"],
        "spent_over_bound": equal["promises"][MIXED]["spent_over_bound"],
        "covered_at_90": equal["promises"][MIXED]["covered_at_90"],
        "ece_points": mine["ece_points"],
    } | ({"kinds": of_kinds(equal)} if equal["kinds_over"] else {})


def of_kinds(equal: dict[str, Any]) -> dict[str, Any]:
    """VineLM with the kinds of request declared, at the dollars that it spent itself."""
    over, said = equal["kinds_over"], equal["promises"][KINDS]
    return {
        "over": {method: points(one) for method, one in over.items()},
        "over_no_kinds": interval(over[MIXED]),
        "over_mixed_single": interval(over["mixed_single"]),
        "over_kind_table": interval(over["kind_table"]),
        "promised_less_achieved": 100 * said["promised_less_achieved"],
        "covered_at_90": said["covered_at_90"],
    }


def mean_right(equal: dict[str, Any]) -> float:
    """VineLM's share of right answers, mean over the budgets."""
    return sum(one["accuracy"] for one in equal["by_budget"]) / len(equal["by_budget"])


def points(one: dict[str, float | None]) -> dict[str, float | None]:
    """An interval in points (or percent)."""
    return {name: None if one[name] is None else 100 * float(one[name] or 0.0) for name in ("value", "low", "high")}


def interval(one: dict[str, float]) -> str:
    """An interval of points as text."""
    return f"{100 * one['value']:+.1f} [{100 * one['low']:+.1f}, {100 * one['high']:+.1f}]"


def share(one: dict[str, float | None]) -> str:
    """Dollars saved as text."""
    value, low, high = (one[name] for name in ("value", "low", "high"))
    if value is None or high is None:
        return "never as accurate"
    least = "below -100" if low is None or low < -1.0 else f"{100 * low:.0f}"
    return f"{100 * value:.0f} % [{least}, {100 * high:.0f}]"

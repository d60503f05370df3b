"""What `bench_slo.py` says of its rows: means over seeds with intervals, as text and as figures for the pages."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import stdtrit

STATIC, STRONG, HEDGED, UNAWARE, GUARDED, GREEDY, AWARE, DEVIATION, PROGRAM, SPARSE = POLICIES = (
    "static, idle", "static, under load", "static, hedged", "paper, load-unaware", "static, guarded", "reactive greedy",
    "paper, load-aware", "mean + sd", "stochastic DP", "stochastic DP, 2 %",
)  # fmt: skip
LOAD_AWARE = POLICIES[4:]
RIVALS = (STRONG, GUARDED, HEDGED, GREEDY, AWARE)
"""Whom the program is compared with."""
TITLES = {
    STATIC: "static plan, best on idle engines (the paper's baseline)",
    STRONG: "static plan, best in trials under the same load",
    HEDGED: "the same plan, late calls also made of the fastest other model",
    UNAWARE: "the paper's policy, without load",
    GUARDED: "the same plan, without calls that do not fit now",
    GREEDY: "reactive greedy: the most accurate model whose expected time × 1.5 fits now",
    AWARE: "the paper's policy, load-aware",
    DEVIATION: 'VineLM, `risk="mean+sd"`',
    PROGRAM: 'VineLM, `risk="dp"`',
    SPARSE: 'VineLM, `risk="dp"`, from a profile of 2 % of the dollars',
}
OLD_S = 10.0
FRESH = (None, True)
"""Seconds between load reports (None: before every decision), and whether they are corrected by our own calls."""
OLD, OLD_CORRECTED = (OLD_S, False), (OLD_S, True)


def of(rows: list[dict], field: str, **labels) -> np.ndarray:
    """Return the mean of a field per seed, over the rows with these labels; a tuple allows several values."""
    wanted = {name: value if isinstance(value, tuple) else (value,) for name, value in labels.items()}
    mine = [row for row in rows if all(row[name] in values for name, values in wanted.items())]
    seeds = sorted({row["seed"] for row in mine})
    return np.array([np.mean([row[field] for row in mine if row["seed"] == seed]) for seed in seeds])


def stated(values: np.ndarray) -> str:
    """Format mean and half the 95 % interval over seeds in percent; a dash if there are no values."""
    if not len(values):
        return "-"
    return f"{100 * values.mean():5.1f} +-{100 * half_width(values):4.1f} %"


def half_width(values: np.ndarray) -> float:
    """Return half the 95 % t interval of the mean; NaN for a single value."""
    n = len(values)
    return float(stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")


def loaded(rows: list[dict]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row["arrivals"] for row in rows if row["arrivals"] not in ("idle", "crowd")))


def summary(rows: list[dict]) -> dict[str, str]:
    """Summarise the loaded arrivals with fresh reports. "Tight" are the three smallest SLOs; differences are paired by seed."""
    slos = sorted({row["slo_s"] for row in rows})
    tight = tuple(slos[:3])
    now = {"arrivals": loaded(rows), "load_age_s": (None, 0.0)}
    found = {}
    for name, field in (("violations", "violation_rate"), ("right in time", "in_slo_accuracy")):
        for policy in POLICIES:
            found[f"{name} at tight SLOs, {policy}"] = stated(of(rows, field, policy=policy, slo_s=tight, **now))
    for other in RIVALS:
        for field, words in (("violation_rate", "violations"), ("in_slo_accuracy", "right in time")):
            mine, theirs = (of(rows, field, policy=p, slo_s=tight, **now) for p in (PROGRAM, other))
            found[f"{words} at tight SLOs, {PROGRAM} over {other}"] = stated(mine - theirs)
        for slo_s in slos:
            mine, theirs = (of(rows, "in_slo_accuracy", policy=p, slo_s=slo_s, **now) for p in (PROGRAM, other))
            found[f"right in time at {slo_s:g} s, {PROGRAM} over {other}"] = stated(mine - theirs)
    for policy in LOAD_AWARE:
        for words, (age_s, is_corrected) in {"fresh": FRESH, "old": OLD, "old, corrected": OLD_CORRECTED}.items():
            labels = {"arrivals": "crowd", "load_age_s": age_s or 0.0, "has_dispatch_correction": is_corrected}
            found[f"crowd, reports {words}: violations, {policy}"] = stated(of(rows, "violation_rate", policy=policy, **labels))
    return found


def page_figures(rows: list[dict]) -> dict[str, Any]:
    """What the pages quote: the three smallest SLOs, each SLO, the program over two rivals, and old reports of load.

    Shares are fractions; a lead is in points and paired by seed. "loaded" are the arrivals besides "idle" and "crowd".
    """
    slos = sorted({row["slo_s"] for row in rows})
    now: dict[str, Any] = {"arrivals": loaded(rows), "load_age_s": (None, 0.0)}
    tight = now | {"slo_s": tuple(slos[:3])}
    return {
        "tight_slos_s": slos[:3],
        "tight": {policy: {"title": TITLES[policy], **shares(rows, policy=policy, **tight)} for policy in POLICIES},
        "by_slo": {
            f"{slo:g} s": {policy: shares(rows, policy=policy, slo_s=slo, **now) for policy in POLICIES} for slo in slos
        },
        "program_over": {
            other: {"tight": leads(rows, other, **tight)} | {f"{slo:g} s": leads(rows, other, slo_s=slo, **now) for slo in slos}
            for other in RIVALS
        },
        "old_reports": old_reports(rows, slos[min(2, len(slos) - 1)]),
    }


def shares(rows: list[dict], **labels) -> dict[str, Any]:
    """Return the shares of late and of right answers in time, with half their 95 % intervals, and both as text."""
    late, right = of(rows, "violation_rate", **labels), of(rows, "in_slo_accuracy", **labels)
    if not len(late):
        return {}
    return {
        "late": float(late.mean()),
        "right": float(right.mean()),
        "late_text": plus_minus(late, " %"),
        "right_text": plus_minus(right, " %"),
        "text": f"{100 * late.mean():.1f} % ({100 * right.mean():.1f} %)",
    }


def leads(rows: list[dict], other: str, **labels) -> dict[str, Any]:
    """Return how many points the program violates less and is right in time more often than another policy: text, interval."""
    found: dict[str, Any] = {}
    for name, field, sign in (("fewer_late", "violation_rate", -1), ("more_right", "in_slo_accuracy", 1)):
        mine, theirs = (of(rows, field, policy=policy, **labels) for policy in (PROGRAM, other))
        if not len(mine) or not len(theirs):
            found[name] = "-"
            continue
        gap = 100 * sign * (mine - theirs)
        found[name] = plus_minus(gap / 100, "")
        half = half_width(gap)
        if not np.isnan(half):
            found[f"{name}_points"] = {
                "value": float(gap.mean()),
                "low": float(gap.mean() - half),
                "high": float(gap.mean() + half),
            }
    return found


def old_reports(rows: list[dict], slo_s: float) -> dict[str, Any]:
    """Return the violations of a crowd by the age of load reports: over all SLOs, and at one of them in parentheses."""
    found = {}
    for policy in LOAD_AWARE:
        for words, (age_s, is_corrected) in {"fresh": FRESH, "old": OLD, "corrected": OLD_CORRECTED}.items():
            labels = {
                "policy": policy,
                "arrivals": "crowd",
                "load_age_s": age_s or 0.0,
                "has_dispatch_correction": is_corrected,
            }
            everywhere, there = (of(rows, "violation_rate", **labels, **more) for more in ({}, {"slo_s": slo_s}))
            if len(everywhere):
                text = f"{100 * everywhere.mean():.1f} % ({100 * there.mean():.1f} %)"
                found.setdefault(policy, {"title": TITLES[policy]})[words] = text
    return found


def violations_by_weight(by_weight: dict[float | None, list[dict]]) -> dict[str, Any]:
    """Return the program's shares by the weight of a late answer, and the load-aware policy's, which has none."""
    found = {f"{weight:g}": shares(rows, policy=PROGRAM, load_age_s=0.0) for weight, rows in by_weight.items()}
    rows = next(iter(by_weight.values()))
    return found | {AWARE: shares(rows, policy=AWARE, load_age_s=0.0)}


def plus_minus(values: np.ndarray, unit: str) -> str:
    """Format mean and half the 95 % interval over seeds in percent; one seed has no interval."""
    half = half_width(values)
    return f"{100 * values.mean():.1f}" + ("" if np.isnan(half) else f" ± {100 * half:.1f}") + unit


def report(about: dict, rows: list[dict]) -> None:
    print(f"{about['about']}; mean over {about['seeds']} seeds, +- half the 95 % t interval; {about['run_s']:g} s")
    keys = dict.fromkeys(
        (row["arrivals"], row["load_age_s"], row["has_dispatch_correction"]) for row in rows if row["load_age_s"] is not None
    )
    for arrivals, age_s, corrected in keys:
        aged = "fresh" if age_s == 0 else f"{age_s:g} s old" + (", own dispatches counted" if corrected else ", as reported")
        print(f"\n{arrivals}; load reports {aged}: violation rate (right in time)")
        print(f"{'SLO':>5}  " + "  ".join(f"{policy:>24}" for policy in POLICIES))
        for slo_s in sorted({row["slo_s"] for row in rows}):
            cells = []
            for policy in POLICIES:
                aged_as = {"load_age_s": age_s, "has_dispatch_correction": corrected} if policy in LOAD_AWARE else {}
                labels = {"arrivals": arrivals, "slo_s": slo_s, "policy": policy, **aged_as}
                right = of(rows, "in_slo_accuracy", **labels).mean()
                cells.append(f"{stated(of(rows, 'violation_rate', **labels))} ({100 * right:4.1f} %)")
            print(f"{slo_s:5g}  " + "  ".join(f"{cell:>24}" for cell in cells))

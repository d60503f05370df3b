"""The strangers' trial as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Interval = Sequence[float] | None


def stranger_line(one: Mapping[str, Any]) -> str:
    """What is printed of one application: where it stops and why, or what was promised and what was served."""
    head = f"{one['app']:17s} {one['minutes']:5.2f} min, {one['commands']} commands, {one['edited_lines']} lines edited"
    if one["stopped_at"] is not None:
        return f"{head}, stops at {one['stopped_at']}: {one['line'][:200]}"
    served, single = one["served"], one["best_single"]
    rows = [f"{head}, verdict {one['verdict'] or 'not printed'}"]
    promised = (one["promised_accuracy"], one["promised_accuracy_interval"], one["promised_usd"], one["promised_usd_interval"])
    rows.append(_figures("promised", *promised))
    names = {"plan": "served", "plan_itself": "the plan itself", "today": "today's", "by_hand": "by hand"}
    for policy, words in (*names.items(), (single["model"], f"best single: {single['model']}")):
        if policy in served:
            found = served[policy]
            row = _figures(words, found["accuracy"], found["accuracy_interval"], found["usd"], found["usd_interval"])
            less = found["accuracy_less_today_interval"]
            paired = f"  less today's {_points(found['accuracy_less_today'])} ({_points(less[0])} to {_points(less[1])})"
            failed = f"  {found['errors']} failed" if found["errors"] else ""
            past = (
                f"  (${found['billed_usd']:.6f} with the calls past VineLM)"
                if found["billed_usd"] > 1.01 * found["usd"]
                else ""
            )
            rows.append(row + (paired if policy != "today" else "") + failed + past)
    return "\n".join(rows)


def aim_line(aim: Mapping[str, Any]) -> str:
    """One aim, and whether it is met."""
    sign = "at most" if aim["wanted"] == 0 else "at least"
    met = "met" if aim["met"] else "missed"
    return f"aim: {aim['aim']}: {aim['reached']} of {aim['of']} (wanted {sign} {aim['wanted']}): {met}"


def _figures(words: str, accuracy: float | None, interval: Interval, usd: float | None, usd_interval: Interval) -> str:
    share = "unknown" if accuracy is None else f"{100 * accuracy:5.1f} %"
    within = "" if not interval else f" ({100 * interval[0]:.1f} to {100 * interval[1]:.1f})"
    dollars = "unknown" if usd is None else f"${usd:.6f}"
    around = "" if not usd_interval else f" (${usd_interval[0]:.6f} to ${usd_interval[1]:.6f})"
    return f"    {words:17s} {share}{within:18s} {dollars}{around}"


def _points(fraction: float) -> str:
    return f"{100 * fraction:+.1f}"

"""The panels of each figure and table, from the numbers of `reproduce.py --json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reproduce_parts.drawing import Panel

TITLES = {
    "table1": "Table 1: mean absolute error of path accuracies at 2 % coverage",
    "table2": "Table 2: dollars of a profile",
    "table3": "Table 3: time of one replanning step",
    "figure7": "Figure 7: accuracy gained over the best workflow-level plan",
    "figure8": "Figure 8: error against coverage",
    "figure9": "Figure 9: achieved against the bound, at 2 % coverage",
    "figure10": "Figure 10: requests that break the latency SLO",
}
PARTS = ("simulated", "recorded")


def panels(name: str, found: dict[str, Any]) -> list[Panel]:
    """The panels of one figure or table."""
    return list(_MAKERS[name](found))


def cases(found: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(part, case, numbers) of everything that was measured."""
    for part in PARTS:
        for case, numbers in (found.get(part) or {}).items():
            yield part, case, numbers


def _table1(found: dict[str, Any]) -> Iterator[Panel]:
    yield Panel("paper: NL2SQL", "", "error", bars={name: row["mae"] for name, row in found["paper"].items()})
    for part, case, rows in cases(found):
        yield Panel(f"{part}: {case}", "", "error", bars={name: row["mae"] for name, row in rows.items()})


def _table2(found: dict[str, Any]) -> Iterator[Panel]:
    shown = {"sparse": "sparse_usd", "checkpointed": "checkpointed_usd", "naive": "naive_usd"}
    for part, case, row in [*(("paper", *item) for item in found["paper"].items()), *cases(found)]:
        yield Panel(f"{part}: {case}", "", "US$", bars={name: row[key] for name, key in shown.items()}, is_log_y=True)


def _table3(found: dict[str, Any]) -> Iterator[Panel]:
    yield Panel("paper", "", "µs (mean)", bars={case: row["mean_us"] for case, row in found["paper"].items()}, is_log_y=True)
    for part in PARTS:
        rows = found.get(part) or {}
        if rows:
            yield Panel(part, "", "µs (mean)", bars={case: row["mean_us"] for case, row in rows.items()}, is_log_y=True)


def _figure7(found: dict[str, Any]) -> Iterator[Panel]:
    for part, case, one in cases(found):
        lines = {name: list(zip(one["caps_usd"], gains, strict=True)) for name, gains in one["gain"].items()}
        yield Panel(f"{part}: {case}", "cap, US$ per request", "accuracy gained", lines, is_log_x=True)


def _figure8(found: dict[str, Any]) -> Iterator[Panel]:
    for part, case, rows in cases(found):
        lines = {name: [(point["coverage"], point["mae"]) for point in points] for name, points in rows.items()}
        yield Panel(f"{part}: {case}", "coverage", "mean absolute error", lines, is_log_x=True, is_log_y=True)


def _figure9(found: dict[str, Any]) -> Iterator[Panel]:
    for part, case, one in cases(found):
        for objective, field, words in (
            ("max_accuracy", "achieved_accuracy", "cap, US$ per request"),
            ("max_accuracy", "achieved_usd", "cap, US$ per request"),
            ("min_cost", "achieved_accuracy", "accuracy asked for"),
            ("min_cost", "achieved_usd", "accuracy asked for"),
        ):
            lines = {
                name: [(point["bound"], point[field]) for point in points if point[field] is not None]
                for name, points in one[objective]["lines"].items()
            }
            is_usd = field == "achieved_usd"
            y_title = "US$ achieved" if is_usd else "accuracy achieved"
            yield Panel(f"{part}: {case}", words, y_title, lines, is_log_x=objective == "max_accuracy", is_log_y=is_usd)


def _figure10(found: dict[str, Any]) -> Iterator[Panel]:
    for part, case, one in cases(found):
        for field, words in (("violation_rate", "late requests"), ("in_slo_accuracy", "right in time")):
            lines = {name: list(zip(one["slos_s"], of[field], strict=True)) for name, of in one["policies"].items()}
            yield Panel(f"{part}: {case}", "SLO, s", words, lines, is_log_x=True)


_MAKERS = {
    "table1": _table1, "table2": _table2, "table3": _table3, "figure7": _figure7, "figure8": _figure8, "figure9": _figure9,
    "figure10": _figure10,
}  # fmt: skip

"""The rows of each CSV file, and the line "paper / ours" of each figure and table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reproduce_parts.charts import cases

Row = dict[str, Any]


def rows(name: str, found: dict[str, Any]) -> list[Row]:
    """One row per number or point; ``part`` is paper, simulated or recorded."""
    return list(_MAKERS[name](found))


def _nested(found: dict[str, Any]) -> Iterator[Row]:
    for part, case, one in cases(found):
        for name, figures in one.items():
            yield {"part": part, "case": case, "estimator": name, **figures}


def _table1(found: dict[str, Any]) -> Iterator[Row]:
    for name, figures in found["paper"].items():
        yield {"part": "paper", "case": "NL2SQL", "estimator": name, **figures}
    yield from _nested(found)


def _flat(found: dict[str, Any]) -> Iterator[Row]:
    for case, figures in found["paper"].items():
        yield {"part": "paper", "case": case, **figures}
    for part, case, figures in cases(found):
        yield {"part": part, "case": case, **figures}


def _figure7(found: dict[str, Any]) -> Iterator[Row]:
    for part, case, one in cases(found):
        for name, gains in one["gain"].items():
            for cap, static, gain in zip(one["caps_usd"], one["static_accuracy"], gains, strict=True):
                yield {"part": part, "case": case, "line": name, "cap_usd": cap, "static_accuracy": static, "gain": gain}


def _figure8(found: dict[str, Any]) -> Iterator[Row]:
    for part, case, one in cases(found):
        for name, points in one.items():
            yield from ({"part": part, "case": case, "estimator": name, **point} for point in points)


def _figure9(found: dict[str, Any]) -> Iterator[Row]:
    for part, case, one in cases(found):
        for objective, figures in one.items():
            for name, points in figures["lines"].items():
                yield from ({"part": part, "case": case, "objective": objective, "estimator": name, **p} for p in points)


def _figure10(found: dict[str, Any]) -> Iterator[Row]:
    for part, case, one in cases(found):
        for name, fields in one["policies"].items():
            for i, slo in enumerate(one["slos_s"]):
                values = {field: values[i] for field, values in fields.items()}
                yield {"part": part, "case": case, "policy": name, "slo_s": slo, **values}


_MAKERS = {
    "table1": _table1, "table2": _flat, "table3": _flat, "figure7": _figure7, "figure8": _figure8, "figure9": _figure9,
    "figure10": _figure10,
}  # fmt: skip


# -- paper / ours ------------------------------------------------------------------------------------------------


def line(name: str, found: dict[str, Any]) -> str:
    """One line: the paper's number first, then ours of each case."""
    paper, of_case = _LINES[name]
    ours = "; ".join(f"{case}: {of_case(one)}" for _, case, one in cases(found))
    return f"paper {paper(found['paper'])} / ours {ours}"


def _points(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _of_table1(one: dict[str, Any]) -> str:
    return f"{_points(one['cascade-svd']['mae'])} with the paper's estimator, {_points(one['latent']['mae'])} with the default"


def _of_figure8(one: dict[str, Any]) -> str:
    first, last = one["latent"][0], one["latent"][-1]
    return f"{_points(first['mae'])} at {first['coverage']:.1%} to {_points(last['mae'])} at {last['coverage']:.1%}"


def _of_figure7(one: dict[str, Any]) -> str:
    gain = one["summary"]
    return (
        f"up to {_points(gain['full']['highest'])} in the paper's way, mean {_points(gain['full']['mean'])}; mean "
        f"{_points(gain['full, held out']['mean'])} on held-out requests, {_points(gain['sparse, latent']['mean'])} from 2 %"
    )


def _of_figure9(one: dict[str, Any]) -> str:
    caps, floors = (one[objective]["summary"]["latent"] for objective in ("max_accuracy", "min_cost"))
    return f"{_points(caps['accuracy_below_best'])} below the best plan, {_points(floors['missed'])} % of floors missed"


def _of_figure10(one: dict[str, Any]) -> str:
    means = {name: _points(figures["violation_rate"]) for name, figures in one["mean"].items()}
    return f"up to {_points(one['largest_cut'])} %; mean " + ", ".join(f"{name} {value} %" for name, value in means.items())


_LINES = {
    "table1": (lambda paper: f"{_points(paper['cascade-svd']['mae'])} points of mean absolute error at 2 %", _of_table1),
    "table2": (
        lambda paper: "naive over sparse " + ", ".join(f"{case} {row['ratio']:.0f}x" for case, row in paper.items()),
        lambda one: f"{one['ratio']:.0f}x",
    ),
    "table3": (
        lambda paper: ", ".join(f"{case} {row['mean_us']:.0f} us" for case, row in paper.items()),
        lambda one: f"{one['mean_us']:.0f} us, {one['overhead']:.4%} of the fastest call",
    ),
    "figure7": (lambda paper: f"gain up to {_points(paper['highest_gain'])} %", _of_figure7),
    "figure8": (lambda paper: "about 1 point at 2 %, lowest at every coverage", _of_figure8),
    "figure9": (lambda paper: "tracks the ground truth closely at 2 %", _of_figure9),
    "figure10": (lambda paper: f"cuts violations by up to {_points(paper['largest_cut'])} %", _of_figure10),
}  # fmt: skip

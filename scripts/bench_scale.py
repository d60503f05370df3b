"""What profiling on several machines and watching for drift reach, each figure measured by a module of its own.

    python scripts/bench_scale.py --json --results results/scale.json
    python scripts/bench_scale.py --only drift

- `ray`: units a second with 1, 2 and 4 at a time on a Ray cluster of two local nodes; and a run whose second node is killed
  half-way, which has to have the rows of an undisturbed one (`scale_parts/ray_units.py`; needs the extra `ray`).
- `postgres`: rows a second that runs write into one store (`scale_parts/postgres_rows.py`; needs PostgreSQL's programs).
- `drift`: false alarms of `vinelm drift` over simulated runs, which must not be more than stated, and the delay until a change
  is named (`drift_delay.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import Any

from drift_delay import drift_figures
from drift_delay import lines as drift_lines
from studies import Options, study


def ray_figures(options: argparse.Namespace) -> dict[str, Any]:
    from scale_parts.ray_units import ray_units_per_s

    return {"ray_units_per_s": ray_units_per_s(units=options.units)}


def postgres_figures(options: argparse.Namespace) -> dict[str, Any]:
    from scale_parts.postgres_rows import postgres_rows_per_s

    return {"postgres_rows_per_s": postgres_rows_per_s(options.postgres)}


PARTS: Mapping[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "ray": ray_figures,
    "postgres": postgres_figures,
    "drift": drift_figures,
}


def check(figures: Mapping[str, Any]) -> None:
    """End with an error where a promise is broken: more false alarms than stated. Rows are compared where they are made."""
    alarms = figures.get("drift_false_alarms")
    if alarms is not None and alarms["interval"][0] > alarms["stated"]:
        raise SystemExit(
            f"{alarms['alarms']} false alarms in {alarms['runs']} runs: more than the stated rate {alarms['stated']}"
        )


def show(figures: Mapping[str, Any]) -> None:
    """Print the figures for people."""
    if "ray_units_per_s" in figures:
        from scale_parts.ray_units import show as show_ray

        show_ray(figures["ray_units_per_s"])
    for size, rate in figures.get("postgres_rows_per_s", {}).get("by_size", {}).items():
        print(f"PostgreSQL, {size} rows before: {rate:,.0f} rows/s")
    print("\n".join(drift_lines(figures)))


def main() -> int:
    """Measure, check and print."""
    options = {
        "--only": (None, "this part only; may be repeated", {"action": "append", "choices": PARTS}),
        "--units": (30, "Ray: rows for each worker of a run"),
        "--postgres": (None, "address of a server; by default an own one is started", {"metavar": "URL"}),
        "--runs": (1000, "drift: simulated runs without a change"),
        "--delay-runs": (200, "drift: simulated runs of each change"),
        "--requests": (3000, "drift: requests of a run"),
        "--profiled": (500, "drift: rows of each node in the profile"),
        "--alpha": (0.05, "drift: the stated rate of false alarms"),
        "--seed": (0, ""),
    }
    return study(__doc__, options, measured, show, fails=check)


def measured(options: Options) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, measure in PARTS.items():
        if options.only is None or name in options.only:
            print(f"... {name}", file=sys.stderr, flush=True)
            figures |= measure(options)
    return figures


if __name__ == "__main__":
    sys.exit(main())

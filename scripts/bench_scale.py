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
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from drift_delay import CHANGES, Settings, delays, named
from result_files import add_results_option, provenance, write_results

from vinelm.estimator import DriftConfig


def ray_figures(options: argparse.Namespace) -> dict[str, Any]:
    from scale_parts.ray_units import ray_units_per_s

    return {"ray_units_per_s": ray_units_per_s(units=options.units)}


def postgres_figures(options: argparse.Namespace) -> dict[str, Any]:
    from scale_parts.postgres_rows import postgres_rows_per_s

    return {"postgres_rows_per_s": postgres_rows_per_s(options.postgres)}


def drift_figures(options: argparse.Namespace) -> dict[str, Any]:
    settings = Settings(options.runs, options.requests, options.profiled, DriftConfig(alpha=options.alpha))
    alarms = named(settings, options.seed, {}) | {"stated": options.alpha}
    delayed = {name: delays(settings, options.seed + 10**6, options.delay_runs, change) for name, change in CHANGES.items()}
    return {"drift_false_alarms": alarms, "drift_delay_requests": delayed}


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
    if "drift_false_alarms" in figures:
        alarms = figures["drift_false_alarms"]
        low, high = alarms["interval"]
        print(f"{alarms['alarms']} false alarms in {alarms['runs']} runs [{low:.4f}, {high:.4f}], stated {alarms['stated']}")
        for name, one in figures["drift_delay_requests"].items():
            print(f"{name}: named in {one['noticed']} of {one['runs']} runs, median after {one['median']} requests")


def main() -> None:
    """Measure, check and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="this part only; may be repeated")
    parser.add_argument("--units", type=int, default=30, help="Ray: rows for each worker of a run")
    parser.add_argument("--postgres", metavar="URL", help="address of a server; by default an own one is started")
    parser.add_argument("--runs", type=int, default=1000, help="drift: simulated runs without a change")
    parser.add_argument("--delay-runs", type=int, default=200, help="drift: simulated runs of each change")
    parser.add_argument("--requests", type=int, default=3000, help="drift: requests of a run")
    parser.add_argument("--profiled", type=int, default=500, help="drift: rows of each node in the profile")
    parser.add_argument("--alpha", type=float, default=0.05, help="drift: the stated rate of false alarms")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    add_results_option(parser)
    options = parser.parse_args()
    made, figures = provenance(options), dict[str, Any]()
    for name, measure in PARTS.items():
        if options.only is None or name in options.only:
            print(f"... {name}", file=sys.stderr, flush=True)
            figures |= measure(options)
    print(json.dumps(figures, indent=1)) if options.json else show(figures)
    check(figures)
    if options.results is not None:
        write_results(options.results, made, figures)


if __name__ == "__main__":
    main()

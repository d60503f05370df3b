"""What knowing the others' load is worth: the rate at a fixed SLO, and P99 latency at the same arrivals, by knowledge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from fleet_parts.simulation import KNOWLEDGE, FleetSetting, Knowledge, serve_all
from fleet_parts.workload import arrivals, fleet_workload, requests
from scipy.special import stdtrit

MOST_LATE = 0.05
"""Share of requests that may miss the SLO."""
FIRST_RATE, STEP, HALVINGS = 9.0, 1.5, 3
"""Requests a second at which the search begins, the factor to the next rate, and the halvings between two rates."""
FARTHEST = 6
"""Steps up or down at most."""
OVERLOADS = (1.0, 1.5, 2.0)
"""P99 is compared at these multiples of the rate that own load alone sustains."""
BUSY = 2
"""Processes to which half of the requests come, where traffic is uneven."""
OWN, SUPPOSED, SUMMARIES, FLEET, ALL = KNOWLEDGE
TITLES = {
    OWN: "own load alone (without `fleet=`)",
    SUPPOSED: "own load times the number of processes",
    SUMMARIES: "`fleet=`, without the global loop",
    FLEET: "`fleet=` and the global loop",
    ALL: "one process that serves and sees everything",
}


@dataclass(frozen=True)
class Case:
    """Which requests arrive when: a stretch of a real trace.

    Attributes:
        data: folder with ``arrivals/``.
        trace: its name in :data:`fleet_parts.workload.TRACES`.
        seed: of the stretch, of the requests, and of the process that each comes to.
        count: number of requests.
    """

    data: Path
    trace: str
    seed: int
    count: int


@dataclass(frozen=True)
class Figures:
    """One run: shares of late and of right answers, seconds, mean dollars of a request."""

    per_second: float
    late: float
    p50_s: float
    p99_s: float
    right: float
    usd: float


def run(case: Case, setting: FleetSetting, per_second: float) -> Figures:
    """Serve the requests of a case at this mean rate."""
    times = arrivals(case.data, case.trace, case.count, per_second, case.seed)
    found = serve_all(fleet_workload(), requests(case.count, case.seed), times, setting)
    p50_s, p99_s = np.quantile(found.latency_s, (0.5, 0.99)).tolist()
    late = float((found.latency_s > setting.slo_s).mean())
    return Figures(per_second, late, p50_s, p99_s, float(found.is_right.mean()), float(found.cost_usd.mean()))


def sustained(case: Case, setting: FleetSetting) -> float:
    """Return the highest rate found with at most :data:`MOST_LATE` late answers; 0 if even the lowest one has more.

    Rates go up by steps until one has too many, then the last step is halved. So it is the first crossing that counts.
    """

    def holds(per_second: float) -> bool:
        return run(case, setting, per_second).late <= MOST_LATE

    low = FIRST_RATE
    for _ in range(FARTHEST):
        if holds(low):
            break
        low /= STEP
    else:
        return 0.0
    if low < FIRST_RATE:
        high = low * STEP
    else:
        for _ in range(FARTHEST):
            high = low * STEP
            if not holds(high):
                break
            low = high
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def study_case(case: Case, setting: FleetSetting) -> dict[str, Any]:
    """All runs of one case: the sustained rates by knowledge, and figures by knowledge at multiples of that of own load."""
    setting = replace(setting, seed=case.seed)
    by_knowledge = {known: replace(setting, knowledge=known) for known in KNOWLEDGE}
    rates = {known: sustained(case, one) for known, one in by_knowledge.items()}
    loads = {
        times: {known: run(case, one, times * rates[OWN]) for known, one in by_knowledge.items()}
        for times in (OVERLOADS if rates[OWN] else ())
    }
    uneven = {known: sustained(case, replace(one, busy=BUSY)) for known, one in by_knowledge.items() if known != ALL}
    return {"trace": case.trace, "seed": case.seed, "rates": rates, "uneven": {**uneven, ALL: rates[ALL]}, "loads": loads}


def simulated(cases: Iterable[Case], setting: FleetSetting, workers: int) -> Iterator[dict[str, Any]]:
    """Yield what :func:`study_case` found for each case, as they are done."""
    fleet_workload()  # before the workers fork, so that they share it
    with ProcessPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(study_case, case, setting) for case in cases]):
            yield done.result()


def page_figures(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the page quotes. Ratios are paired by case; an interval is the 95 % t interval of the mean of their logarithms."""
    kept = [one for one in found if all(one["rates"].values()) and all(one["uneven"].values())]
    even, uneven = (_by_knowledge(kept, traffic) for traffic in ("rates", "uneven"))
    return {
        "cases": len(kept),
        "cases_without_a_rate": len(found) - len(kept),
        "rate": {known: _rate(known, even) for known in KNOWLEDGE},
        "uneven_rate": {known: _rate(known, uneven) for known in KNOWLEDGE},
        "loads": {f"{times:g}": _at(times, kept) for times in OVERLOADS},
        "by_case": [_plain(one) for one in sorted(found, key=lambda one: (one["trace"], one["seed"]))],
    }


def _by_knowledge(kept: Sequence[dict[str, Any]], traffic: str) -> dict[Knowledge, np.ndarray]:
    return {known: np.array([one[traffic][known] for one in kept]) for known in KNOWLEDGE}


def _rate(known: Knowledge, rates: dict[Knowledge, np.ndarray]) -> dict[str, Any]:
    return {
        "title": TITLES[known],
        "per_second": float(rates[known].mean()),
        "over_own": ratio(rates[known], rates[OWN]),
        "of_all": ratio(rates[known], rates[ALL]),
    }


def _at(times: float, kept: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures at a multiple of the rate that own load sustains."""
    runs: dict[Knowledge, list[Figures]] = {known: [one["loads"][times][known] for one in kept] for known in KNOWLEDGE}
    p99 = {known: np.array([one.p99_s for one in mine]) for known, mine in runs.items()}
    return {
        known: {
            "title": TITLES[known],
            "p99_s": float(p99[known].mean()),
            "p99_over_own": ratio(p99[known], p99[OWN]),
            "p99_over_all": ratio(p99[known], p99[ALL]),
            "late": float(np.mean([one.late for one in mine])),
            "right": float(np.mean([one.right for one in mine])),
            "usd": float(np.mean([one.usd for one in mine])),
        }
        for known, mine in runs.items()
    }


def ratio(these: np.ndarray, those: np.ndarray) -> dict[str, Any]:
    """Return the geometric mean of paired ratios, its 95 % interval, and both as text; one pair has no interval."""
    logs = np.log(these / those)
    mean, n = float(logs.mean()), len(logs)
    half = float(stdtrit(n - 1, 0.975) * logs.std(ddof=1) / n**0.5) if n > 1 else float("nan")
    low, high = (float(np.exp(mean + sign * half)) for sign in (-1, 1))
    if n == 1:
        return {"mean": float(np.exp(mean)), "text": f"{np.exp(mean):.2f}"}
    return {"mean": float(np.exp(mean)), "low": low, "high": high, "text": f"{np.exp(mean):.2f} ({low:.2f} to {high:.2f})"}


def _plain(one: dict[str, Any]) -> dict[str, Any]:
    """A case without the runs: what a reader needs to see the spread."""
    p99 = {f"{times:g}": {known: figures.p99_s for known, figures in by.items()} for times, by in one["loads"].items()}
    return {"trace": one["trace"], "seed": one["seed"], "rates": one["rates"], "uneven": one["uneven"], "p99_s": p99}

"""False alarms and delay of `vinelm drift`'s tests, over simulated runs of a serving process.

    python scripts/drift_delay.py --runs 2000 --requests 2000 --results results/drift.json
    python scripts/drift_delay.py --canary 0.5 --runs 200 --requests 6000

Each run serves requests over the same nodes with the same tests, weights and thresholds as `DriftMonitor`; all runs at once.
Annotations are estimated from a simulated profile of `--profiled` rows per node, anew for each run, so that their errors count.
Stops are Bernoulli, dollars log-normal, seconds a gamma distribution; none of the tests knows. Without drift every alarm is
false. With drift one quantity of the busiest node changes half-way; the delay is counted in requests from the change to the
alarm.

With `--canary SHARE` a plan serves that share of the requests instead, with the tests and thresholds of `vinelm.api.canary` for
accuracy and dollars, and all requests have feedback. It says in how many simulated worlds the canary goes back, by how much
worse the plan is. Today's accuracy is drawn anew for each world.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy.stats import binomtest
from studies import Options, study

from vinelm.api.canary import ALPHA, RELATIVE, WINSORIZED, WORSE
from vinelm.catalog import Catalog
from vinelm.estimator import DriftConfig
from vinelm.estimator.drift.e_process import EProcess, GroupComparison
from vinelm.estimator.drift.hypotheses import hypotheses_of
from vinelm.estimator.drift.monitor import ANNOTATION_SHARE
from vinelm.template import Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie

SHARES = (0.5, 0.3, 0.15, 0.05)
"""Of the requests, by node: the models that plans of several objectives call first."""
STOP, DOLLARS, SECONDS = 0.6, 0.002, 1.5
SPREAD = 0.6
"""Standard deviation of the log dollars; seconds have the shape of a gamma distribution of 2."""
CHANGES: Mapping[str, Mapping[str, float]] = {
    "stop 0.6 to 0.4": {"stop": 0.4 / 0.6},
    "stop 0.6 to 0.8": {"stop": 0.8 / 0.6},
    "dollars x 1.5": {"dollars": 1.5},
    "dollars x 0.6": {"dollars": 0.6},
    "seconds x 1.5": {"seconds": 1.5},
    "seconds x 0.6": {"seconds": 0.6},
}
TOLERATED: Mapping[str, float] = {"stop": (STOP - 0.05) / STOP, "dollars": 1.1, "seconds": 1.1}
"""A move of all nodes by just the tolerance."""
PLANS: Mapping[str, tuple[float, float]] = {
    "10 points worse": (-0.1, 1.0),
    "20 points worse": (-0.2, 1.0),
    "1.5 times as dear": (0.0, 1.5),
    "equal": (0.0, 1.0),
    "5 points better, half the dollars": (0.05, 0.5),
    "worse by just what is tolerated": (-0.01, 1.1),
}
"""Plans of a canary: accuracy over today's, and dollars in multiples of today's."""


@dataclass(frozen=True)
class Settings:
    """Of all runs: their number, the requests of each, the rows per node of its profile, and the tests' settings."""

    runs: int
    requests: int
    profiled: int
    config: DriftConfig


def template_and_catalog() -> tuple[Template, Catalog]:
    """Return one stage with as many models as there are shares."""
    price = {"input": 1.0, "output": 1.0, "source": "simulated", "as_of": "2026-01-01"}
    names = [f"m{i}" for i in range(len(SHARES))]
    catalog = Catalog.from_dict({"model": [{"name": n, "provider": "simulated", "model": n, "price": price} for n in names]})
    return Template((Stage("answer", tuple(names)),)), catalog


def amounts(rng: np.random.Generator, shape: tuple[int, ...], factor: Mapping[str, float]) -> dict[str, Any]:
    """Return stops, dollars and seconds of so many rows."""
    return {
        "stop": (rng.random(shape) < STOP * factor.get("stop", 1.0)).astype(float),
        "dollars": DOLLARS * factor.get("dollars", 1.0) * rng.lognormal(-(SPREAD**2) / 2, SPREAD, shape),
        "seconds": SECONDS * factor.get("seconds", 1.0) * rng.gamma(2.0, 0.5, shape),
    }


def profiled_trie(rng: np.random.Generator, profiled: int) -> AnnotatedTrie:
    """Return the trie that a profile of so many rows per node would give: sample means and variances."""
    template, catalog = template_and_catalog()
    trie = Trie.from_template(template)
    names = {"stop": "stop", "cost_usd": "dollars", "latency_s": "seconds"}
    found = amounts(rng, (len(trie), profiled), {})
    inside = trie.depth > 0
    arrays = {name: np.where(inside, found[what].mean(1), 0.0) for name, what in names.items()}
    for name, what in (("cost_var", "dollars"), ("latency_var", "seconds")):
        arrays[name] = np.where(inside, found[what].var(1, ddof=1), 0.0)
    success = np.where(inside, 0.5, 0.0)
    return AnnotatedTrie(
        trie, template, catalog, success=success, stop_success=success * arrays["stop"],
        count=np.where(inside, profiled, 0), **arrays,
    )  # fmt: skip


def first_alarms(
    rng: np.random.Generator, settings: Settings, runs: int, before: Mapping[str, float], after: Mapping[str, float]
) -> Any:
    """Return the request of the first alarm of each run, ``settings.requests`` without one; shape (runs,).

    From half-way on ``after`` holds for the busiest node, ``before`` for all others and until then.
    """
    half, total = settings.requests // 2, settings.requests
    tries = [profiled_trie(rng, settings.profiled) for _ in range(runs)]
    node = rng.choice(len(SHARES), (runs, total), p=SHARES)
    first = np.stack([np.where((node == k).any(1), (node == k).argmax(1), total + k) for k in range(len(SHARES))], 1)
    rank = first.argsort(1).argsort(1) + 1  # the k-th node that a run reaches
    alarm = np.full(runs, total)
    for k in range(len(SHARES)):
        most = int((node == k).sum(1).max())
        at = np.argsort(node != k, 1, kind="stable")[:, :most]  # the requests of the node, in order, then others
        counts = np.arange(most) < (node == k).sum(1)[:, None]
        usual = amounts(rng, (runs, most), before)
        if k == 0 and after:
            changed = amounts(rng, (runs, most), {**before, **after})
            usual = {name: np.where(at >= half, changed[name], usual[name]) for name in usual}
        crossed = node_alarms(tries, k, rank[:, k], values=usual, counts=counts, config=settings.config)
        alarm = np.minimum(alarm, np.where(crossed < most, at[np.arange(runs), np.minimum(crossed, most - 1)], total))
    return alarm


def node_alarms(tries: Any, k: int, rank: Any, *, values: Mapping[str, Any], counts: Any, config: DriftConfig) -> Any:
    """Return the row of the first alarm of one node in each run, the number of rows without one; shape (runs,)."""
    share = config.alpha / (rank * (rank + 1))
    node = tries[0].trie.node((f"m{k}",))
    claims = [
        hypotheses_of(trie, node, alpha=a * ANNOTATION_SHARE, points=config.points, relative=config.relative)
        for trie, a in zip(tries, share, strict=True)
    ]
    crossed = np.full(len(tries), counts.shape[1])
    for place, one in enumerate(claims[0]):
        kind = type(one.process.bets)
        of_runs = [run[place].process.bets for run in claims]
        process = EProcess(kind(**{f.name: np.array([getattr(bets, f.name) for bets in of_runs]) for f in fields(kind)}))
        threshold = np.log(len(claims[0]) / (share * (1.0 - ANNOTATION_SHARE)))
        for row in range(counts.shape[1]):
            above = (process.add(values[one.quantity][:, row]) >= threshold) & counts[:, row]
            crossed = np.where(above & (row < crossed), row, crossed)
    return crossed


def named(settings: Settings, seed: int, factor: Mapping[str, float]) -> dict[str, Any]:
    """Return in how many runs without a change half-way anything is named, with the exact 95 % interval of the rate."""
    found = int((first_alarms(np.random.default_rng(seed), settings, settings.runs, factor, {}) < settings.requests).sum())
    interval = binomtest(found, settings.runs).proportion_ci(0.95)
    return {"runs": settings.runs, "alarms": found, "rate": found / settings.runs, "interval": [interval.low, interval.high]}


def delays(settings: Settings, seed: int, runs: int, change: Mapping[str, float]) -> dict[str, Any]:
    """Return the delay in requests of the runs that notice the change, and how many do not; None for what most runs miss."""
    alarm, half = first_alarms(np.random.default_rng(seed), settings, runs, {}, change), settings.requests // 2
    noticed = (alarm >= half) & (alarm < settings.requests)
    late = np.sort(np.where(alarm < settings.requests, alarm - half, np.inf)[alarm >= half])
    quantile = {q: float(late[min(int(q * len(late)), len(late) - 1)]) for q in (0.5, 0.9)}
    median, p90 = (value if np.isfinite(value) else None for value in quantile.values())
    return {"runs": runs, "noticed": int(noticed.sum()), "early": int((alarm < half).sum()), "median": median, "p90": p90}


def canary_figures(options: Options, plan: tuple[float, float]) -> dict[str, Any]:
    """Return in how many worlds a canary goes back or shows the plan to be no worse, and the request at which it goes back."""
    rng, share, worlds, margin = np.random.default_rng(options.seed), options.canary, options.runs, 0.01
    (gain, factor), accuracy = plan, np.random.default_rng(options.seed).uniform(0.4, 0.9, options.runs)
    worse = GroupComparison(share, margin=margin), GroupComparison(share)
    better = GroupComparison(share), GroupComparison(share, margin=-margin), GroupComparison(1.0 - share)
    total, count, shown = np.zeros((2, worlds)), np.zeros((2, worlds)), np.zeros((3, worlds), bool)
    back, switched = np.full(worlds, options.requests), np.zeros(worlds, bool)
    for at in range(options.requests):
        is_plan = rng.random(worlds) < share
        right = (rng.random(worlds) < accuracy + gain * is_plan).astype(float)
        dollars = amounts(rng, (worlds,), {})["dollars"] * np.where(is_plan, factor, 1.0)
        most = WINSORIZED * (total / np.maximum(count, 1.0)).max(0) if at else dollars  # its first is not compared
        lost = [worse[0].add(is_plan, 1.0 - right), worse[1].add(is_plan, dollars, ratio=1.0 + RELATIVE, most=most)]
        won = [better[0].add(is_plan, right), better[1].add(is_plan, right), better[2].add(~is_plan, dollars, most=most)]
        total[is_plan.astype(int), np.arange(worlds)] += dollars
        count[is_plan.astype(int), np.arange(worlds)] += 1.0
        back = np.where((np.max(lost, 0) >= np.log(2 * len(WORSE) / ALPHA)) & (back == options.requests), at, back)
        shown |= np.array(won) >= np.log(2 / ALPHA)
        switched |= (shown[0] | (shown[1] & shown[2])) & (back == options.requests)
    found = int((back < options.requests).sum())
    interval = binomtest(found, worlds).proportion_ci(0.95)
    return {
        "worlds": worlds, "back": found, "interval": [interval.low, interval.high], "median": float(np.median(back)),
        "p95": float(np.quantile(back, 0.95)), "switch": int(switched.sum()),
    }  # fmt: skip


def main() -> int:
    """Run the simulations and print them."""
    options = {
        "--runs": (2000, "runs without a change, of each kind"),
        "--delay-runs": (400, "runs of each change"),
        "--requests": (4000, "requests of a run"),
        "--profiled": (500, "rows of each node in the profile"),
        "--alpha": (0.05, ""),
        "--seed": (0, ""),
        "--canary": (float, "simulate a canary with this share instead"),
    }
    return study(__doc__, options, measured, lines)


def measured(options: Options) -> dict[str, Any]:
    if options.canary is not None:
        return {
            "plans": [{"plan": name, "share": options.canary, **canary_figures(options, plan)} for name, plan in PLANS.items()]
        }
    asked = {name: vars(options)[name] for name in ("alpha", "requests", "profiled")}
    settings = Settings(options.runs, options.requests, options.profiled, DriftConfig(alpha=options.alpha))
    return {**drift_figures(options), "drift_named_at_tolerance": named(settings, options.seed, TOLERATED), **asked}


def drift_figures(options: Options) -> dict[str, Any]:
    """False alarms, and the delay of each change."""
    settings = Settings(options.runs, options.requests, options.profiled, DriftConfig(alpha=options.alpha))
    alarms = named(settings, options.seed, {}) | {"stated": options.alpha}
    delayed = {name: delays(settings, options.seed + 10**6, options.delay_runs, change) for name, change in CHANGES.items()}
    return {"drift_false_alarms": alarms, "drift_delay_requests": delayed}


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the figures for people."""
    yield from map(json.dumps, found.get("plans", ()))
    if "drift_false_alarms" in found:
        alarms = found["drift_false_alarms"]
        low, high = alarms["interval"]
        yield f"{alarms['alarms']} false alarms in {alarms['runs']} runs [{low:.4f}, {high:.4f}], stated {alarms['stated']}"
    if "drift_named_at_tolerance" in found:
        tolerated = found["drift_named_at_tolerance"]
        yield f"{tolerated['alarms']} of {tolerated['runs']} runs name a move of just the tolerance"
    for name, one in found.get("drift_delay_requests", {}).items():
        yield f"{name}: noticed in {one['noticed']} of {one['runs']} runs, median {one['median']} requests, p90 {one['p90']}"


if __name__ == "__main__":
    sys.exit(main())

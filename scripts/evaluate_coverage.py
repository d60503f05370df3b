"""Do the intervals of `vinelm evaluate` cover the truth, and does it claim gains where there are none?

Draws --worlds worlds: models of random ability and price, requests of random difficulty, a check that is right more or less
often. In each a profile buys rows with VineLM's own sampler, `vinelm evaluate`'s cross-fitting plans and judges from these rows
alone, and what every chosen plan really achieves is computed on 20,000 fresh requests of the same world. A claim is false where
VineLM's plans truly gain nothing over the best static plan or over the best single model.

With --data a world is a random half of the requests of a recorded table, and some of its systems: real answers of text-to-SQL
systems on Spider, of models on exam questions, and of code generators on ClassEval. The truth is that of the whole table.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from result_files import add_results_option, provenance, write_results
from scipy.stats import beta
from signals_parts.buying import bought, catalog_of, template_of
from signals_parts.systems import load_tables

from vinelm.errors import VineLMError
from vinelm.evaluation import NO_ANSWER, NO_SIGNAL, BothWays, CrossFit, Evaluation, OutcomeTable, PathSteps, judged_policies
from vinelm.evaluation.rivals import PathPolicy
from vinelm.objective import Objective

FRESH = 20_000
"""Requests that the truth is computed on: its standard error is below 0.4 points."""
CAPS = (0.25, 0.5, 0.75)
"""Places of the budgets of the sweep between the cheapest and the dearest model, on the scale of log dollars."""
POLICIES = ("paths", "static", "single")


@dataclass(frozen=True)
class World:
    """A population of requests and the models that answer them.

    Args:
        ability: Of each model, shape (models,).
        own: Weight of what only this model finds hard: the rest of the difficulty is shared; same shape.
        usd: Dollars of a call; same shape.
        spread: Standard deviation of the requests' difficulty.
        check: Chance that the application's check passes a right answer, and a wrong one.
    """

    ability: np.ndarray
    own: np.ndarray
    usd: np.ndarray
    spread: float
    check: tuple[float, float]

    @classmethod
    def draw(cls, rng: np.random.Generator) -> World:
        """Prices rise with ability but for noise, as they do in catalogs; some worlds have models that are all alike."""
        models = int(rng.integers(2, 5))
        usd = np.sort(10.0 ** rng.uniform(-4, -2, models))
        slope = 0.0 if rng.random() < 0.3 else rng.uniform(0.2, 1.2)
        ability = rng.normal(0.3, 0.7) + slope * (np.log10(usd) + 3) + rng.normal(0, 0.4, models)
        right = rng.uniform(0.85, 1.0)
        return cls(ability, rng.uniform(0.3, 1.2, models), usd, rng.uniform(0.5, 2.0), (right, rng.uniform(0.1, 0.8)))

    def table(self, rng: np.random.Generator, n: int) -> OutcomeTable:
        """Draw requests with the answers of every model, as an exact table."""
        shape = (n, len(self.ability))
        hard = rng.normal(0, self.spread, n)[:, None] + self.own * rng.normal(0, 1, shape)
        success = rng.random(shape) < 1.0 / (1.0 + np.exp(hard - self.ability))
        passed = rng.random(shape) < np.where(success, *self.check)
        return OutcomeTable(
            request_ids=tuple(f"r{i}" for i in range(n)), systems=tuple(f"m{i}" for i in range(shape[1])), success=success,
            signal=np.full(shape, NO_SIGNAL), labels=(), passed=passed, answer_class=np.full(shape, NO_ANSWER),
            cost_usd=self.usd * rng.lognormal(-0.08, 0.4, shape), groups=tuple(f"r{i}" for i in range(n)),
        )  # fmt: skip


@dataclass(frozen=True)
class RecordedWorld:
    """Some systems of a recorded table of first answers, as a world."""

    whole: OutcomeTable

    @classmethod
    def draw(cls, rng: np.random.Generator, tables: Sequence[OutcomeTable]) -> RecordedWorld:
        """Choose a table and two to four of its systems, the cheapest first."""
        table = tables[int(rng.integers(len(tables)))]
        usd = dict(zip(table.systems, table.cost_usd.mean(axis=0), strict=True))
        names = rng.choice(table.systems, int(rng.integers(2, 5)), replace=False).tolist()
        return cls(without_answers(table.for_systems(sorted(names, key=lambda name: usd[name]))))

    @property
    def usd(self) -> np.ndarray:
        """Mean dollars of a call, shape (models,)."""
        return np.asarray(self.whole.cost_usd.mean(axis=0))

    def table(self, rng: np.random.Generator, n: int) -> OutcomeTable:
        """Half of the requests at random; all of them for more requests than there are."""
        return self.whole if n >= FRESH else self.whole.rows(rng.permutation(len(self.whole))[: len(self.whole) // 2].tolist())


def without_answers(table: OutcomeTable) -> OutcomeTable:
    """The same table with nothing but the check to see: plans over signals take seconds each."""
    shape = table.success.shape
    return replace(table, signal=np.full(shape, NO_SIGNAL), labels=(), answer_class=np.full(shape, NO_ANSWER))


@dataclass(frozen=True)
class Trial:
    """One comparison in one world: the estimate with its interval, and the truth."""

    what: str
    truth: float
    value: float
    low: float
    high: float
    effective: float

    @property
    def covers(self) -> bool:
        """Whether the truth lies in the interval, but for rounding."""
        return self.low - 1e-9 <= self.truth <= self.high + 1e-9


def main() -> int:
    arguments = parsed()
    made = provenance(arguments)
    result = run(arguments)
    if arguments.results:
        write_results(arguments.results, made, result)
    print(json.dumps(result, indent=2) if arguments.json else as_text(result))
    return 0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=1000, help="worlds to draw (default %(default)s)")
    parser.add_argument("--estimator", default="cascade-svd", help="estimator that plans (default %(default)s: the fastest)")
    parser.add_argument("--data", type=Path, help="folder with recorded tables: take worlds from them instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_results_option(parser)
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Draw the worlds one after the other."""
    trials: dict[str, list[Trial]] = defaultdict(list)
    verdicts: list[tuple[str, float]] = []
    started, skipped = time.perf_counter(), 0
    tables = [] if arguments.data is None else [table for table, _ in load_tables(arguments.data, None).values()]
    for i in range(arguments.worlds):
        found = one_world(np.random.default_rng((arguments.seed, i)), i, arguments.estimator, tables)
        if found is None:
            skipped += 1
            continue
        for trial in found[0]:
            trials[trial.what].append(trial)
        verdicts.append(found[1])
        if sys.stderr.isatty() and i % 20 == 0:
            print(f"\r{i} of {arguments.worlds} worlds", end="", file=sys.stderr)
    return summary(arguments, trials, verdicts, skipped, time.perf_counter() - started)


def one_world(
    rng: np.random.Generator, seed: int, estimator: str, tables: Sequence[OutcomeTable]
) -> tuple[list[Trial], tuple[str, float]] | None:
    """Profile, evaluate, and compute the truth. None where the rows are too few for an estimate or a plan.

    Returns:
        The trials, and the verdict with the truth of the smaller of the two gains.
    """
    world = RecordedWorld.draw(rng, tables) if tables else World.draw(rng)
    depth = int(rng.choice((2, 3, 3, 4)))
    table = world.table(rng, int(rng.integers(80, 801)))
    catalog = catalog_of(table)
    template = template_of(depth).bind(tuple(catalog))
    everything = table.as_recorded_table(template, catalog).exhaustive_cost_usd
    spent = everything * float(10 ** rng.uniform(-1.3, -0.3))
    sampler = str(rng.choice(["priced", "cascade"]))
    rows = bought(table, template, catalog, sampler=sampler, budget_usd=spent, seed=seed)
    usd = np.log(world.usd)
    caps = [float(np.exp(usd[0] + share * (usd[-1] - usd[0]))) * 1.1 for share in CAPS]
    try:
        fit = CrossFit(table.request_ids, rows, template, catalog, estimator=estimator, seed=seed)
        runs = fit.runs([Objective(maximize="accuracy", max_cost_usd=cap) for cap in caps], hindsight=False)
    except VineLMError:
        return None
    if not runs:
        return None
    fresh = world.table(rng, FRESH)
    sizes = [len(fit.bought[1 - half].requests) for half in (0, 1)]
    truth = {name: true_value(runs, name, fresh, sizes) for name in POLICIES}
    policies = judged_policies(runs, "accuracy")
    found = {one.name: one for one in policies}
    trials = [
        Trial(f"value of {name}", truth[name], est.value, est.low, est.high, est.effective)
        for name in POLICIES
        if (est := found[name].accuracy).is_identified
    ]
    trials += [
        Trial(f"gain over {other}", truth["paths"] - truth[other], est.value, est.low, est.high, est.effective)
        for other, est in found["paths"].against.items()
        if est.is_identified and not est.is_same
    ]
    evaluation = Evaluation(
        objectives=tuple(Objective(maximize="accuracy", max_cost_usd=cap) for cap in caps), policies=tuple(policies),
        requests=len(table), rows=len(rows), spent_usd=spent,
    )  # fmt: skip
    return trials, (evaluation.verdict, truth["paths"] - max(truth["static"], truth["single"]))


def true_value(runs: Sequence[BothWays], name: str, fresh: OutcomeTable, sizes: Sequence[int]) -> float:
    """The mean over the budgets and both directions of what the chosen plans achieve on fresh requests."""
    total = 0.0
    for both in runs:
        for half in (0, 1):
            steps = both.by_half[half][name].chosen.steps  # type: ignore[index]
            assert isinstance(steps, PathSteps)
            total += sizes[half] / sum(sizes) * float(PathPolicy(steps.path).run(fresh).success.mean()) / len(runs)
    return total


def binomial(k: int, n: int) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper and Pearson)."""
    low = 0.0 if k == 0 else float(beta.ppf(0.025, k, n - k + 1))
    return low, 1.0 if k == n else float(beta.ppf(0.975, k + 1, n - k))


def summary(
    arguments: argparse.Namespace,
    trials: dict[str, list[Trial]],
    verdicts: Sequence[tuple[str, float]],
    skipped: int,
    seconds: float,
) -> dict[str, Any]:
    """Coverage by comparison and in all, false claims, power by the size of the true gain."""
    coverage = {what: covered(found) for what, found in sorted(trials.items())}
    coverage["all gains"] = covered([t for what, found in trials.items() if what.startswith("gain") for t in found])
    nothing = [verdict for verdict, gain in verdicts if gain <= 0.0]
    claimed = sum(verdict == "gain" for verdict in nothing)
    power = []
    for low, high in ((0.0, 0.02), (0.02, 0.05), (0.05, 0.1), (0.1, 1.0)):
        inside = [verdict for verdict, gain in verdicts if low < gain <= high]
        gains = sum(verdict == "gain" for verdict in inside)
        power.append({"gain_from": low, "gain_to": high, "worlds": len(inside), "claimed": gains})
    counts: dict[str, int] = defaultdict(int)
    for verdict, _ in verdicts:
        counts[verdict] += 1
    return {
        "worlds": arguments.worlds,
        "skipped": skipped,
        "estimator": arguments.estimator,
        "data": None if arguments.data is None else "recorded",
        "seed": arguments.seed,
        "seconds": round(seconds, 1),
        "coverage": coverage,
        "without_gain": {"worlds": len(nothing), "claimed": claimed, "interval": binomial(claimed, max(len(nothing), 1))},
        "power": power,
        "verdicts": dict(counts),
    }


def covered(found: Sequence[Trial]) -> dict[str, Any]:
    """How many intervals cover, the share with its binomial interval, the mean half-width, and the mean error."""
    k, n = sum(trial.covers for trial in found), len(found)
    low, high = binomial(k, n) if n else (0.0, 1.0)
    widths = [(trial.high - trial.low) / 2 for trial in found]
    return {
        "intervals": n,
        "covered": k,
        "share": k / n if n else math.nan,
        "interval": [low, high],
        "includes_95": low <= 0.95 <= high,
        "mean_half_width": float(np.mean(widths)) if n else math.nan,
        "bias": float(np.mean([trial.value - trial.truth for trial in found])) if n else math.nan,
    }


def as_text(result: dict[str, Any]) -> str:
    """The figures as lines."""
    lines = [f"{result['worlds']} worlds ({result['skipped']} too small), {result['estimator']}, {result['seconds']} s"]
    lines.append(f"{'':18} intervals  covered   95 % of the share   half-width    bias")
    for what, one in result["coverage"].items():
        low, high = one["interval"]
        lines.append(
            f"{what:18} {one['intervals']:9} {100 * one['share']:7.1f} %   {100 * low:5.1f} to {100 * high:5.1f} %"
            f"{100 * one['mean_half_width']:13.1f} {100 * one['bias']:+7.2f}"
        )
    none = result["without_gain"]
    low, high = none["interval"]
    lines.append(
        f"gain claimed in {none['claimed']} of {none['worlds']} worlds without one ({100 * low:.1f} to {100 * high:.1f} %)"
    )
    for one in result["power"]:
        lines.append(
            f"true gain {100 * one['gain_from']:.0f} to {100 * one['gain_to']:.0f} points: claimed in"
            f" {one['claimed']} of {one['worlds']} worlds"
        )
    lines.append("verdicts: " + ", ".join(f"{name} {n}" for name, n in sorted(result["verdicts"].items())))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

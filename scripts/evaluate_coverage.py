"""Do the intervals of `vinelm evaluate` cover the truth, and does it claim gains where there are none?

Draws worlds of two kinds: models of random ability and price, requests of random difficulty, a check that is right more or
less often, and in worlds with signals answers that agree or not, half of them with a signal. In each a profile buys rows
with VineLM's own sampler, `vinelm evaluate`'s cross-fitting plans and judges from these rows alone, with its default
estimator and its default sweep of budgets, and what every chosen plan really achieves is computed on 10,000 fresh requests
of the same world. A claim is false where the policy that it is about truly gains nothing over the best static plan or over
the best single model.

How often the verdict is wrong, `scripts/gate_worlds.py` finds out; here a gain is claimed where both intervals are above zero.
A vote and asking until two agree are left out: no verdict depends on them, and they take a third of the time.

With --data a world is a random half of the requests of a recorded table, and some of its systems: real answers of text-to-SQL
systems on Spider, of models on exam questions, and of code generators on ClassEval. The truth is that of the whole table.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from coverage_parts.figures import Judged, Trial, as_text, summary
from coverage_parts.worlds import RecordedWorld, World
from science.complete_tables import as_recorded_table
from signals_parts.buying import bought, catalog_of, template_of
from signals_parts.systems import OWN_CHECK, load_tables
from studies import each, study

from vinelm.errors import VineLMError
from vinelm.evaluation import Evaluation, OutcomeTable
from vinelm.evaluation.comparison.comparable import swept
from vinelm.evaluation.comparison.cross_fit import BothWays, CrossFit, estimated_policies
from vinelm.evaluation.off_policy.table_walk import walk_ends
from vinelm.profiler.sampling.priced_sampler import CONTINUED_SHARE
from vinelm.template import Template
from vinelm.trie.verdict import Verdict

FRESH = 10_000
"""Requests that the truth is computed on: its standard error is at most 0.5 points."""
KINDS = ("paths", "signals")


def main() -> int:
    options = {
        "--worlds": (1000, "worlds to draw without signals (default %(default)s)"),
        "--signal-worlds": (int, "worlds to draw with signals (default: as many)"),
        "--jobs": (1, "processes (default %(default)s)"),
        "--kinds": (KINDS, "what applications show (default: both)", {"choices": KINDS}),
        "--estimator": ("latent", "estimator that plans (default %(default)s, as of evaluate)"),
        "--data": (Path, "folder with recorded tables: take worlds from them instead"),
        "--memory": (int, "loops merge histories that differ before so many turns (default: none do)"),
        "--seed": (0, ""),
    }
    return study(__doc__, options, run, lines)


def lines(result: dict[str, Any]) -> Iterator[str]:
    for kind, found in result["kinds"].items():
        yield f"{kind}: {found['worlds']} worlds ({found['skipped']} too small), {result['estimator']}"
        yield as_text(found)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Draw the worlds of every kind, one after the other."""
    tables = [] if arguments.data is None else [one.table for one in load_tables(arguments.data, None, OWN_CHECK).values()]
    counts = {
        "paths": arguments.worlds,
        "signals": arguments.worlds if arguments.signal_worlds is None else arguments.signal_worlds,
    }
    kinds = {kind: run_kind(arguments, kind, counts[kind], tables) for kind in arguments.kinds}
    return {"estimator": arguments.estimator, "kinds": kinds}


def run_kind(arguments: argparse.Namespace, kind: str, worlds: int, tables: Sequence[OutcomeTable]) -> dict[str, Any]:
    """Draw worlds of one kind and sum them up."""
    memory = getattr(arguments, "memory", None)
    draw = partial(drawn_world, seed=arguments.seed, kind=kind, estimator=arguments.estimator, tables=tables, memory=memory)
    found = list(each(draw, range(worlds), jobs=arguments.jobs, told=f"{kind} worlds"))
    judged = [one for one, _ in found if one is not None]
    return {
        "worlds": worlds,
        "skipped": worlds - len(judged),
        "processor_s": round(sum(seconds for _, seconds in found)),
        **summary(judged),
    }


def drawn_world(
    index: int, *, seed: int, kind: str, estimator: str, tables: Sequence[OutcomeTable], memory: int | None
) -> tuple[Judged | None, float]:
    """The world of that number, and the processor seconds that it took."""
    started = time.process_time()
    rng = np.random.default_rng((seed, KINDS.index(kind), index))
    found = one_world(rng, index, estimator, tables, signals=kind == "signals", memory=memory)
    return found, time.process_time() - started


def one_world(
    rng: np.random.Generator, seed: int, estimator: str, tables: Sequence[OutcomeTable], *, signals: bool, memory: int | None
) -> Judged | None:
    """Profile, evaluate, and compute the truth. None where the rows are too few for an estimate or a plan."""
    world = RecordedWorld.draw(rng, tables, signals=signals) if tables else World.draw(rng, signals=signals)
    depth = int(rng.choice((2, 3, 3, 4)))
    table = world.table(rng, int(rng.integers(80, 801)))
    catalog = catalog_of(table)
    template = template_of(depth, memory).bind(tuple(catalog))
    spent = as_recorded_table(table, template, catalog).exhaustive_cost_usd * float(10 ** rng.uniform(-1.3, -0.3))
    sampler = "priced" if signals else str(rng.choice(["priced", "cascade"]))  # "cascade" buys nothing below a passed check
    rows = bought(
        table, template, catalog, sampler=sampler, budget_usd=spent, seed=seed,
        continued_share=CONTINUED_SHARE if signals else 0.0,
    )  # fmt: skip
    try:
        fit = CrossFit(table.request_ids, rows, template, catalog, estimator=estimator, seed=seed)
        runs = fit.runs(swept(fit.planning), votes=False)
    except VineLMError:
        return None
    if not runs:
        return None
    found = Evaluation(
        verdict=Verdict(), objectives=tuple(both.objective for both in runs),
        policies=tuple(estimated_policies(runs, "accuracy")), requests=len(table), rows=len(rows), spent_usd=spent,
    )  # fmt: skip
    sizes = [len(one.requests) for one in fit.bought]
    fresh = world.table(rng, FRESH)
    return compared(found, runs, sizes, fresh, template)


def compared(
    found: Evaluation, runs: Sequence[BothWays], sizes: Sequence[int], fresh: OutcomeTable, template: Template
) -> Judged:
    """Set the estimates beside the truth on fresh requests."""
    truth = {one.name: true_value(runs, one.name, sizes, fresh, template) for one in found.policies}
    trials = []
    for one in found.policies:
        pairs = {f"value of {one.name}": (truth[one.name], one.accuracy)}
        pairs |= {f"gain of {one.name} over {other}": (truth[one.name] - truth[other], g) for other, g in one.against.items()}
        trials += [
            Trial(what, true, est.value, est.low, est.high)
            for what, (true, est) in pairs.items()
            if est.is_identified and not est.is_same
        ]
    own = found.headline
    gains = own.against.values()
    claimed = all(one.is_identified and one.low > 0.0 and not one.is_same for one in gains)
    return Judged(trials, claimed, own.name, truth[own.name] - max(truth["static"], truth["single"]))


def true_value(runs: Sequence[BothWays], name: str, sizes: Sequence[int], fresh: OutcomeTable, template: Template) -> float:
    """The mean over the budgets and all parts of what the chosen plans achieve on fresh requests."""
    total = 0.0
    for both in runs:
        for half in range(len(sizes)):
            for share, steps in both.by_half[half][name].chosen.parts:  # type: ignore[index]
                total += share * sizes[half] * sum(end.right(fresh) for end in walk_ends(steps, fresh, template))
    return total / (sum(sizes) * len(fresh) * len(runs))


if __name__ == "__main__":
    sys.exit(main())

"""How often the verdict is to switch to a plan that loses more than is allowed, and how often it finds a saving that is there.

    python scripts/gate_worlds.py                          # every shape, 20 worlds each
    python scripts/gate_worlds.py --worlds 1000 --json
    python scripts/gate_worlds.py --shapes branch --requests 300

Worlds are simulated: models of different skill answer requests of different difficulty. Each is profiled as `vinelm profile`
does, without LangGraph, for three times the dollars of one pass of today's configuration over the requests. The verdict is made
at a loss of at most 1, 3 and 5 points; where it is to switch, its plan is served to fresh requests of the same world, where its
accuracy and dollars are known.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from studies import Options, each, study

from vinelm.api.deciding import recommended_plans
from vinelm.catalog import Catalog
from vinelm.estimator import make_estimator
from vinelm.evaluation.judging.judge import Judge
from vinelm.evaluation.judging.tried import with_verdict
from vinelm.evaluation.off_policy.planned_steps import along_stages
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.plans.recommendation import served_objective
from vinelm.profiler.dry_run.outcome_model import Unit
from vinelm.profiler.dry_run.simulated_run import SimulatedRun
from vinelm.profiler.sampling.deciding_sampler import DecidingSampler
from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.profiler.sampling.runs import whole_path
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Branch, Loop, Stage, Template

PRICES = {"tiny": 0.05, "mid": 0.25, "big": 1.0}
"""Dollars of a call, times 0.001."""
PASSES = 3.0
"""Dollars of a profile, in passes of today's configuration over all requests."""
FRESH, TRIED = 1500, 500
"""Requests that a plan is served to, and every fixed plan, to know what could be gained."""
LOSSES = (0.01, 0.03, 0.05)
"""Accuracies that a plan may lose."""
GAIN, SAVING = 0.05, 0.3
"""What is worth switching for: points of accuracy at no more dollars (a *gaining* world), or else a share of the dollars at no
less accuracy (a *saving* one), of the fixed plans."""


def shapes() -> dict[str, Template]:
    """The templates by name; those of one dominant model, few rows and no gain are linear."""
    loop = Template((Stage("write"), Loop((Stage("repair"),), times=2)))
    linear = Template((Stage("plan", answerable=False), Stage("answer")))
    return {
        "linear": linear,
        "loop": loop,
        "branch": Template((Stage("route", answerable=False), Branch({"easy": (Stage("short"),), "hard": (Stage("long"),)}))),
        "merged": Template((Stage("write"), Loop((Stage("repair"),), times=5, memory=1))),
        "few rows": linear,
        "dominant": loop,
        "no gain": linear,
    }


class World:
    """One simulated world: skills of the models by stage, and requests whose difficulty decides how much they matter.

    Outcomes depend on the request and the prefix alone, so that every policy meets the same answers.
    """

    def __init__(self, shape: str, seed: int) -> None:
        self.shape, self.seed = shape, seed
        self.template = shapes()[shape].bind(tuple(PRICES))
        rng = np.random.default_rng([seed, sorted(shapes()).index(shape)])
        names = [stage.name for stage in self.template.stages]
        steps = rng.normal(0.5, 0.9, (len(names), 2))  # a dearer model is better mostly, not always
        base = rng.normal(0.3, 0.7, len(names))
        self.skill = {
            name: {"tiny": base[i], "mid": base[i] + steps[i, 0], "big": base[i] + steps[i].sum()}
            for i, name in enumerate(names)
        }
        self.today = dict.fromkeys(names, str(rng.choice(["big", "big", "mid"])))
        if shape == "no gain":
            self.skill = {name: dict.fromkeys(PRICES, float(base[i])) for i, name in enumerate(names)}
            self.today = dict.fromkeys(names, "tiny")
        if shape == "dominant":
            for skills in self.skill.values():
                skills["tiny"], skills["big"] = skills["big"] + 0.5, skills["tiny"]
            self.today = dict.fromkeys(names, "tiny")
        self.spread, self.own = float(rng.uniform(0.5, 1.5)), float(rng.uniform(0.5, 1.2))
        self.accepts = float(rng.uniform(0.9, 1.0)), float(rng.uniform(0.05, 0.4))
        self.template = self.template.with_defaults(self.today)
        self.catalog = Catalog.from_dict({"model": [_entry(name, usd) for name, usd in PRICES.items()]})
        self._checks = shape in ("loop", "merged", "dominant")
        self._known: dict[Cell, tuple[Observation, float]] = {}

    # -- as a profile's forecast asks for outcomes ------------------------------------------------------------------

    def stage(self, cell: Cell, possible: Sequence[str]) -> str:
        """Return the stage of a cell's last invocation: requests of a world begin in one."""
        return possible[0]

    def unit(self, cell: Cell, stage: str) -> Unit:
        """Return what a unit costs and where it leads."""
        row, _ = self.row_of(cell, stage)
        return Unit(row.cost_usd, 1, 1, 1000.0, row.latency_s, 0.0, row.arm)

    def row(self, cell: Cell, unit: Unit, stage: str) -> Observation:
        """Return the outcome as a row."""
        return self.row_of(cell, stage)[0]

    def row_of(self, cell: Cell, stage: str) -> tuple[Observation, float]:
        """Return the row, and the chance that its answer is right."""
        found = self._known.get(cell)
        if found is None:
            found = self._known[cell] = self._drawn(cell, stage)
        return found

    def _drawn(self, cell: Cell, stage: str) -> tuple[Observation, float]:
        request, prefix = cell
        rng = self._rng(request, *prefix)
        ease, own = self._ease(request), self._own(request, prefix[-1])
        logit = self.skill[stage][prefix[-1]] + self.spread * ease + self.own * own
        before = self._known[request, prefix[:-1]][0] if len(prefix) > 1 else None
        if before is not None and not self.template.stage(before.stage).answerable:
            logit += 1.0 if before.signal == "good" else -1.5
        chance = 1.0 / (1.0 + math.exp(-logit))
        is_right = bool(rng.random() < chance)
        answerable = self.template.stage(stage).answerable
        followers = sorted(self.template.flow.stages_at[len(prefix) - 1][stage])
        arm, stopped = None, not followers
        if self.template.stop == "workflow" and answerable and followers:
            stopped = bool(rng.random() < self.accepts[not is_right])
            arm = None if stopped else followers[0] if not self.template.is_linear else None
        elif followers and not self.template.is_linear:
            arm = "long" if ease < 0 else "short"
            arm = arm if is_right else ("short" if arm == "long" else "long")
        cost = 0.001 * PRICES[prefix[-1]] * float(rng.lognormal(-0.02, 0.2))
        row = Observation(
            request_id=request, prefix=prefix, stage=stage, success=is_right and answerable, stopped=stopped,
            cost_usd=cost, latency_s=1.0, calls=1, arm=arm, signal="good" if is_right else "bad",
        )  # fmt: skip
        return row, chance if answerable else 0.0

    def _rng(self, *key: str) -> np.random.Generator:
        digest = hashlib.blake2b("|".join((str(self.seed), self.shape, *key)).encode(), digest_size=8).digest()
        return np.random.default_rng(int.from_bytes(digest))

    def _ease(self, request: str) -> float:
        return float(self._rng(request, "ease").standard_normal())

    def _own(self, request: str, model: str) -> float:
        return float(self._rng(request, "own", model).standard_normal())

    # -- the truth --------------------------------------------------------------------------------------------------

    def served(self, steps: object, requests: int = FRESH) -> tuple[np.ndarray, np.ndarray]:
        """Return (chance of a right answer, dollars) of each fresh request under a policy."""
        right, paid = np.zeros(requests), np.zeros(requests)
        for i in range(requests):
            seen: tuple[Observation, ...] = ()
            stage = self.template.first_stages[0].name
            chance = 0.0
            while (step := steps.step(seen)).model is not None:  # type: ignore[attr-defined]
                prefix = (*(seen[-1].prefix if seen else ()), step.model)
                row, chance = self.row_of((f"fresh{i}", prefix), stage)
                seen, paid[i] = (*seen, row), paid[i] + row.cost_usd
                if row.ended(self.template.stop) or len(prefix) >= self.template.depth:
                    break
                follower = self.template.following(row.depth, row.arm)
                if follower is None:
                    break
                stage = follower.name
            # A passed check depends on the answer: there the answer itself counts.
            right[i] = float(bool(seen[-1].success)) if seen[-1].stopped and self._checks else chance
        return right, paid


def _entry(name: str, usd: float) -> dict[str, object]:
    price = {"input": usd, "output": 4 * usd, "source": "the world", "as_of": "2026-01-01"}
    return {"name": name, "provider": "simulated", "model": name, "price": price}


@dataclass(frozen=True)
class _Fixed:
    """A model for each stage."""

    template: Template
    models: tuple[object, ...]

    def step(self, seen: Sequence[Observation]) -> object:
        from vinelm.evaluation.off_policy.steps import Step

        if len(seen) >= len(self.models) or (seen and seen[-1].ended(self.template.stop)):
            return Step(None)
        choice = self.models[len(seen)]
        if isinstance(choice, str):
            return Step(choice)
        follower = self.template.first_stages[0] if not seen else self.template.following(seen[-1].depth, seen[-1].arm)
        return Step(None if follower is None else choice[follower.name])  # type: ignore[index]


@dataclass(frozen=True)
class Found:
    """What became of one world at one allowed loss. Accuracies are fractions; the plan serves the share ``served``.

    ``gain`` is the truth of the plan that the verdict is about, ``low`` the shown end; None where it is about none.
    """

    shape: str
    seed: int
    requests: int
    rows: int
    max_loss: float
    advice: str
    served: float
    is_worse: bool
    gain: float
    saved: float
    low: float | None
    possible_gain: float
    possible_saving: float
    seconds: float


def tried(shape: str, requests: int, seed: int) -> list[Found]:
    """Profile a world, judge its plans and serve the one that is chosen; one result for each allowed loss."""
    started = time.perf_counter()
    world = World(shape, seed)
    names = [f"q{i}" for i in range(requests)]
    today = _Fixed(world.template, whole_path(world.template, world.today))
    right, paid = world.served(today)
    budget = (0.7 if shape == "few rows" else PASSES) * requests * float(paid.mean())
    candidates = recommended_plans(world.template, world.catalog)
    limits = ProfileLimits(budget_usd=budget)
    sampler = DecidingSampler(world.template, world.catalog, names, seed, limits=limits, candidates=candidates)
    run = SimulatedRun(world, [], requests, ProfileLimits(coverage=1.0, budget_usd=budget), 0.0, longest=10**9)  # type: ignore[arg-type]
    run.run(sampler)  # type: ignore[arg-type]
    rows = [row for (name, _), row in run._known.items() if name.startswith("q")]
    fitted = make_estimator("latent").fit(rows, world.template, world.catalog).annotated_
    judged = Judge(requests=names, rows=rows, template=world.template, catalog=world.catalog, annotated=fitted).verdict()
    plans = plans_over(with_verdict(fitted, judged, names, rows))
    fixed = [_figures(world, models, right, paid) for models in assignments(world.template)]
    seconds, found = time.perf_counter() - started, []
    for max_loss in LOSSES:
        verdict = judged.at(max_loss)
        gain, saved, objective = 0.0, 0.0, served_objective(verdict)
        if verdict.advice == "switch" and objective is not None:
            own, cost = np.zeros(FRESH), np.zeros(FRESH)
            for share, part in plans.decision(objective).parts:
                success, usd = world.served(plans.steps(part, along_stages(plans.planner)))
                own, cost = own + share * success, cost + share * usd
            gain, saved = verdict.share * float((own - right).mean()), verdict.share * float(1 - cost.mean() / paid.mean())
        found.append(Found(
            shape, seed, requests, len(rows), max_loss, verdict.advice, verdict.share, gain < -max_loss, gain, saved,
            verdict.served.best_low if verdict.advice == "switch" and verdict.served else None,
            max((g for g, s in fixed if s >= -1e-9), default=0.0), max((s for g, s in fixed if g >= -1e-9), default=0.0),
            seconds,
        ))  # fmt: skip
    return found


def world(cell: tuple[str, int, int]) -> list[dict[str, Any]]:
    """The results of a world as plain JSON."""
    return [asdict(one) for one in tried(*cell)]


def assignments(template: Template) -> Iterator[dict[str, str]]:
    """Every model for every stage."""
    names = [stage.name for stage in template.stages]
    for models in product(PRICES, repeat=len(names)):
        yield dict(zip(names, models, strict=True))


def _figures(world: World, models: dict[str, str], right: np.ndarray, paid: np.ndarray) -> tuple[float, float]:
    own, cost = world.served(_Fixed(world.template, whole_path(world.template, models)), TRIED)
    return float((own - right[:TRIED]).mean()), float(1 - cost.mean() / paid[:TRIED].mean())


def summary(found: Sequence[Found]) -> dict[str, float | int | str | None]:
    """Return the shares of one shape, size and allowed loss."""
    gaining = [one for one in found if one.possible_gain >= GAIN]
    saving = [one for one in found if one.possible_saving >= SAVING and one.possible_gain < GAIN]
    switched = [one for one in found if one.advice == "switch"]
    return {
        "shape": found[0].shape, "requests": found[0].requests, "max_loss": found[0].max_loss, "worlds": len(found),
        "switches": len(switched), "worse": sum(one.is_worse for one in switched),
        "missed": sum(one.low is not None and one.gain < one.low for one in switched),
        "gaining": len(gaining), "switched_where_gaining": _switched(gaining),
        "saving": len(saving), "switched_where_saving": _switched(saving),
        "seconds_per_world": sum(one.seconds for one in found) / len(found),
    }  # fmt: skip


def _switched(found: Sequence[Found]) -> float | None:
    return sum(one.advice == "switch" for one in found) / len(found) if found else None


def main() -> int:
    """Run the worlds and print the shares."""
    options = {
        "--worlds": (20, "of each shape and size"),
        "--shapes": (",".join(shapes()), "names, separated by commas"),
        "--requests": ("120,300", "labelled requests, separated by commas"),
        "--workers": (2, ""),
        "--first": (0, "seed of the first world"),
        "--kept": (Path, "file of the worlds so far: the same line takes up a run that ended early", {"metavar": "FILE"}),
    }
    return study(__doc__, options, measured)


def measured(options: Options) -> dict[str, Any]:
    rows, every = [], []
    sizes = list(product(options.shapes.split(","), map(int, options.requests.split(","))))
    cells = [(*size, options.first + number) for size in sizes for number in range(options.worlds)]
    worlds = each(world, cells, jobs=options.workers, kept=options.kept)
    for _ in sizes:
        for same_loss in zip(*islice(worlds, options.worlds), strict=True):
            found = [Found(**one) for one in same_loss]
            every += found
            rows.append(summary(found))
            options.say(line(rows[-1]))
    for max_loss in LOSSES:
        options.say(line(summary([one for one in every if one.max_loss == max_loss]) | {"shape": "all", "requests": "all"}))
    return {"shapes": rows, "worlds": [asdict(one) for one in every]}


def line(row: dict[str, float | int | str | None]) -> str:
    """Return one line of the table."""
    words = ", ".join(_words(row, kind) for kind in ("gaining", "saving"))
    return (
        f"{row['shape']!s:9s} {row['requests']:>4} requests, {row['worlds']} simulated worlds,"
        f" {100 * float(row['max_loss'] or 0):g} points: {row['worse']} of {row['switches']} switches worse, shown end"
        f" missed {row['missed']} times; switched {words}"
        f" ({float(row['seconds_per_world'] or 0):.1f} s each)"
    )


def _words(row: dict[str, float | int | str | None], kind: str) -> str:
    share = row[f"switched_where_{kind}"]
    return f"in {'-' if share is None else f'{100 * float(share):.0f} %'} of {row[kind]} {kind}"


if __name__ == "__main__":
    sys.exit(main())

"""How often the verdict is to switch to a plan that loses more than is allowed, and how often it finds a saving that is there.

    python scripts/gate_worlds.py                          # every kind and shape, 6 worlds each
    python scripts/gate_worlds.py --worlds 100 --kinds plain,tail --json
    python scripts/gate_worlds.py --shapes branch --requests 300
    python scripts/gate_worlds.py --kept worlds.jsonl      # the same line takes up a run that ended early

Worlds are simulated: models of different skill answer requests of different difficulty. Each is profiled as `vinelm profile`
does, without LangGraph, for three times the dollars of one pass of today's configuration over the requests. Every plan that is
compared is served to fresh requests of the same world, where its accuracy and dollars are known, and so is the verdict at a
loss of at most 1, 3 and 5 points.

Kinds of world: plain; tail, where dollars have a long tail and one request in twelve is right with the dearest model only;
correlated, where models fail on the same requests; graded, where answers have a score. No interval cures the last two, which
are counted apart: drift, where the cheaper models are worse on the requests that come later; judge, where a model that favours
cheap answers says which are right.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from studies import Options, each, study

from vinelm.api.deciding import recommended_plans
from vinelm.catalog import Catalog
from vinelm.estimator import make_estimator
from vinelm.evaluation.comparison.comparison import Comparison
from vinelm.evaluation.comparison.tried import with_verdict
from vinelm.evaluation.off_policy.planned_steps import along_stages
from vinelm.evaluation.plans.plans import Plans
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.objective import Objective
from vinelm.profiler.dry_run.outcome_model import Unit
from vinelm.profiler.dry_run.simulated_run import SimulatedRun
from vinelm.profiler.sampling.deciding_sampler import DecidingSampler
from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.profiler.sampling.runs import whole_path
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.trie.verdict import Verdict

PRICES = {"tiny": 0.05, "mid": 0.25, "big": 1.0}
"""Dollars of a call, times 0.001."""
PASSES = 3.0
"""Dollars of a profile, in passes of today's configuration over all requests."""
FRESH, TRIED = 1500, 500
"""Requests that a plan is served to, and every fixed plan, to know what could be gained."""
LOSSES = (0.01, 0.03, 0.05)
"""Accuracies that a plan may lose."""
KINDS = ("plain", "tail", "correlated", "graded")
APART = ("drift", "judge")
"""Worlds in which the rows themselves are wrong about what is served: they are counted apart."""
TAIL = 1.0 / 12.0
"""Share of the requests of a tail world that only the dearest model is good at."""
FALLEN = 0.6
"""What cheaper models lose in skill (logits) on the later requests of a drift world."""
FAVOUR = {"tiny": 0.35, "mid": 0.2, "big": 0.1}
"""How often the judge of a judge world takes a wrong answer for right; a right one it takes for wrong in one of twenty."""
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

    def __init__(self, shape: str, seed: int, kind: str = "plain") -> None:
        self.shape, self.seed, self.kind = shape, seed, kind
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
        if kind == "correlated":
            self.spread, self.own = 2.0 * self.spread, 0.2 * self.own
        self.accepts = float(rng.uniform(0.9, 1.0)), float(rng.uniform(0.05, 0.4))
        self.template = self.template.with_defaults(self.today)
        self.catalog = Catalog.from_dict({"model": [_entry(name, usd) for name, usd in PRICES.items()]})
        self._checks = shape in ("loop", "merged", "dominant")
        self._known: dict[Cell, tuple[Observation, float]] = {}
        self._requests: dict[tuple[str, str], tuple[float, float]] = {}

    # -- as a profile's forecast asks for outcomes ------------------------------------------------------------------

    def stage(self, cell: Cell, possible: Sequence[str]) -> str:
        """Return the stage of a cell's last invocation: requests of a world begin in one."""
        return possible[0]

    def unit(self, cell: Cell, stages: Sequence[str]) -> Unit:
        """Return what a unit costs and where it leads; the last of ``stages`` is its own."""
        row, _ = self.row_of(cell, stages[-1])
        return Unit(row.cost_usd, 1, 1, 1000.0, row.latency_s, 0.0, row.arm)

    def row(self, cell: Cell, unit: Unit, stage: str) -> Observation:
        """Return the outcome as a row, as its scorer counts it."""
        row = self.row_of(cell, stage)[0]
        if self.kind != "judge" or not self.template.stage(stage).answerable:
            return row
        drawn = self._rng("judge", cell[0], *cell[1]).random()
        return replace(row, success=drawn >= 0.05 if row.success else drawn < FAVOUR[cell[1][-1]])

    def row_of(self, cell: Cell, stage: str) -> tuple[Observation, float]:
        """Return the row, and the chance that its answer is right."""
        found = self._known.get(cell)
        if found is None:
            found = self._known[cell] = self._drawn(cell, stage)
        return found

    def _drawn(self, cell: Cell, stage: str) -> tuple[Observation, float]:
        request, prefix = cell
        rng = self._rng(request, *prefix)
        ease, own = self._of_request(request, prefix[-1])
        logit = self.skill[stage][prefix[-1]] + self.spread * ease + self.own * own
        if self.kind == "tail" and prefix[-1] != "big" and self._rng(request, "hard").random() < TAIL:
            logit -= 4.0
        if self.kind == "drift" and prefix[-1] != "big" and request.startswith("fresh"):
            logit -= FALLEN
        before = self._known[request, prefix[:-1]][0] if len(prefix) > 1 else None
        if before is not None and not self.template.stage(before.stage).answerable:
            logit += 1.0 if before.signal == "good" else -1.5
        chance = 1.0 / (1.0 + math.exp(-logit))
        is_right = rng.random() < chance
        answerable = self.template.stage(stage).answerable
        followers = sorted(self.template.flow.stages_at[len(prefix) - 1][stage])
        arm, stopped = None, not followers
        if self.template.stop == "workflow" and answerable and followers:
            stopped = rng.random() < self.accepts[not is_right]
            arm = None if stopped else followers[0] if not self.template.is_linear else None
        elif followers and not self.template.is_linear:
            arm = "long" if ease < 0 else "short"
            arm = arm if is_right else ("short" if arm == "long" else "long")
        width = 0.9 if self.kind == "tail" else 0.2
        cost = 0.001 * PRICES[prefix[-1]] * rng.lognormvariate(-(width**2) / 2.0, width)
        # A score says how good an answer is, where its being right or wrong is drawn elsewhere.
        success = round(chance, 2) if self.kind == "graded" else is_right
        row = Observation(
            request_id=request, prefix=prefix, stage=stage, success=success if answerable else False, stopped=stopped,
            cost_usd=cost, latency_s=1.0, calls=1, arm=arm, signal="good" if is_right else "bad",
        )  # fmt: skip
        return row, chance if answerable else 0.0

    def _rng(self, *key: str) -> Random:
        digest = hashlib.blake2b("|".join((str(self.seed), self.shape, *key)).encode(), digest_size=8).digest()
        return Random(int.from_bytes(digest))

    def _of_request(self, request: str, model: str) -> tuple[float, float]:
        """How easy a request is, and how much more so for a model."""
        found = self._requests.get((request, model))
        if found is None:
            ease = self._rng(request, "ease").gauss(0.0, 1.0)
            found = self._requests[request, model] = ease, self._rng(request, "own", model).gauss(0.0, 1.0)
        return found

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
            right[i] = float(seen[-1].success or 0.0) if seen[-1].stopped and self._checks else chance
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
    kind: str
    seed: int
    requests: int
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

    @classmethod
    def of(cls, made: Mapping[str, Any], max_loss: float) -> Found:
        """The verdict of a world at this loss against the truth of the plan that it is about."""
        verdict = Verdict.from_dict(made["verdict"]).at(max_loss)
        gain = saved = 0.0
        if verdict.advice == "switch" and verdict.plan is not None:
            own = next(i for i, plan in enumerate(verdict.plans) if plan == verdict.plan)
            gain, saved = (verdict.share * truth for truth in made["truths"][own])
        return cls(
            **{name: made[name] for name in ("shape", "kind", "seed", "requests", "seconds")},
            **{name: made[name] for name in ("possible_gain", "possible_saving")},
            max_loss=max_loss, advice=verdict.advice, served=verdict.share, is_worse=gain < -max_loss, gain=gain, saved=saved,
            low=verdict.served.best_low if verdict.advice == "switch" and verdict.served else None,
        )  # fmt: skip


def world(cell: tuple[str, str, int, int]) -> dict[str, Any]:
    """Profile a world, judge its plans and serve each that was compared: the verdict, and the truth of its plans."""
    kind, shape, requests, seed = cell
    started = time.perf_counter()
    world = World(shape, seed, kind)
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
    judged = Comparison(
        requests=names, rows=rows, template=world.template, catalog=world.catalog, annotated=fitted,
        is_judged=kind == "judge",
    ).verdict()  # fmt: skip
    plans = plans_over(with_verdict(fitted, judged, names, rows))
    fixed = [_figures(world, models, right, paid) for models in assignments(world.template)]
    return {
        "kind": kind, "shape": shape, "requests": requests, "seed": seed, "rows": len(rows), "verdict": judged.held(),
        "truths": [_truth(world, plans, replace(judged, plans=(plan,)), right, paid) for plan in judged.plans],
        "possible_gain": max((g for g, s in fixed if s >= -1e-9), default=0.0),
        "possible_saving": max((s for g, s in fixed if g >= -1e-9), default=0.0),
        "seconds": time.perf_counter() - started,
    }  # fmt: skip


def _truth(world: World, plans: Plans[Any], found: Verdict, right: np.ndarray, paid: np.ndarray) -> tuple[float, float]:
    """The gain and the saving of a plan on fresh requests, served as its budget is."""
    plan = found.plans[0]
    bound = float(f"{1.005 * (plan.cost_usd if plan.cap_usd is None else plan.cap_usd):.3g}")
    own, cost = np.zeros(FRESH), np.zeros(FRESH)
    for share, part in plans.decision(Objective(maximize="accuracy", max_cost_usd=bound, mix=False)).parts:
        success, usd = world.served(plans.steps(part, along_stages(plans.planner)))
        own, cost = own + share * success, cost + share * usd
    return float((own - right).mean()), float(1.0 - cost.mean() / paid.mean())


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
        "requests": found[0].requests, "max_loss": found[0].max_loss, "worlds": len(found),
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
        "--worlds": (6, "of each kind, shape and size"),
        "--kinds": (",".join(KINDS + APART), "names, separated by commas"),
        "--shapes": (",".join(shapes()), "names, separated by commas"),
        "--requests": ("120", "labelled requests, separated by commas"),
        "--workers": (1, ""),
        "--first": (0, "seed of the first world"),
        "--kept": (Path, "file of the worlds so far: the same line takes up a run that ended early", {"metavar": "FILE"}),
    }
    return study(__doc__, options, measured, page=page)


def measured(options: Options) -> dict[str, Any]:
    # World after world of every kind and shape, so that a run that is ended early has some of each.
    groups = list(product(options.kinds.split(","), options.shapes.split(","), map(int, options.requests.split(","))))
    cells = [(*group, options.first + number) for number in range(options.worlds) for group in groups]
    made = list(each(world, cells, jobs=options.workers, kept=options.kept, told="worlds"))
    found = [Found.of(one, max_loss) for one in made for max_loss in LOSSES]
    rows = []
    for parts in ({"kind": set(KINDS)}, *({"kind": {kind}} for kind in (*KINDS, *APART)), *({"shape": {s}} for s in shapes())):
        for requests, max_loss in product(sorted({one.requests for one in found}), LOSSES):
            of_it = [
                one for one in found
                if one.requests == requests and one.max_loss == max_loss
                and all(getattr(one, name) in values for name, values in parts.items())
                and ("kind" in parts or one.kind in KINDS)
            ]  # fmt: skip
            if of_it:
                values = next(iter(parts.values()))
                rows.append(summary(of_it) | {"of": next(iter(values)) if len(values) == 1 else "all but drift and judge"})
                options.say(line(rows[-1]))
    return {"rows": rows, "worlds": [asdict(one) for one in found]}


def page(found: dict[str, Any]) -> dict[str, Any]:
    """What the pages quote: not each world."""
    return {"rows": found["rows"]}


def line(row: dict[str, float | int | str | None]) -> str:
    """Return one line of the table."""
    words = ", ".join(_words(row, kind) for kind in ("gaining", "saving"))
    return (
        f"{row['of']!s:24s} {row['requests']:>4} requests, {row['worlds']} simulated worlds,"
        f" {100 * float(row['max_loss'] or 0):g} points: {row['worse']} of {row['switches']} switches worse, shown end"
        f" missed {row['missed']} times; switched {words}"
        f" ({float(row['seconds_per_world'] or 0):.1f} s each)"
    )


def _words(row: dict[str, float | int | str | None], kind: str) -> str:
    share = row[f"switched_where_{kind}"]
    return f"in {'-' if share is None else f'{100 * float(share):.0f} %'} of {row[kind]} {kind}"


if __name__ == "__main__":
    sys.exit(main())

"""One shape through everything: check, profile, estimate, plan, serve. All models are simulated."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from langgraph.errors import GraphRecursionError
from langgraph.types import Command

from shapes.kit import MODELS, Shape, ShapeBackend, catalog
from vinelm import AnnotatedTrie, Objective, ObservationStore, Request, Template, VineLM, Workflow
from vinelm.adapters.langgraph import build_graph
from vinelm.api.profiling import bind_workflow, identity_of
from vinelm.plans.static_plans import StaticPlans
from vinelm.policies import Policy
from vinelm.profiler import ProfileSettings, profile

MOST_RESUMES = 10


def bound(shape: Shape, seed: int = 0, names: Sequence[str] = MODELS) -> tuple[Workflow, Any, dict[str, Any]]:
    """The workflow with its template resolved, the catalog and the backends."""
    models = catalog(names)
    backends = {"simulated": ShapeBackend(shape, seed)}
    return bind_workflow(shape.workflow, models, backends), models, backends


def profiled(
    shape: Shape, path: Path, requests: Sequence[Request], seed: int = 0, names: Sequence[str] = MODELS, **limits: Any
) -> int:
    """Profile into a new store; the number of rows."""
    workflow, models, backends = bound(shape, seed, names)
    identity = identity_of(workflow, models, backends, seed)
    with ObservationStore.open_or_create(path, identity) as store:
        profile(workflow, models, backends, store, ProfileSettings(requests=requests, seed=seed, identity=identity, **limits))
        return len(store.observations())


@dataclass(frozen=True)
class MeanFigures:
    """What serving requests came to, on average."""

    accuracy: float
    cost_usd: float
    requests: int


@dataclass
class Service:
    """Serves requests of one shape over its trie."""

    shape: Shape
    annotated: AnnotatedTrie
    seed: int = 0

    def __post_init__(self) -> None:
        backends = {"simulated": ShapeBackend(self.shape, self.seed)}
        self.vine = VineLM(self.annotated.catalog, backends, trie=self.annotated, fallback=False)
        self.app = build_graph(self.shape.workflow, self.vine)
        self._runs = itertools.count()

    def fixed(self, models: Mapping[str, str], requests: Sequence[Request]) -> MeanFigures:
        """Serve the requests with a model per stage."""
        template = self.annotated.template
        return self.serve(
            requests, lambda request: PerStagePolicy(models, template, clock=self.vine.new_clock(), request=request)
        )

    def planned(self, objective: Objective, requests: Sequence[Request]) -> MeanFigures:
        """Serve the requests as VineLM plans them."""
        return self.serve(requests, lambda request: self.vine.session(objective, request=request))

    def serve(self, requests: Sequence[Request], policy: Any) -> MeanFigures:
        """Serve the requests, each under ``policy(request)``. Turns of one thread follow one another."""
        run = next(self._runs)
        scores, costs = [], []
        for request in requests:
            chosen = policy(request)
            scores.append(self._score(request, chosen, run))
            costs.append(chosen.spent_usd)
        return MeanFigures(sum(scores) / len(scores), sum(costs) / len(costs), len(scores))

    def _score(self, request: Request, policy: Any, run: int) -> float:
        shape, workflow = self.shape, self.shape.workflow
        thread = request.id if shape.thread is None else shape.thread(request)
        config = {"configurable": {"thread_id": f"{run}-{thread}"}, "recursion_limit": 60}
        given: Any = workflow.graph_input(request) if shape.turn is None else shape.turn(request)
        for _ in range(MOST_RESUMES):
            try:
                state = self.app.invoke(given, config, context=self.vine.context(policy=policy, request=request))
            except GraphRecursionError:
                return 0.0  # the application's own loop has no end
            waiting = state.get("__interrupt__") if isinstance(state, Mapping) else None
            if not waiting:
                return float(workflow.score(request, state))
            given = Command(resume=workflow.answer_interrupt(request, waiting[0].value))
        return 0.0


def expected(annotated: AnnotatedTrie, models: Mapping[str, str]) -> tuple[float, float]:
    """Accuracy and dollars that the trie promises for a model per stage, ended by the workflow's own checks."""
    plans = StaticPlans.of(annotated)
    wanted = [annotated.trie.models.index(models[stage]) for stage in annotated.trie.stages]
    row = int(np.flatnonzero((plans.models == wanted).all(axis=1))[0])
    whole = (row + 1) * plans.depth - 1
    return float(plans.accuracy[whole]), float(plans.cost_usd[whole])


def fixed_plans(annotated: AnnotatedTrie, most: int = 1000) -> list[dict[str, str]]:
    """A model for each stage, in every combination; with too many of them, a sample that has every single model."""
    stages, models = annotated.trie.stages, annotated.trie.models
    if len(models) ** len(stages) <= most:
        return [dict(zip(stages, chosen, strict=True)) for chosen in itertools.product(models, repeat=len(stages))]
    rng = random.Random(0)
    mixed = [{stage: rng.choice(models) for stage in stages} for _ in range(most - len(models))]
    return [dict.fromkeys(stages, model) for model in models] + mixed


def best_fixed_plan(annotated: AnnotatedTrie, objective: Objective) -> dict[str, str]:
    """The model per stage that the trie holds for best: the most accurate within the bound on dollars, else the cheapest."""
    cap = objective.max_cost_usd
    rated = [(expected(annotated, models), models) for models in fixed_plans(annotated)]
    within = [item for item in rated if cap is None or item[0][1] <= cap]
    if not within:
        return min(rated, key=lambda item: item[0][1])[1]
    return max(within, key=lambda item: (item[0][0], -item[0][1]))[1]


class PerStagePolicy(Policy):
    """Runs each stage on a model of its own, and ends where the workflow does: what an application does without VineLM."""

    def __init__(self, models: Mapping[str, str], template: Template, **settings: Any) -> None:
        super().__init__(template, **settings)
        self._models = models

    def next_model(self, stage: str, prefix: tuple[str, ...]) -> str:
        """Return the stage's model."""
        return self._models[stage]

    def should_continue(self, prefix: tuple[str, ...], finished: bool, state: Any, arms: Any = None) -> bool:
        """Return the workflow's own verdict."""
        return not finished

"""Random tries that branch, with values whose sums and products are exact in floating point."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from kit.oracles.random_cases import _model
from vinelm.catalog import Catalog
from vinelm.errors import TemplateError
from vinelm.template import END, Branch, Loop, Stage, Template
from vinelm.template.steps import Step
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray


def random_branching(rng: random.Random, *, max_models: int = 3, max_nodes: int = 60) -> AnnotatedTrie:
    """Make a small annotated trie that branches, with values on a grid of eighths, so that ties are common.

    Args:
        rng: The source of randomness.
        max_models: Most models of the catalog.
        max_nodes: Most histories.
    """
    while True:
        models = tuple(f"m{i}" for i in range(rng.randint(1, max_models)))
        try:
            template = Template(random_steps(rng, rng.randint(2, 3), random_stages(rng, models))).bind(models)
            trie = Trie.from_template(template) if not template.is_linear else None
        except TemplateError:
            continue
        if trie is not None and 0 < trie.n_nodes <= max_nodes:
            catalog = Catalog(_model(name, engine=f"e{rng.randrange(2)}") for name in models)
            return annotated_at_random(rng, trie, template, catalog)


def annotated_at_random(rng: random.Random, trie: Trie, template: Template, catalog: Catalog) -> AnnotatedTrie:
    """Annotate a trie with consistent random chances, costs and latencies in eighths."""
    size, coarse = len(trie), rng.choice((1, 1, 4))
    arrays: dict[str, Any] = {name: np.zeros(size) for name in ("success", "stop", "stop_success", "arm", "arm_success")}
    arrays["arm"][0] = 1.0
    for node in range(size):
        arms = trie.arms(node)
        shares = _shares(rng, len(arms) + (node > 0))
        stop = shares.pop() if node else 0
        right = rng.randint(0, stop) if trie.answerable[node] else 0
        arrays["stop"][node], arrays["stop_success"][node] = stop / 8, right / 8
        for share, below in zip(shares, arms.values(), strict=True):
            share_right = rng.randint(0, share) if trie.answerable[node] else 0
            right += share_right
            arrays["arm"][below], arrays["arm_success"][below] = share / 8, share_right / 8
        if not arms and trie.answerable[node]:
            right = rng.randint(right, 8 - stop + right)
        arrays["success"][node] = right / 8

    def grid(top: int) -> FloatArray:
        return np.array([rng.randint(0, top // coarse) * coarse / 8 for _ in range(size)])

    amounts: dict[str, Any] = {"cost_usd": grid(12), "cost_var": grid(8), "latency_s": grid(12), "latency_var": grid(8)}
    amounts["latency_s"][-1] += 1 / 8  # a trie without any latency cannot be planned with a latency bound
    return AnnotatedTrie(trie, template, catalog, **arrays, **amounts, accuracy_se=grid(2) / 4)


def _shares(rng: random.Random, count: int) -> list[int]:
    """Eighths that sum to 8, some of them 0."""
    cuts = sorted(rng.randint(0, 8) for _ in range(count - 1))
    return [high - low for low, high in zip([0, *cuts], [*cuts, 8], strict=True)] if count else []


def random_stages(rng: random.Random, models: tuple[str, ...]) -> list[Stage]:
    """Four stages, each with some of the models; most may answer."""
    stages = []
    for name in "abcd":
        allowed = tuple(rng.sample(models, rng.randint(1, len(models))))
        stages.append(Stage(name, allowed, answerable=rng.random() < 0.7))
    return stages


def random_steps(rng: random.Random, length: int, stages: list[Stage]) -> tuple[Step, ...]:
    """Steps of these stages, with branches and bounded loops nested at most ``length`` deep."""
    steps: list[Step] = []
    for _ in range(rng.randint(1, length)):
        kind = rng.random()
        if kind < 0.5 or length == 1:
            steps.append(rng.choice(stages))
        elif kind < 0.9:
            arms: dict[str, tuple[Step, ...]] = {}
            for label in range(rng.randint(2, 3)):
                arm = random_steps(rng, length - 1, stages) if rng.random() < 0.8 else ()
                arms[str(label)] = (*arm, END) if rng.random() < 0.3 else arm
            steps.append(Branch(arms))
        else:
            steps.append(Loop(random_steps(rng, length - 1, stages), 2, early_exit=rng.random() < 0.5))
    return tuple(steps)

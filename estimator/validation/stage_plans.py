"""Fixed plans of a trie that branches: one model for each stage, whatever the request's arms.

They stand in for the paths of a linear trie where an estimate is judged: a path is no plan on a trie that branches, and
contingent plans are the controller's to find.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.estimator.arms import Arms, arms_of
from vinelm.merged_paths import stage_runs
from vinelm.promise import contingent_standard_error
from vinelm.template.assignments import every_assignment, runs_one_model
from vinelm.trie import Trie
from vinelm.trie.arrays import BoolArray, FloatArray

Ints = npt.NDArray[np.int64]
MOST_PLANS = 512
"""Where there are more, the plans of one model and a random part of the rest."""


@dataclass(frozen=True, eq=False)
class FixedStagePlans:
    """Fixed plans, each running to the end of the workflow; on a merged trie also those that end earlier.

    Args:
        models: the model of each stage, an index into the trie's models; shape (plans, stages).
        accuracy: expected accuracy (a fraction), shape (plans,).
        cost_usd: expected dollars, shape (plans,).
        standard_error: of the accuracy, shape (plans,); NaN where the trie has none.
    """

    models: Ints
    accuracy: FloatArray
    cost_usd: FloatArray
    standard_error: FloatArray

    @property
    def is_single_model(self) -> BoolArray:
        """Whether each plan runs one model at every stage, shape (plans,)."""
        return runs_one_model(self.models)

    @classmethod
    def of(cls, annotated: AnnotatedTrie, *, with_errors: bool = True) -> FixedStagePlans:
        """Evaluate the fixed plans of a trie; the same plans, in the same order, for every trie of one template."""
        if annotated.trie.is_merged:
            return cls._of_merged(annotated)
        trie, arms = annotated.trie, arms_of(annotated.trie)
        models = _plans(trie)
        child = _children(trie, arms)
        accuracy, cost = np.zeros(len(models)), np.full(len(models), float(annotated.cost_usd[0]))
        ends: list[tuple[Ints, Ints]] = []
        plan, node = np.arange(len(models)), np.zeros(len(models), np.int64)
        while len(plan):
            plan, node, done = _next(plan, node, models, arms, child)
            ends.append(done)
            reach = annotated.reach[node]
            is_end = arms.count[node] == 0
            right = np.where(is_end, annotated.success[node], annotated.stop_success[node])
            accuracy += np.bincount(plan, reach * right, len(models))
            cost += np.bincount(plan, reach * annotated.cost_usd[node], len(models))
        error = np.full(len(models), np.nan)
        if with_errors and annotated.accuracy_se is not None:
            of_plan, at = (np.concatenate([part[i] for part in ends]) for i in (0, 1))
            order = np.argsort(of_plan, kind="stable")
            for i, last in enumerate(np.split(at[order], np.cumsum(np.bincount(of_plan, minlength=len(models)))[:-1])):
                found = contingent_standard_error(annotated, last, float(accuracy[i]))
                error[i] = np.nan if found is None else found
        return cls(models, accuracy, cost, error)

    @classmethod
    def _of_merged(cls, annotated: AnnotatedTrie) -> FixedStagePlans:
        """Where histories are merged each plan is also cut after every invocation at which it may end."""
        names = annotated.trie.models
        found = [
            (row, run)
            for row in _plans(annotated.trie)
            for run in stage_runs(annotated, [names[model] for model in row])
            if run.may_end
        ]
        root_usd = float(annotated.cost_usd[0])
        return cls(
            np.array([row for row, _ in found]),
            np.array([run.accuracy for _, run in found]),
            np.array([run.cost_usd + root_usd for _, run in found]),
            np.array([run.standard_error for _, run in found]),
        )


def _plans(trie: Trie) -> Ints:
    """Models of each stage in every combination, or :data:`MOST_PLANS` of them."""
    used = [np.unique(trie.model[trie.stage == stage]).astype(np.int64) for stage in range(len(trie.stages))]
    used = [models if len(models) else np.zeros(1, np.int64) for models in used]
    every = every_assignment([models.tolist() for models in used], most=MOST_PLANS)
    if every is not None:
        chosen = np.array(every, np.int64)
    else:
        rng = np.random.default_rng(0)
        chosen = np.stack([models[rng.integers(len(models), size=MOST_PLANS)] for models in used], axis=1)
    everywhere = [m for m in range(len(trie.models)) if all(m in models for models in used)]
    single = np.repeat(np.array(everywhere, np.int64)[:, None], len(used), axis=1)
    return np.unique(np.concatenate([chosen, single]), axis=0)


def _children(trie: Trie, arms: Arms) -> Ints:
    """The child on each arm by each model, -1 where there is none; shape (arms, models)."""
    child = np.full((len(arms), len(trie.models)), -1, np.int64)
    child[arms.of_node[1:], trie.model[1:]] = np.arange(1, len(trie))
    return child


def _next(plan: Ints, node: Ints, models: Ints, arms: Arms, child: Ints) -> tuple[Ints, Ints, tuple[Ints, Ints]]:
    """The children that each plan runs, and the (plan, node) pairs that end."""
    is_end = arms.count[node] == 0
    count = arms.count[node]
    place = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    arm = np.repeat(arms.first[node], count) + place
    of_plan = np.repeat(plan, count)
    following = child[arm, models[of_plan, arms.stage[arm]]]
    kept = following >= 0
    return of_plan[kept], following[kept], (plan[is_end], node[is_end])

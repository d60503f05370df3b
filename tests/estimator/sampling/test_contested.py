"""Where the fits' best plans differ, against the planner and against the trie of one fit."""

from dataclasses import replace

import numpy as np
import pytest
from outcome_models import path_trie, random_predictive

from vinelm.controller.planning.contingent.graph import DecisionGraph
from vinelm.controller.planning.contingent.limits import Admissible
from vinelm.controller.planning.contingent.problem import Problem
from vinelm.controller.planning.contingent.values import PlanGoal
from vinelm.estimator.sampling.contested import HistoryTree
from vinelm.estimator.signals.build import signals_trie
from vinelm.estimator.signals.histories import histories

PRICES = (0.01, 0.05, 0.2, 0.6)


def histories_of(model, path, goes_on):
    stages = [(stage.name, stage.models) for stage in path.template.invocations]
    return histories(model, stages, path.trie.models, goes_on=goes_on, least_reach=0.0)


def planned(model, path, goes_on, price):
    """Value of the planner's best plan at a price of dollars."""
    annotated = signals_trie(path, model, goes_on=goes_on, least_reach=0.0)
    graph = DecisionGraph.of_tree(annotated)
    plan = Problem(graph, 0, graph.groups_at(0), Admissible(graph, {}, None), may_stop=False).best(PlanGoal("accuracy", price))
    return plan.accuracy - price * (plan.cost_usd - float(annotated.cost_usd[0]))


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_plan_of_the_mean_is_the_planners(seed, goes_on):
    rng = np.random.default_rng([seed, goes_on])
    model, path = random_predictive(rng, n_models=2, depth=3, fits=3, follows=bool(seed % 2)), path_trie(rng, 2, 3)
    tree = HistoryTree(model, histories_of(model, path, goes_on), path.trie)
    for price in PRICES:
        found = tree.contest(price)
        assert found.accuracy - price * found.cost_usd == pytest.approx(planned(model, path, goes_on, price), abs=1e-9)
        assert found.nodes.shape == (len(path.trie),)
        assert (found.nodes >= 0.0).all()


def test_fits_that_are_alike_contest_nothing():
    rng = np.random.default_rng(0)
    model, path = random_predictive(rng, n_models=3, depth=2, fits=1), path_trie(rng, 3, 2)
    twice = replace(
        model, log_types=np.concatenate([model.log_types] * 2, axis=2),
        log_weights=np.concatenate([model.log_weights] * 2) - np.log(2.0), size=np.concatenate([model.size] * 2),
        fit=np.repeat([0, 1], len(model.fit)), n_fits=2,
    )  # fmt: skip
    for one in (model, twice):
        tree = HistoryTree(one, histories_of(one, path, True), path.trie)
        assert all(tree.contest(price).nodes.max() < 1e-12 for price in PRICES)


def test_the_models_that_two_fits_disagree_about_are_contested():
    """The fits are sure of the third model and have opposite opinions of the first two, which are contested."""
    rng = np.random.default_rng(1)
    model, path = random_predictive(rng, n_models=3, depth=1, fits=2, points=1), path_trie(rng, 3, 1)
    right = {"m0": (0.9, 0.3), "m1": (0.3, 0.85), "m2": (0.2, 0.2)}
    rates = np.empty((3, 6, 2))
    for context, of in enumerate(model.contexts):
        rates[context] = (1.0 - np.array(right[of.model])) / 5.0
        rates[context, 0] = right[of.model]
    model = replace(
        model, log_types=np.log(rates), cost_usd=np.full(3, 0.1), log_weights=np.log(np.full(2, 0.5)), size=np.ones(2)
    )
    found = HistoryTree(model, histories_of(model, path, False), path.trie).contest(0.01)
    by_model = dict(zip((path.trie.models[m] for m in path.trie.model[1:]), found.nodes[1:], strict=True))
    regret = (0.85 - 0.3) / 2.0  # m0 is the mean's choice; the second fit would rather ask m1
    assert by_model == pytest.approx({"m0": regret, "m1": regret, "m2": 0.0})

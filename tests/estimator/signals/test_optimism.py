"""The optimism of choosing among plans over outcomes: each fit chooses, and the other fits judge."""

from dataclasses import replace

import numpy as np
import pytest
from kit.worlds.answers import World
from kit.worlds.answers import path_trie as world_trie
from kit.worlds.outcomes import chain, every_history, path_trie, random_predictive, sequences

from vinelm.controller import Planner
from vinelm.estimator.signals.build import estimate_signals, signals_trie
from vinelm.estimator.signals.histories import histories
from vinelm.estimator.signals.optimism import FitMasses, by_fit_and_others, chosen, selection_optimism, worth
from vinelm.objective import Objective
from vinelm.plans.promise import Z90, SelectionOptimism, error_between_fits
from vinelm.vinefile import load_trie, save_trie

MODELS = ("m0", "m1")
STAGES = [("generate", MODELS), ("repair", MODELS)]


def fits_of(model):
    levels = histories(model, chain(STAGES), MODELS, goes_on=True, least_reach=0.0)
    return levels, FitMasses.of(levels, model)


def every_plan(known, by_fit, cost, fit):
    """Accuracy and dollars, by all fits, of the best plan of ``fit`` at each price: all plans of two invocations written out.

    A plan is a first model and, after each of its outcomes, a second model or the end. The choices after different outcomes are
    independent, so that the best is found outcome by outcome.
    """
    first, second = known

    def returned(history):
        """By all fits, the mass of the class that ``fit`` takes for the most probably right one."""
        kinds = by_fit[history]
        best = max(sorted(kinds), key=lambda j: kinds[j][fit], default=None)
        return np.zeros(3) if best is None else kinds[best]

    def best_at(price):
        found = []
        for m in range(len(MODELS)):
            accuracy, dollars = 0.0, cost[(m,)]
            for history in (h for h in first if h[0][0] == m):
                ways = [(returned(history), 0.0 * cost[(m,)])]
                for k in range(len(MODELS)):
                    ends = [h for h in second if h[:1] == history and h[1][0] == k]
                    if ends:
                        ways.append((sum(map(returned, ends)), cost[(*history, k)]))
                right, spent = max(ways, key=lambda way: way[0][fit] - price * way[1][fit])
                accuracy, dollars = accuracy + right, dollars + spent
            found.append((accuracy, dollars))
        return max(found, key=lambda plan: plan[0][fit] - price * plan[1][fit])

    return best_at


@pytest.mark.parametrize("price", [0.001, 0.02, 0.1, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_each_fit_chooses_its_best_plan_and_the_others_judge_it(seed, price):
    model = random_predictive(np.random.default_rng(seed), fits=3, follows=bool(seed % 2))
    rng = np.random.default_rng(seed + 100)
    model = replace(model, cost_by_fit=model.cost_usd[:, None] * rng.uniform(0.5, 2.0, (len(model.cost_usd), 3)))
    levels, masses = fits_of(model)
    known = sequences(levels)
    _, _, by_fit = every_history(model, STAGES, MODELS, goes_on=True)
    contexts = {(c.stage, c.model, c.is_again): i for i, c in enumerate(model.contexts)}
    cost = {(m,): model.cost_by_fit[contexts["generate", MODELS[m], False]] * model.mean_size for m in range(2)}
    for at, history in enumerate(known[0]):
        for k in range(2):
            of_context = model.cost_by_fit[contexts["repair", MODELS[k], k == history[0][0]]]
            cost[*history, k] = of_context * levels[0].size_by_fit[at]
    by_own, by_others = by_fit_and_others(masses)
    choice = chosen(by_own, price)
    own, judged = worth(by_own, choice), worth(by_others, choice)
    for fit in range(3):
        accuracy, dollars = every_plan(known, by_fit, cost, fit)(price)
        others = [f for f in range(3) if f != fit]
        assert own[0][fit] == pytest.approx(accuracy[fit], abs=1e-9)
        assert own[1][fit] == pytest.approx(dollars[fit], abs=1e-9)
        assert judged[0][fit] == pytest.approx(accuracy[others].mean(), abs=1e-9)
        assert judged[1][fit] == pytest.approx(dollars[others].mean(), abs=1e-9)


def test_fits_that_agree_are_not_optimistic_and_one_fit_says_nothing():
    one = random_predictive(np.random.default_rng(1), points=2)
    assert selection_optimism(fits_of(one)[1]) is None
    twice = replace(
        one, log_types=np.tile(one.log_types, (1, 1, 2)), log_weights=np.tile(one.log_weights, 2) - np.log(2),
        size=np.tile(one.size, 2), fit=np.repeat([0, 1], 2), n_fits=2, cost_by_fit=np.tile(one.cost_by_fit, (1, 2)),
    )  # fmt: skip
    same = selection_optimism(fits_of(twice)[1])
    assert max(same.accuracy) == pytest.approx(0.0, abs=1e-12)
    differ = selection_optimism(fits_of(random_predictive(np.random.default_rng(1), fits=2))[1])
    assert max(differ.accuracy) > 0.05
    assert list(differ.cost_usd) == sorted(differ.cost_usd)
    assert differ.advantage_at(1.0) is None


def test_a_chosen_plan_promises_less_than_its_estimate(tmp_path):
    rng = np.random.default_rng(7)
    path = path_trie(rng)
    model = random_predictive(rng, fits=4)
    save_trie(tmp_path / "t.vine", replace(path, signals=signals_trie(path, model, goes_on=True)))
    found = load_trie(tmp_path / "t.vine").signals
    decision = Planner(found).plan(Objective(maximize="accuracy"))
    off = SelectionOptimism.of(found).accuracy_at(decision.path_cost_usd) / 2
    assert off > 0.0
    assert decision.promise.accuracy == pytest.approx(max(decision.accuracy - off, 0.0))
    assert decision.promise.half_width > Z90 * decision.plan.standard_error
    assert decision.promise.advantage_optimism is None
    assert not decision.promise.is_decided_by_optimism
    low, high = decision.intervals["accuracy"]
    assert low <= decision.promise.accuracy <= high


def test_the_error_of_dollars_is_that_between_the_fits():
    rng = np.random.default_rng(8)
    model = random_predictive(rng, fits=3)
    model = replace(model, cost_by_fit=model.cost_usd[:, None] * rng.uniform(0.5, 2.0, (len(model.cost_usd), 3)))
    found = signals_trie(path_trie(rng), model, goes_on=True, least_reach=0.0)
    decision = Planner(found).plan(Objective(maximize="accuracy"))
    levels, _ = fits_of(model)
    known = sequences(levels)[0]
    contexts = {(c.stage, c.model, c.is_again): i for i, c in enumerate(model.contexts)}
    first = int(decision.next_model[1:])
    dollars = model.cost_by_fit[contexts["generate", decision.next_model, False]] * model.mean_size
    for at, history in enumerate(known):
        if history[0][0] != first:
            continue
        node = found.trie.child(0, decision.next_model)
        (_, label, kind) = history[0]
        match = (found.outcomes.node == node) & (found.outcomes.label == label) & (found.outcomes.answer_class == kind)
        (place,) = np.flatnonzero(match)
        model_name = decision.plan.next_model(node, found.trie.stages[found.outcomes.arm[place]])
        if model_name is not None:
            context = contexts["repair", model_name, model_name == decision.next_model]
            dollars = dollars + model.cost_by_fit[context] * levels[0].size_by_fit[at]
    assert decision.plan.cost_error_usd == pytest.approx(float(error_between_fits(dollars)), rel=1e-5)
    low, high = decision.intervals["path_cost_usd"]
    assert high - decision.path_cost_usd == pytest.approx(Z90 * decision.plan.cost_error_usd)
    assert low <= decision.path_cost_usd


@pytest.mark.long
def test_promises_of_chosen_plans_are_kept():
    """Of three models that are equally good, the one that looks best is chosen. 24 profiles of 60 requests, three budgets.

    Measured: estimates are 2.1 points too high, promises 0.2 too low; 83 % of the 90 % intervals hold what is achieved.
    """
    equal = (0.2, 0.2, 0.2)
    served = World.draw(np.random.default_rng(999), 4000, ability=equal)
    estimated, promised, inside = [], [], []
    for seed in range(24):
        rng = np.random.default_rng(seed)
        world = World.draw(rng, 60, ability=equal)
        orders = [tuple(rng.permutation(3).tolist())[: 1 + int(rng.random() < 0.5)] for _ in range(len(world))]
        signals = estimate_signals(world_trie(), world.rows(lambda request, orders=orders: [orders[request]]))
        for budget in (2.0, 5.0, 10.0):
            decision = Planner(signals).plan(Objective(maximize="accuracy", max_cost_usd=budget))
            achieved = served.follow(signals, decision.plan)[:, 0].mean()
            estimated.append(decision.accuracy - achieved)
            promised.append(decision.promise.accuracy - achieved)
            inside.append(abs(promised[-1]) <= decision.promise.half_width)
    assert np.mean(estimated) > 0.015
    assert abs(np.mean(promised)) < 0.5 * np.mean(estimated)
    assert 0.75 <= np.mean(inside) <= 0.99

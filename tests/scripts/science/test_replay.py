import itertools

import numpy as np
import pytest
from kit.tables import random_table
from science.replay import oracle, replay

from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.objective import Objective


def walk(table, row, choose):
    """One request by hand: ``choose(node, elapsed, spent)`` gives the next node or None."""
    node, elapsed, spent = 0, table.latency_s[row, 0], table.cost_usd[row, 0]
    while (step := choose(node, elapsed, spent)) is not None:
        node, elapsed, spent = step, elapsed + table.latency_s[row, step], spent + table.cost_usd[row, step]
        if table.ended[row, node]:
            break
    return node, elapsed, spent


@pytest.mark.parametrize("stop", ["workflow", "oracle"])
def test_a_path_is_followed_until_the_stop_rule_or_its_end(stop):
    table = random_table(1, n_requests=50, n_models=2, depth=3, stop=stop)
    result = replay(table, ("m1", "m0", "m1"))
    path = table.trie.path(table.trie.node(("m1", "m0", "m1")))
    for row in range(50):
        node, elapsed, spent = walk(table, row, after(path))
        assert result.node[row] == node
        assert result.path[row] == table.trie.prefix(node)
        assert result.latency_s[row] == pytest.approx(elapsed)
        assert result.cost_usd[row] == pytest.approx(spent)
        assert result.success[row] == table.success[row, node]
    annotated = table.annotate()
    assert result.success.mean() == pytest.approx(annotated.accuracy[path[-1]])
    assert result.cost_usd.mean() == pytest.approx(annotated.path_cost_usd[path[-1]])


def after(path):
    return lambda node, elapsed, spent: next((at for at in path if at > node), None) if node != path[-1] else None


@pytest.mark.parametrize(
    "objective",
    [
        Objective(maximize="accuracy", max_latency_s=2.5),
        Objective(minimize="cost", min_accuracy=0.5, max_latency_s=3.0, risk="mean+sd"),
        Objective(maximize="accuracy", max_cost_usd=0.006, cost_budget="per_request"),
        Objective(maximize="accuracy", max_cost_usd=0.006),
        Objective(minimize="latency", min_accuracy=0.5),
    ],
    ids=str,
)
def test_a_planner_replans_after_every_invocation(objective):
    """Also where one plan serves all: replanning would have come to the same."""
    table = random_table(2, n_requests=40, n_models=3, depth=3)
    planner = Planner(table.annotate())
    load = {"west": 0.5}
    result = replay(table, planner, objective, load=load)

    def choose(node, elapsed, spent):
        decision = planner.plan(objective, node=node, elapsed_s=elapsed, spent_usd=spent, load=load)
        return None if decision.stop else table.trie.child(node, decision.next_model)

    for row in range(40):
        assert result.node[row] == walk(table, row, choose)[0]


def test_the_oracle_is_the_best_assignment_of_ends():
    """Against every assignment of ends to three requests."""
    for seed in range(6):
        table = random_table(seed, n_requests=3, n_models=2, depth=2)
        budget = 0.004
        best = oracle(table, Objective(maximize="accuracy", max_cost_usd=budget))
        spent = np.cumsum(np.zeros((3, len(table.trie))), axis=0)
        for row, node in itertools.product(range(3), range(len(table.trie))):
            spent[row, node] = table.cost_usd[row, [0, *table.trie.path(node)]].sum()
        ends = [[n for n in range(1, len(table.trie)) if table.reached[row, n]] for row in range(3)]
        counts = [
            sum(table.success[row, node] for row, node in enumerate(choice))
            for choice in itertools.product(*ends)
            if sum(spent[row, node] for row, node in enumerate(choice)) <= 3 * budget
        ]
        assert best.success.sum() == max(counts, default=best.success.sum())


def test_the_oracle_bounds_every_policy():
    table = random_table(5, n_requests=80, n_models=3, depth=3)
    objective = Objective(maximize="accuracy", max_latency_s=2.5)
    best = oracle(table, objective)
    ours = replay(table, Planner(table.annotate()), objective)
    in_time = ours.success & (ours.latency_s <= 2.5)
    assert (best.success & (best.latency_s <= 2.5)).mean() >= in_time.mean()


def test_what_does_not_fit_is_refused():
    table = random_table(1, n_requests=5, n_models=2, depth=2)
    planner = Planner(table.annotate())
    with pytest.raises(ConfigError, match="needs an objective"):
        replay(table, planner)
    with pytest.raises(ConfigError, match="as it is"):
        replay(table, ("m0",), Objective(maximize="accuracy"))
    other = random_table(1, n_requests=5, n_models=3, depth=2)
    with pytest.raises(ConfigError, match="not the table's"):
        replay(other, planner, Objective(maximize="accuracy"))

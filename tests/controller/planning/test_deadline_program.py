import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from conftest import make_catalog, make_template, random_table

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.controller import Planner, PlanRequest
from vinelm.controller.planning import deadline_program as stochastic
from vinelm.controller.planning.deadline_program import BINS, LATE_WEIGHT, DeadlineProgram
from vinelm.controller.planning.metric import Metric
from vinelm.controller.planning.subtree import SubtreeView
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.template import Stage, Template
from vinelm.trie import Trie


def program_for(annotated, objective, node=0, load=None, elapsed_s=0.0):
    view = SubtreeView(Planner(annotated).metrics, PlanRequest(objective, node, elapsed_s, 0.0, load, None, True))
    return DeadlineProgram(view, view.feasible(without=("max_latency_s",)))


def chances(program, nodes):
    """P(each node's invocation takes so many bins)."""
    return np.diff(program._in_time(np.array(nodes)), axis=1, prepend=0.0)


@pytest.mark.parametrize("stop", ["workflow", "oracle"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("left_s", [1.0, 2.5, 5.0])
def test_the_program_equals_its_recursion_written_plainly(stop, seed, left_s):
    """Loss of every (node, bins left) by memoised recursion over the same discretised times."""
    annotated = random_table(seed, n_requests=40, n_models=3, depth=3, stop=stop).annotate()
    program = program_for(annotated, Objective(maximize="accuracy", max_latency_s=left_s, risk="dp"))
    trie = annotated.trie
    chance = {node: chances(program, [node])[0] for node in range(1, len(trie))}

    def ended_wrong(node):
        return annotated.stop[node] - annotated.stop_success[node]

    def stop_loss(node):
        on = 1 - annotated.stop[node]
        right = (annotated.success[node] - annotated.stop_success[node]) / on if on > 1e-9 else 0.0
        return 1 - min(max(right, 0.0), 1.0)

    @cache
    def best(node, left):
        options = []
        if trie.answerable[node]:
            options.append((stop_loss(node), -1))
        options.extend((run(child, left), child) for child in trie.children(node))
        return min(options, key=lambda option: option[0])

    def run(node, left):
        loss = 1 + LATE_WEIGHT
        for spent in range(left + 1):
            arrived = ended_wrong(node) + (1 - annotated.stop[node]) * best(node, left - spent)[0]
            loss += chance[node][spent] * (arrived - 1 - LATE_WEIGHT)
        return loss

    for node in range(len(trie)):
        for left in (0, 1, BINS // 3, BINS):
            loss, child = best(node, left)
            chosen = program.choice(int(trie.depth[node]), node, left)
            if chosen is None:
                assert child == -1 or stop_loss(node) == pytest.approx(loss, abs=1e-9)
            elif chosen != child:
                assert run(chosen, left) == pytest.approx(loss, abs=1e-9)


def with_errors(seed, **sizes):
    """A random table's annotations with standard errors of 0 to 5 points."""
    annotated = random_table(seed, n_requests=40, n_models=3, **sizes).annotate()
    return replace(annotated, accuracy_se=np.random.default_rng(seed).uniform(0.0, 0.05, len(annotated.trie)))


@pytest.mark.parametrize("seed", range(4))
def test_confidence_gives_every_path_the_lower_end_of_its_interval(seed):
    annotated = with_errors(seed, depth=3)
    metrics, trie = Planner(annotated).metrics, annotated.trie
    lower = metrics.mean(Metric.ACCURACY, 0.9)
    stopped, right = metrics.answers(0.9)
    for node in range(1, len(trie)):
        before = [node]
        while before[-1]:
            before.append(int(trie.parent[before[-1]]))
        ended = sum(float(annotated.reach[j] * stopped[j]) for j in before)
        at_node = float(annotated.reach[node] * (1 - annotated.stop[node]))
        if at_node > 1e-6 and 0.0 < right[node] < 1.0:
            assert ended + at_node * right[node] == pytest.approx(lower[node], abs=1e-9)
        else:
            assert right[node] in (0.0, 1.0)
    assert (right <= metrics.answers().right + 1e-9).mean() > 0.5
    assert ((right > 0.0) & (right < 1.0))[1:].mean() > 0.5


@pytest.mark.parametrize("seed", range(6))
def test_with_time_to_spare_confidence_compares_the_lower_ends(seed):
    """Without a danger of being late the program's plan is that of ``risk="mean"``, whose search is another one."""
    annotated = with_errors(seed, depth=2)
    metrics = Planner(annotated).metrics
    lower = metrics.mean(Metric.ACCURACY, 0.95)
    fields = {"maximize": "accuracy", "max_latency_s": 1e4, "confidence": 0.95}
    program, mean = (Planner(annotated).plan(Objective(**fields, risk=risk)) for risk in ("dp", "mean"))
    assert lower[program.target] == pytest.approx(lower[mean.target], abs=1e-9)


def test_confidence_changes_the_program_s_choice():
    """Two models; the better one has hardly been tried: its interval reaches far down."""
    template = Template((Stage("generate", ("m0", "m1")),))
    trie = Trie.from_template(template)
    right, zeros = np.array([0.0, 0.6, 0.8]), np.zeros(3)
    annotated = AnnotatedTrie(
        trie, template, make_catalog(2), right, zeros, zeros, zeros, zeros, zeros + 0.5, zeros + 0.01,
        accuracy_se=np.array([0.0, 0.01, 0.4]),
    )  # fmt: skip
    planner = Planner(annotated)
    fields = {"maximize": "accuracy", "max_latency_s": 3.0, "risk": "dp"}
    assert planner.plan(Objective(**fields)).target == 2
    assert planner.plan(Objective(**fields, confidence=0.9)).target == 1


def test_confidence_without_standard_errors_is_refused():
    annotated = random_table(1, n_requests=40, n_models=2, depth=2).annotate()
    with pytest.raises(ConfigError, match="confidence needs standard errors"):
        Planner(annotated).plan(Objective(maximize="accuracy", max_latency_s=9.0, risk="dp", confidence=0.9))


@pytest.mark.parametrize("late", [0.0, 0.25, LATE_WEIGHT, 2.0])
def test_a_try_is_made_exactly_where_it_gains_more_than_late_right_answers_for_each_late_one(late):
    """After a wrong answer under the oracle stop there is nothing to lose but the promise of time."""
    template = make_template(1, 2, "oracle")
    trie = Trie.from_template(template)
    right, zeros = np.array([0.0, 0.6, 0.3]), np.zeros(3)
    annotated = AnnotatedTrie(trie, template, make_catalog(1), right, right, right, zeros, zeros, right * 0 + 1.0, zeros + 0.25)
    tried = []
    for left_s in np.linspace(0.3, 3.0, 40):
        objective = Objective(maximize="accuracy", max_latency_s=float(left_s), risk="dp", late_weight=late)
        program = program_for(annotated, objective, node=1)
        in_time = float(program._in_time(np.array([2]))[0, -1])
        gain = 0.3 * in_time - late * (1 - in_time)
        tried.append(program.choice(0, 1, BINS) == 2)
        if abs(gain) > 1e-9:
            assert tried[-1] == (gain > 0)
    assert tried[-1]
    assert all(tried) == (late == 0.0)


def test_chances_are_a_distribution_with_the_mean_of_the_trie():
    annotated = random_table(1, n_requests=60, n_models=2, depth=2).annotate()
    program = program_for(annotated, Objective(maximize="accuracy", max_latency_s=30.0, risk="dp"))
    nodes = np.arange(1, len(annotated.trie))
    chance = chances(program, nodes)
    assert (chance >= 0).all()
    np.testing.assert_allclose(chance.sum(axis=1), 1.0, atol=1e-3)
    np.testing.assert_allclose(chance @ np.arange(BINS + 1) * 30.0 / BINS, annotated.latency_s[nodes], rtol=0.03)


def test_load_makes_it_choose_a_faster_way_or_end():
    annotated = random_table(2, n_requests=80, n_models=2, depth=3).annotate()
    planner = Planner(annotated)
    objective = Objective(maximize="accuracy", max_latency_s=6.0, risk="dp")
    free = planner.plan(objective)
    busy = planner.plan(objective, load={"east": 30.0})
    assert free.next_model is not None
    assert busy.next_model == "m1"
    assert all(model == "m1" for model in busy.path)


def test_with_time_to_spare_it_takes_the_most_accurate_policy():
    annotated = random_table(3, n_requests=80, n_models=3, depth=2, stop="oracle").annotate()
    free = Planner(annotated).plan(Objective(maximize="accuracy", max_latency_s=1e4, risk="dp"))
    assert free.accuracy == pytest.approx(annotated.accuracy.max(), abs=1e-9)


@pytest.mark.parametrize("target", ["cost", "latency"])
def test_other_targets_keep_their_floor_and_fear_the_deadline(target):
    annotated = random_table(4, n_requests=80, n_models=3, depth=3).annotate()
    planner = Planner(annotated)
    floor = float(np.quantile(annotated.accuracy, 0.6))
    for seconds in (2.0, 4.0, 8.0, 100.0):
        objective = Objective(minimize=target, min_accuracy=floor, max_latency_s=seconds, risk="dp")
        decision = planner.plan(objective)
        if decision.is_feasible:
            assert decision.accuracy >= floor


def test_bounds_that_give_way_and_time_that_is_up_are_as_without_it():
    rng = random.Random(1)
    annotated = random_table(5, n_requests=50, n_models=2, depth=3).annotate()
    planner = Planner(annotated)
    for _ in range(50):
        node = rng.randrange(len(annotated.trie))
        fields = {"maximize": "accuracy", "max_latency_s": 3.0}
        assert (
            planner.plan(Objective(**fields, risk="dp"), node=node, elapsed_s=3.5).target
            == planner.plan(Objective(**fields), node=node, elapsed_s=3.5).target
        )
        wanting = {"minimize": "cost", "min_accuracy": 0.999, "max_latency_s": 3.0}
        dp, mean = (planner.plan(Objective(**wanting, risk=risk), node=node) for risk in ("dp", "mean"))
        assert (dp.target, dp.relaxed) == (mean.target, mean.relaxed)


def test_a_subtree_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(stochastic, "MOST_NODES", 10)
    planner = Planner(random_table(1, n_requests=5, n_models=3, depth=3).annotate())
    with pytest.raises(ConfigError, match="at most 10 paths"):
        planner.plan(Objective(maximize="accuracy", max_latency_s=50.0, risk="dp"))

"""``risk="dp"``: plans by the chances to be late, on tries of every kind, against the same written plainly."""

import math
import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from kit.catalogs import make_catalog
from kit.tables import random_table
from kit.templates import agent, branching, make_template
from kit.tries import random_merged, routed_trie

from vinelm.controller import Planner
from vinelm.controller.planning.contingent import grid_problem
from vinelm.controller.planning.contingent.grid import BINS
from vinelm.controller.planning.metric import LATE_WEIGHT, Metric
from vinelm.errors import ConfigError, InfeasibleError
from vinelm.objective import Objective
from vinelm.template import Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.decision_graph import DecisionGraph

KINDS = {
    "linear": lambda seed: random_table(seed, n_requests=40, n_models=3, depth=3, stop="workflow").annotate(),
    "oracle stop": lambda seed: random_table(seed, n_requests=40, n_models=3, depth=3, stop="oracle").annotate(),
    "branching": routed_trie,
    "merged": lambda seed: random_merged(agent(2, 3, memory=1), seed),
    "any order": lambda seed: random_merged(agent(2, 3, order="ignored"), seed),
    "merged branches": lambda seed: random_merged(branching(2, memory=1), seed),
}


class Plain:
    """The recursion over single positions and parts of the time left, in plain numbers."""

    def __init__(self, annotated, whole_s, objective, load_s=0.0):
        self.graph, self.whole_s = DecisionGraph.of(annotated), whole_s
        self.annotated, self.load_s, self.objective = annotated, load_s, objective
        weight = objective.late_weight
        self.late = 1.0 if objective.target != "accuracy" else LATE_WEIGHT if weight is None else weight
        self.at, self.run, self.chance, self.most = map(cache, (self.at, self.run, self.chance, self.most))

    def chance(self, edge):
        """P(the invocation takes so many parts), log-normal."""
        node = self.graph.nodes[self.graph.target[edge]]
        mean, variance = self.annotated.latency_s[node], self.annotated.latency_var[node]
        sigma = max(math.sqrt(math.log1p(variance / mean**2)), 1e-9)
        middle = math.log(mean + self.load_s) - sigma**2 / 2
        upper = [math.log((k + 0.5) * self.whole_s / BINS) for k in range(BINS + 1)]
        in_time = [0.5 * math.erfc(-(edge_at - middle) / sigma / math.sqrt(2)) for edge_at in upper]
        return np.diff(in_time, prepend=0.0)

    def paid(self, edge):
        """What an invocation takes off the value."""
        if self.objective.target == "accuracy":
            return 0.0
        if self.objective.target == "latency":
            return (self.graph.latency_s[edge] + self.load_s) / self.whole_s
        return self.graph.cost_usd[edge] / self.most(0)

    def most(self, position):
        graph = self.graph
        below = [
            graph.cost_usd[e] + self.most(int(graph.target[e])) for g in graph.groups_at(position) for e in graph.edges_of(g)
        ]
        return max(below, default=0.0)

    def right(self, chance):
        return chance if self.objective.target == "accuracy" else 0.0

    def at(self, position, left):
        """The best value of a request that reaches the position with so many parts left."""
        graph = self.graph
        total = self.right(graph.ended_right[position]) - self.late * graph.lost[position]
        for group in graph.groups_at(position):
            total += graph.arm[group] * max(self.options(group, left).values(), default=-self.late)
        return total

    def options(self, group, left):
        """What ending (-1) and each edge is worth if the group's stage comes next."""
        graph, found = self.graph, {}
        if graph.may_end[graph.source[group]]:
            found[-1] = self.right(graph.chance_right[group])
        return found | {edge: self.run(edge, left) for edge in graph.edges_of(group)}

    def run(self, edge, left):
        chance, target = self.chance(edge), int(self.graph.target[edge])
        parts = chance[: left + 1]
        in_time = sum(part * self.at(target, left - spent) for spent, part in enumerate(parts.tolist()))
        return in_time - self.late * (1.0 - parts.sum()) - self.paid(edge)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("whole_s", [2.5, 6.0])
@pytest.mark.parametrize("target", [{"maximize": "accuracy"}, {"minimize": "cost"}, {"minimize": "latency"}])
def test_every_choice_is_the_best_of_the_recursion_written_plainly(kind, seed, whole_s, target):
    annotated = KINDS[kind](seed)
    objective = Objective(**target, max_latency_s=whole_s, risk="dp")
    planner, plain = Planner(annotated), Plain(annotated, whole_s, objective)
    graph, stages, models = plain.graph, annotated.trie.stages, annotated.trie.models
    judged = 0
    for position in range(len(graph.nodes)):
        node = int(graph.nodes[position])
        groups = graph.groups_at(position)
        is_linear = not planner.annotated.is_contingent
        for left in (BINS,) if is_linear else (1, BINS // 3, BINS):  # a linear trie has its grid from each request on
            if not groups or (is_linear and target != {"maximize": "accuracy"} and position):
                continue  # shares of what the rest of the path may take
            decision = planner.plan(objective, node=node, elapsed_s=whole_s * (1.0 - left / BINS))
            if set(decision.relaxed) - {"max_latency_s"}:
                continue
            for group in groups:
                options = plain.options(group, left)
                name = decision.next_model if is_linear else decision.next_models[stages[graph.stage[group]]]
                chosen = next((e for e in options if e >= 0 and models[graph.model[e]] == name), -1)
                assert options[chosen] == pytest.approx(max(options.values()), abs=1e-9)
                judged += len(options) > 1
    assert judged


@pytest.mark.parametrize("kind", ["branching", "merged branches"])
def test_the_value_at_the_root_is_that_of_the_recursion(kind):
    for seed in range(4):
        annotated = KINDS[kind](seed)
        objective = Objective(maximize="accuracy", max_latency_s=5.0, risk="dp", late_weight=0.5)
        planner, plain = Planner(annotated), Plain(annotated, 5.0, objective)
        problem = planner._contingent._from_root(objective)
        found = problem.solved(planner._contingent.policy(objective).goal)
        assert found.accuracy == pytest.approx(plain.at(0, BINS), abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_served_requests_with_random_times_are_better_off_than_by_mean_times(kind):
    """Right answers in time less the weight of late ones, over 4,000 requests whose invocations take log-normal times."""
    annotated = KINDS[kind](0)
    whole_s = 0.4 * float(annotated.path_latency_s.max()) if not annotated.trie.is_merged else 2.5
    by = {}
    for risk in ("dp", "mean"):
        planner = Planner(annotated)
        by[risk] = served(planner, Objective(maximize="accuracy", max_latency_s=whole_s, risk=risk), random.Random(5))
    spread = 1.0 / math.sqrt(4_000)
    assert by["dp"] > by["mean"] - 2 * spread
    if kind in ("linear", "branching", "any order"):
        assert by["dp"] > by["mean"] + 2 * spread


def served(planner, objective, rng, n=4_000):
    """Mean of right answers in time, less the weight of late ones."""
    annotated, graph = planner.annotated, DecisionGraph.of(planner.annotated)
    stages, models, total, known = annotated.trie.stages, annotated.trie.models, 0.0, {}
    for _ in range(n):
        at, used = 0, 0.0
        while True:
            groups, draw = graph.groups_at(at), rng.random()
            ended = 1.0 - sum(float(graph.arm[g]) for g in groups)
            if draw < ended or not groups:
                total += float(graph.ended_right[at]) / max(ended, 1e-12) if at or groups else 0.0
                break
            group, draw = groups[0], draw - ended
            for group in groups:
                draw -= float(graph.arm[group])
                if draw < 0:
                    break
            key = (at, group, int(used * 20))  # plans change little within a twentieth of a second
            if key not in known:
                stage = stages[graph.stage[group]]
                known[key] = planner.plan(
                    objective, node=int(graph.nodes[at]), elapsed_s=int(used * 20) / 20,
                    stage=stage if planner.annotated.is_contingent else None, may_stop=bool(at),
                ).next_model  # fmt: skip
            if known[key] is None:
                total += float(graph.chance_right[group])
                break
            edge = next(e for e in graph.edges_of(group) if models[graph.model[e]] == known[key])
            at = int(graph.target[edge])
            node = graph.nodes[at]
            mean, variance = annotated.latency_s[node], annotated.latency_var[node]
            sigma = math.sqrt(math.log1p(variance / mean**2))
            used += math.exp(rng.gauss(math.log(mean) - sigma**2 / 2, sigma))
            if used > objective.max_latency_s:
                total -= LATE_WEIGHT
                break
    return total / n


@pytest.mark.parametrize("kind", ["branching", "merged"])
def test_a_request_s_dollars_hold_beside_its_deadline(kind):
    annotated = KINDS[kind](2)
    planner, graph = Planner(annotated), DecisionGraph.of(annotated)
    dearest = float(annotated.cost_usd.max())
    free = Objective(maximize="accuracy", max_latency_s=9.0, risk="dp")
    for cap in (1.2 * dearest, 2.5 * dearest, 9.0 * dearest):
        objective = replace(free, max_cost_usd=cap, cost_budget="per_request")
        decision = planner.plan(objective)
        if not decision.relaxed:
            assert decision.plan.longest(graph.cost_usd) <= cap * (1 + 1e-9)
        with pytest.raises(InfeasibleError, match="max_cost_usd"):
            planner.plan(replace(objective, max_cost_usd=1e-9, on_infeasible="raise"))


@pytest.mark.parametrize("kind", ["branching", "merged branches"])
def test_a_budget_of_all_requests_is_kept_on_average(kind):
    annotated = KINDS[kind](3)
    planner = Planner(annotated)
    objective = Objective(maximize="accuracy", max_latency_s=8.0, risk="dp")
    free = planner._contingent._from_root(objective).solved(planner._contingent.policy(objective).goal)
    for share in (0.9, 0.6, 0.4):
        bounded = replace(objective, max_cost_usd=share * free.cost_usd)
        policy = planner._contingent.policy(bounded)
        found = planner._contingent._from_root(bounded).solved(policy.goal)
        if not policy.relaxed:
            assert found.cost_usd <= share * free.cost_usd * (1 + 1e-6)
            assert found.accuracy <= free.accuracy + 1e-9


def test_confidence_plans_by_the_lower_bound_of_the_whole_plan():
    annotated = routed_trie(1)
    fields = {"maximize": "accuracy", "max_latency_s": 1e3, "confidence": 0.95}
    dp, mean = (Planner(annotated).plan(Objective(**fields, risk=risk)) for risk in ("dp", "mean"))
    lower = [d.plan.accuracy - 1.645 * d.plan.standard_error for d in (dp, mean)]
    assert lower[0] >= lower[1] - 0.02


def test_least_time_within_a_budget_of_all_requests_is_refused():
    with pytest.raises(ConfigError, match="does not minimize latency within a bound on an average"):
        Planner(routed_trie(1)).plan(Objective(minimize="latency", max_latency_s=5.0, max_cost_usd=0.1, risk="dp"))


def test_invocations_take_the_mean_times_of_the_trie():
    annotated = random_table(1, n_requests=60, n_models=2, depth=2).annotate()
    plain = Plain(annotated, 30.0, Objective(maximize="accuracy", max_latency_s=30.0, risk="dp"))
    edges = range(len(plain.graph.target))
    chance = np.array([plain.chance(edge) for edge in edges])
    np.testing.assert_allclose(chance.sum(axis=1), 1.0, atol=1e-3)
    np.testing.assert_allclose(chance @ np.arange(BINS + 1) * 30.0 / BINS, plain.graph.latency_s, rtol=0.03)


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


def test_after_the_last_invocation_a_request_ends():
    annotated = KINDS["linear"](0)
    leaf = len(annotated.trie) - 1
    decision = Planner(annotated).plan(Objective(maximize="accuracy", max_latency_s=9.0, risk="dp"), node=leaf)
    assert (decision.target, decision.next_model) == (leaf, None)


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
        in_time = Plain(annotated, float(left_s), objective).chance(1).sum()
        gain = 0.3 * in_time - late * (1 - in_time)
        tried.append(Planner(annotated).plan(objective, node=1).next_model is not None)
        if abs(gain) > 1e-9:
            assert tried[-1] == (gain > 0)
    assert tried[-1]
    assert all(tried) == (late == 0.0)


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


@pytest.mark.parametrize("kind", ["branching", "merged"])
def test_load_is_waited_for(kind):
    """A loaded engine makes invocations late: the recursion with the load chooses the same."""
    annotated = KINDS[kind](0)
    objective = Objective(maximize="accuracy", max_latency_s=6.0, risk="dp")
    plain = Plain(annotated, 6.0, objective, load_s=1.5)
    planner = Planner(annotated)
    decision = planner.plan(objective, load=dict.fromkeys(annotated.engines, 1.5))
    for group in plain.graph.groups_at(0):
        options = plain.options(group, BINS)
        name = decision.next_models[annotated.trie.stages[plain.graph.stage[group]]]
        chosen = next((e for e in options if e >= 0 and annotated.trie.models[plain.graph.model[e]] == name), -1)
        assert options[chosen] == pytest.approx(max(options.values()), abs=1e-9)


@pytest.mark.parametrize("kind", ["linear", "branching", "merged"])
def test_a_trie_too_large_is_refused(kind, monkeypatch):
    monkeypatch.setattr(grid_problem, "MOST_IN_TIME", 5)
    planner, objective = Planner(KINDS[kind](1)), Objective(maximize="accuracy", max_latency_s=50.0, risk="dp")
    with pytest.raises(ConfigError, match="at most 5 paths"):
        planner.plan(objective)
    assert "at most 5 paths" in planner.unplannable(objective)

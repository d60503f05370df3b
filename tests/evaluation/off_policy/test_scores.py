"""Doubly robust scores: exact where every row is there, right on average where rows are drawn, honest where rows lack."""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from kit.catalogs import make_catalog
from kit.outcome_tables import random_outcomes
from kit.tables import random_table
from kit.templates import make_template
from science.replay import follow

from vinelm.evaluation.off_policy.answer_steps import TriedSteps
from vinelm.evaluation.off_policy.buying import BoughtRows
from vinelm.evaluation.off_policy.paired_scores import paired_scores
from vinelm.evaluation.off_policy.scores import scored
from vinelm.evaluation.off_policy.steps import PathSteps, Rest
from vinelm.evaluation.rivals.votes import TwoAgreePolicy, VotePolicy
from vinelm.requests.protocols import RequestPath
from vinelm.template import Loop, Stage, Template


def without_start(table):
    """The same without what runs before the first invocation, of which no row tells."""
    cost, latency = table.cost_usd.copy(), table.latency_s.copy()
    cost[:, 0] = latency[:, 0] = 0.0
    return replace(table, cost_usd=cost, latency_s=latency)


def rows_of(table, keep=lambda request, node: True):
    """The rows of the cells that requests reach, those with a row before them."""
    found, have = [], set()
    for request in range(len(table.request_ids)):
        for node in range(1, len(table.trie)):
            up = int(table.trie.parent[node])
            if table.reached[request, node] and (up == 0 or (request, up) in have) and keep(request, node):
                have.add((request, node))
                found.append(table.observation(request, node))
    return found


@dataclass(frozen=True)
class Wrong:
    """A path whose expectations are nonsense."""

    inner: PathSteps
    says: float

    def step(self, seen):
        return self.inner.step(seen)

    def rest(self, seen):
        return Rest(self.says, 3.0, 5.0)


@pytest.mark.parametrize("stop", ["workflow", "oracle"])
@pytest.mark.parametrize("says", [None, 0.9])
def test_where_every_row_is_there_the_scores_are_those_of_a_replay(stop, says):
    table = without_start(random_table(1, n_requests=40, n_models=2, depth=3, stop=stop))
    bought = BoughtRows.of(table.request_ids, rows_of(table), table.template)
    for target in range(1, len(table.trie)):
        steps = PathSteps(table.annotate(), target)
        found, exact = scored(steps if says is None else Wrong(steps, says), bought), follow(table, target)
        assert found.success == pytest.approx(exact.success.astype(float))
        assert found.cost_usd == pytest.approx(exact.cost_usd)
        assert found.latency_s == pytest.approx(exact.latency_s)
        assert (found.weight == 1.0).all()


def test_expectations_at_the_start_are_the_path_metrics():
    annotated = random_table(2, n_requests=60, n_models=2, depth=3).annotate()
    for target in range(1, len(annotated.trie)):
        rest = PathSteps(annotated, target).rest(())
        assert rest.success == pytest.approx(annotated.accuracy[target])
        assert rest.cost_usd == pytest.approx(annotated.path_cost_usd[target] - annotated.cost_usd[0])


@pytest.mark.parametrize("says", [0.1, 0.8])
def test_rows_that_were_drawn_give_the_value_on_average_whatever_is_expected(says):
    table = without_start(random_table(3, n_requests=200, n_models=2, depth=3))
    target = int(table.trie.node(("m0", "m1", "m0")))
    steps = Wrong(PathSteps(table.annotate(), target), says)
    truth, rng = follow(table, target), np.random.default_rng(0)
    values = []
    for _ in range(40):
        drawn = rng.random(table.success.shape) < 0.5
        bought = BoughtRows.of(table.request_ids, rows_of(table, lambda r, n, drawn=drawn: drawn[r, n]), table.template)
        found = scored(steps, bought)
        values.append((found.success.mean(), found.cost_usd.mean()))
    error = np.std(values, axis=0, ddof=1) / np.sqrt(len(values))
    off = np.mean(values, axis=0) - (truth.success.mean(), truth.cost_usd.mean())
    assert (np.abs(off) < 3.5 * error).all()


def test_a_step_that_nobody_bought_is_named_and_rests_on_the_expectation():
    table = without_start(random_table(4, n_requests=50, n_models=2, depth=2))
    node, annotated = table.trie.node, table.annotate()
    no_second = rows_of(table, lambda r, n: table.trie.depth[n] == 1)
    bought = BoughtRows.of(table.request_ids, no_second, table.template)
    found = scored(PathSteps(annotated, node(("m0", "m1"))), bought)
    goes_on = ~table.ended[:, node(("m0",))]
    assert (found.unsupported == goes_on).all()
    assert (found.weight == ~goes_on).all()
    assert found.success[goes_on] == pytest.approx(annotated.success[node(("m0", "m1"))])


def test_a_failed_call_counts_as_wrong_and_a_row_without_a_score_as_not_bought():
    table = without_start(random_table(5, n_requests=30, n_models=2, depth=2))
    rows = rows_of(table, lambda r, n: table.trie.depth[n] == 1)
    failed = [replace(row, success=None, stopped=None, failure="timeout") for row in rows if row.model == "m0"]
    unknown = [replace(row, success=None) for row in rows if row.model == "m1"]
    bought = BoughtRows.of(table.request_ids, failed + unknown, table.template)
    steps = [PathSteps(table.annotate(), int(table.trie.node((name,)))) for name in ("m0", "m1")]
    assert scored(steps[0], bought).success == pytest.approx(np.zeros(30))
    assert (scored(steps[1], bought).unsupported == 1.0).all()


def test_a_right_answer_after_the_latency_cap_is_wrong():
    table = without_start(random_table(6, n_requests=30, n_models=2, depth=2))
    bought = BoughtRows.of(table.request_ids, rows_of(table), table.template)
    target = int(table.trie.node(("m0", "m1")))
    exact = follow(table, target)
    cap = float(np.median(exact.latency_s))
    found = scored(PathSteps(table.annotate(), target), bought, max_latency_s=cap)
    assert found.success == pytest.approx((exact.success & (exact.latency_s <= cap)).astype(float))


@pytest.mark.parametrize("rival", [VotePolicy, TwoAgreePolicy])
def test_votes_and_agreement_do_what_the_rivals_do(rival):
    table = random_outcomes(60, 4, seed=3)
    models, trust = table.systems, ("c", "a", "d", "b")
    template = Template((Stage("answer", models), Loop((Stage("retry", models),), 2)), "workflow")
    paths = [RequestPath(name, path, goes_on=True) for name in table.request_ids for path in product(models, repeat=3)]
    bought = BoughtRows.of(table.request_ids, table.observations(paths, template), template)
    for systems in (("a", "b", "c"), ("d", "a"), ("b",)):
        policy = rival(systems, trust)
        tried = TriedSteps.on(policy, table, template, 0.0)
        found, exact = scored(tried, bought), policy.run(table)
        assert found.success == pytest.approx(np.asarray(exact.success, float))
        assert found.cost_usd == pytest.approx(exact.cost_usd)
        assert tried.rest(()).success == pytest.approx(exact.success.mean())
        assert tried.rest(()).cost_usd == pytest.approx(exact.cost_usd.mean())


def test_the_chance_of_a_row_is_the_share_of_the_requests_that_could_have_it():
    table = without_start(random_table(7, n_requests=40, n_models=2, depth=2))
    rows = rows_of(table, lambda r, n: table.trie.depth[n] == 1 or r < 10)
    bought = BoughtRows.of(table.request_ids, rows, make_template(2, 2).bind(tuple(make_catalog(2))))
    goes_on = ~table.ended[:, table.trie.node(("m0",))]
    first = next(row for row in rows if row.prefix == ("m0",) and not row.stopped)
    assert bought.chance((), "m0") == 1.0
    assert bought.chance((first,), "m1") == pytest.approx(goes_on[:10].sum() / goes_on.sum())


def test_a_row_without_a_score_that_leads_to_one_is_a_step_and_no_end():
    """Intermediate calls of an application that only its end can score."""
    table = without_start(random_table(1, n_requests=40, n_models=2, depth=2, stop="workflow"))
    rows = [replace(row, success=None) if row.depth == 1 and not row.stopped else row for row in rows_of(table)]
    bought = BoughtRows.of(table.request_ids, rows, table.template)
    whole = int(table.trie.node(("m0", "m1")))
    found, exact = scored(PathSteps(table.annotate(), whole), bought), follow(table, whole)
    assert found.success == pytest.approx(exact.success.astype(float))
    assert (found.weight == 1.0).all()
    ends = scored(PathSteps(table.annotate(), int(table.trie.node(("m0",)))), bought)
    open_ = np.array(
        [
            any(row.request_id == name and row.success is None and row.model == "m0" for row in rows)
            for name in table.request_ids
        ]
    )
    assert (ends.unsupported[open_] == 1.0).all()  # nobody knows what ending there brings
    assert (ends.unsupported[~open_] == 0.0).all()
    alone = BoughtRows.of(table.request_ids, [row for row in rows if row.depth == 1], table.template)
    assert not any(row.success is None for of in alone.rows.values() for row in of.values())  # it leads nowhere


# -- the difference on requests that ran both -------------------------------------------------------------------------


def steps_of(table, *targets):
    return [PathSteps(table.annotate(), target) for target in targets]


def long_ones(table, n=2):
    """The longest paths that begin with different models."""
    depth = table.trie.depth
    deepest = [node for node in range(1, len(table.trie)) if depth[node] == depth.max()]
    return deepest[0], deepest[-1]


@pytest.mark.parametrize("stop", ["workflow", "oracle"])
def test_where_every_row_is_there_the_scores_are_the_differences(stop):
    table = without_start(random_table(1, n_requests=40, n_models=2, depth=3, stop=stop))
    bought = BoughtRows.of(table.request_ids, rows_of(table), table.template)
    for target in range(1, len(table.trie)):
        own, other = steps_of(table, target, len(table.trie) - 1)
        found, one, two = paired_scores(own, other, bought), scored(own, bought), scored(other, bought)
        for name in ("success", "cost_usd", "latency_s"):
            assert getattr(found, name) == pytest.approx(getattr(one, name) - getattr(two, name))
        assert (found.weight == 1.0).all()
        assert not found.unsupported.any()


@pytest.mark.parametrize("says", [None, 0.1, 0.8])
def test_whole_runs_of_some_requests_give_the_difference_on_average_whatever_is_expected(says):
    table = without_start(random_table(3, n_requests=200, n_models=2, depth=3))
    own, other = steps_of(table, *long_ones(table))
    truth = paired_scores(own, other, BoughtRows.of(table.request_ids, rows_of(table), table.template)).success.mean()
    told = own if says is None else Wrong(own, says)
    means = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        # Longer runs follow fewer requests, whatever the earlier rows show; the two plans are not always run together.
        last = rng.integers(0, 4, (2, len(table.request_ids)))

        def keep(request, node, last=last):
            first = table.trie.prefix(node)[0] == own.path[0]
            return table.trie.depth[node] <= last[int(first), request]

        found = paired_scores(told, other, BoughtRows.of(table.request_ids, rows_of(table, keep), table.template))
        assert found.weight.sum() == pytest.approx(len(table.request_ids), rel=0.6)
        means.append(found.success.mean())
    assert np.mean(means) == pytest.approx(truth, abs=4.0 * np.std(means) / len(means) ** 0.5)


def test_plans_that_agree_where_both_ran_differ_by_nothing_whatever_else_ran_one_of_them():
    table = without_start(random_table(5, n_requests=120, n_models=2, depth=2))
    nodes = [int(table.trie.node((name,))) for name in ("m0", "m1")]
    own, other = steps_of(table, *nodes)
    rows = [
        replace(table.observation(request, node), success=float(request % 3 > 0))
        for node, until in zip(nodes, (40, 90), strict=True)
        for request in range(until)
    ]
    bought = BoughtRows.of(table.request_ids, rows, table.template)
    found = paired_scores(own, other, bought)
    assert found.success.mean() == pytest.approx(0.0, abs=1e-12)
    assert (found.weight > 0.0).sum() == 40
    each = scored(own, bought).success - scored(other, bought).success
    assert abs(each.mean()) > 1e-3  # who ran only one of the two is part of that


def test_requests_that_none_ran_on_both_are_unsupported():
    table = without_start(random_table(7, n_requests=60, n_models=2, depth=2))
    own, other = steps_of(table, *long_ones(table))

    def keep(request, node):
        return (table.trie.prefix(node)[0] == own.path[0]) == (request % 2 == 0)

    found = paired_scores(own, other, BoughtRows.of(table.request_ids, rows_of(table, keep), table.template))
    assert not found.weight.any()
    assert (found.unsupported == 1.0).all()

"""Plans of tried steps: what was bought decides which they are, every planner keeps to them, and the file keeps them."""

import random
from dataclasses import replace

import numpy as np
import pytest
from kit.tries import routed

from vinelm.catalog import Catalog
from vinelm.controller import Planner
from vinelm.errors import InfeasibleError
from vinelm.estimator import make_estimator
from vinelm.evaluation.comparison.comparison import Comparison
from vinelm.evaluation.comparison.tried import by_request, only_tried, tried_steps, with_verdict
from vinelm.objective import Objective
from vinelm.plans.recommendation import served_objective
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template
from vinelm.vinefile import load_trie, save_trie

PRICES = {"tiny": 0.1, "mid": 1.0, "big": 5.0}
TWO = Template((Stage("plan", answerable=False), Stage("answer")))
BEST = Objective(maximize="accuracy")


def catalog():
    def price(usd):
        return {"input": usd, "output": 4 * usd, "source": "a test", "as_of": "2026-01-01"}

    models = [{"name": name, "provider": "test", "model": name, "price": price(usd)} for name, usd in PRICES.items()]
    return Catalog.from_dict({"model": models})


def row(request, *prefix, success=None):
    return Observation(
        request_id=request, prefix=prefix, stage="plan" if len(prefix) == 1 else "answer", success=success,
        stopped=success is not None,
        cost_usd=PRICES[prefix[-1]] / 1000, latency_s=1.0,
    )  # fmt: skip


def runs(request, *paths, right=0.8):
    """The rows of whole runs, each right by a draw of its own."""
    draw = random.Random(request)
    for path in paths:
        yield row(request, path[0])
        yield row(request, *path, success=draw.random() < right)


def fitted(rows, template=None):
    bound = (template or TWO).bind(tuple(PRICES)).with_defaults({stage.name: "big" for stage in (template or TWO).stages})
    return make_estimator("latent").fit(rows, bound, catalog()).annotated_


def steps_of(annotated, tried):
    trie = annotated.trie
    return {trie.prefix(int(node)) for node in trie.target[tried]}


@pytest.fixture(scope="module")
def rows():
    """Of 40 requests all ran today's models and half of them one plan; two explored."""
    found = []
    for n in range(40):
        paths = [("big", "big")] + [("tiny", "mid")] * (n % 2) + [("mid", "tiny")] * (n < 2)
        found += runs(f"q{n}", *paths)
    return found


def test_a_step_is_tried_where_a_quarter_of_those_who_came_there_took_it(rows):
    annotated = fitted(rows)
    tried = tried_steps(annotated, by_request(rows), 40, ())
    assert steps_of(annotated, tried) >= {("big",), ("tiny",), ("big", "big"), ("tiny", "mid")}
    assert not steps_of(annotated, tried) & {("mid",), ("big", "tiny"), ("tiny", "big"), ("tiny", "tiny")}
    more = tried_steps(annotated, by_request(rows), 400, ())  # of ten times the requests no first step was tried enough
    assert steps_of(annotated, more) >= {(name,) for name in PRICES}


def test_what_rows_show_does_not_matter(rows):
    annotated = fitted(rows)
    other = [replace(one, success=None if one.success is None else not one.success) for one in rows]
    one, two = (tried_steps(annotated, by_request(seen), 40, ()) for seen in (rows, other))
    assert np.array_equal(one, two)


def test_plans_take_tried_steps_only_and_the_file_keeps_them(rows, tmp_path):
    within = only_tried(fitted(rows), by_request(rows), 40, ())
    save_trie(tmp_path / "a.vine", within)
    for annotated in (within, load_trie(tmp_path / "a.vine")):
        for cap in (0.0012, 0.005, 0.02, None):
            decision = Planner(annotated).mixed(Objective(maximize="accuracy", max_cost_usd=cap))
            assert {part.path for _, part in decision.parts} <= {("big", "big"), ("tiny", "mid"), ("mid", "tiny")}


def test_a_plan_that_branches_keeps_to_them_too():
    annotated = routed()
    trie, free = annotated.trie, Planner(annotated).plan(BEST)
    used = np.flatnonzero(free.reached > 0.0)
    banned = np.isin(trie.target, used[trie.depth[used] == 2])
    left = Planner(replace(annotated, tried=~banned)).plan(BEST)
    assert left.accuracy < free.accuracy
    assert not np.any(left.reached[trie.target[banned]])
    with pytest.raises(InfeasibleError):
        Planner(replace(annotated, tried=np.zeros(trie.n_edges, np.bool_))).plan(BEST)


def test_merged_histories_have_tried_steps_by_edge():
    template = Template((Stage("plan"), Loop((Stage("answer"),), times=2, memory=1)))
    found = []
    for n in range(40):
        for path in [("big", "big", "big")] + [("tiny", "mid", "mid")] * (n % 2):
            found += [row(f"q{n}", *path[:k], success=True if k == 3 else None) for k in (1, 2, 3)]
    annotated = fitted(found, template)
    within = only_tried(annotated, by_request(found), 40, ())
    assert within.tried.shape == (annotated.trie.n_edges,)
    decision = Planner(within).plan(Objective(maximize="accuracy", max_cost_usd=0.003))
    used = {annotated.trie.models[annotated.trie.model[node]] for node in np.flatnonzero(decision.reached > 0.0) if node}
    assert used <= {"tiny", "mid"}


def test_what_cannot_be_judged_is_replaced_by_what_was_run():
    """Exploring rows promise a plan that nobody ran; the one that was run on purpose is proven, and is what the file has."""
    found, names = [], [f"q{n}" for n in range(300)]
    for n, name in enumerate(names):
        hard = n % 5 == 0
        for path in [("big", "big"), ("tiny", "mid")]:
            found += [row(name, path[0]), row(name, *path, success=not hard)]
        if n % 30 == 0:  # a few look better than they are
            found += [row(name, "mid"), row(name, "mid", "tiny", success=True)]
    bound = TWO.bind(tuple(PRICES)).with_defaults({"plan": "big", "answer": "big"})
    verdict = Comparison(requests=names, rows=found, template=bound, catalog=catalog()).verdict()
    annotated = with_verdict(fitted(found), verdict, names, found)
    assert verdict.advice == "switch"
    plan = Planner(annotated).mixed(served_objective(verdict))
    assert {part.path for _, part in plan.parts} <= {("tiny", "mid"), ("big", "big")}
    assert verdict.tried_only == (annotated.tried is not None)
    assert verdict.tried_only  # of the plans of any step, the rows show none

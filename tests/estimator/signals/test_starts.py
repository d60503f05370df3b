"""What is known before the first call: kinds of request, the stage that a request begins in; and stages side by side."""

from dataclasses import replace

import numpy as np
import pytest
from kit.stores import made_store
from kit.worlds.branching_answers import BranchingWorld
from kit.worlds.branching_answers import path_trie as branching_paths
from kit.worlds.outcomes import random_outcome_trie

from vinelm import Objective, estimate
from vinelm.controller import Planner
from vinelm.estimator import estimate_signals, make_estimator
from vinelm.estimator.arms import with_kinds_counted
from vinelm.evaluation.plans.arms import by_kind
from vinelm.rows.observation import Observation
from vinelm.template import Branch, Loop, Parallel, Stage, Template
from vinelm.trie.outcomes import path_edges
from vinelm.vinefile.structure import check_annotated

USD = {"small": 0.001, "mid": 0.001}
UNLIKE = {"code": {"small": 0.2, "mid": 0.9}, "prose": {"small": 0.9, "mid": 0.2}}
BEST = Objective(maximize="accuracy", max_cost_usd=0.00105)
MODELS = ("small", "mid")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    path = tmp_path_factory.mktemp("kinds") / "a.db"
    return estimate(made_store(path, UNLIKE["code"], USD, requests=90, kinds=UNLIKE, has_answers=True), check=False)


def test_a_kind_is_an_arm_before_the_first_call(kinds):
    signals = kinds.signals
    check_annotated(kinds)
    first = {arm: signals.arm[nodes[0]] for arm, nodes in signals.trie.arms(0).items()}
    assert {signals.arm_stages[arm] for arm in first} == {
        (arm, kind) for arm, (_, kind) in kinds.arm_stages.items() if arm in first
    }
    assert first["answer [code]"] == pytest.approx(0.5, abs=1e-4)
    assert sum(first.values()) == pytest.approx(1.0, abs=1e-9)
    assert any(stage.startswith("retry [code] [") for stage in signals.trie.stages), "and later arms are what was shown"


def test_plans_follow_the_kind_and_what_is_shown(kinds):
    plan = Planner(kinds.signals).mixed(BEST)
    first = {one.kind: next(iter(one.first)) for one in by_kind(plan)}
    assert (first["code"], first["prose"]) == ("mid", "small")
    without = Planner(estimate_signals(*plain(kinds))).mixed(BEST)
    assert plan.accuracy > without.accuracy + 0.1


def plain(annotated):
    """The path trie without kinds, and rows of requests of both kinds."""
    rng, rows = np.random.default_rng(0), []
    for i in range(90):
        for model in MODELS:
            right = bool(rng.random() < UNLIKE[("code", "prose")[i % 2]][model])
            rows.append(observed(f"q{i}", (model,), "answer", right, USD[model], stopped=right))
    template = annotated.template.base
    return make_estimator("latent").fit(rows, template, annotated.catalog).annotated_, rows


def observed(request, prefix, stage, right, usd, **more):
    name = "right" if right else f"wrong {prefix[-1]}"
    return Observation(
        request_id=request, prefix=prefix, stage=stage, success=right, cost_usd=usd, latency_s=1.0,
        **{"answer": f'"{name}"', "answer_digest": name, "answer_class": 0 if right else 1 + MODELS.index(prefix[-1])} | more,
    )  # fmt: skip


def test_other_shares_of_the_kinds_are_those_of_a_mean_over_them(kinds):
    signals = kinds.signals
    shifted = with_kinds_counted(signals, {"code": 3.0, "prose": 1.0})
    check_annotated(replace(kinds, signals=shifted))
    of_kind = {one.kind: one for one in by_kind(Planner(signals).plan(BEST))}
    plan = Planner(shifted).plan(BEST)
    assert {one.kind: round(one.share, 4) for one in by_kind(plan)} == {"code": 0.75, "prose": 0.25}
    assert plan.accuracy == pytest.approx(0.75 * of_kind["code"].accuracy + 0.25 * of_kind["prose"].accuracy, abs=1e-3)
    graph = plan.plan.graph
    assert graph.right_by_fit[1][:, :].sum(axis=0).mean() > 0.0
    spread = shifted.outcomes.spread.mean(axis=1)
    expected = shifted.outcomes.right * shifted.reach[shifted.outcomes.node]
    assert spread == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_requests_may_begin_in_several_stages(kinds):
    template = Template(
        (Branch({"a": (Stage("quick", MODELS),), "b": (Stage("slow", MODELS),)}), Loop((Stage("retry", MODELS),), 1))
    )
    rng, rows = np.random.default_rng(1), []
    for i in range(80):
        stage, often = ("quick", 0.9) if i % 4 else ("slow", 0.4)
        for model in MODELS:
            right = bool(rng.random() < often)
            arm = None if right else "retry"
            rows.append(observed(f"q{i}", (model,), stage, right, 0.001, stopped=right, arm=arm))
            if not right:
                rows.append(observed(f"q{i}", (model, "mid"), "retry", bool(rng.random() < 0.5), 0.001, stopped=True))
    paths = make_estimator("latent").fit(rows, template, kinds.catalog).annotated_
    signals = estimate_signals(paths, rows, fits=2)
    check_annotated(replace(paths, signals=signals))
    shares = {arm: float(signals.arm[nodes[0]]) for arm, nodes in signals.trie.arms(0).items()}
    assert shares == pytest.approx({"quick": 0.75, "slow": 0.25}, abs=0.05)
    right = {arm: signals.success[nodes[0]] for arm, nodes in signals.trie.arms(0).items()}
    assert right["quick"] > right["slow"] + 0.2


def test_nothing_is_shown_between_stages_that_run_side_by_side(kinds):
    quiet = {name: Stage(name, MODELS, answerable=False) for name in ("law", "tax")}
    template = Template((Parallel((quiet["law"], quiet["tax"])), Stage("solve", MODELS), Loop((Stage("again", MODELS),), 1)))
    rng, rows = np.random.default_rng(2), []
    for i in range(40):
        for law, tax, last in [(a, b, c) for a in MODELS for b in MODELS for c in MODELS]:
            none = {"stopped": False, "answer": None, "answer_digest": None, "answer_class": None}
            odd = "odd" if i % 3 == 0 else "usual"
            for prefix, stage, word in (((law,), "law", odd), ((law, tax), "tax", odd)):
                rows.append(observed(f"q{i}", prefix, stage, False, 0.001, signal=word, **none))
            right = bool(rng.random() < (0.3 if i % 3 == 0 else 0.8))
            rows.append(observed(f"q{i}", (law, tax, last), "solve", right, 0.001, signal="usual", stopped=right))
    rows = list({(row.request_id, row.prefix): row for row in rows}.values())
    paths = make_estimator("latent").fit(rows, template, kinds.catalog).annotated_
    signals = estimate_signals(paths, rows, fits=2)
    check_annotated(replace(paths, signals=signals))
    outcomes = signals.outcomes
    for node in range(1, len(signals.trie)):
        here, stage = outcomes.node == node, signals.stage_names[signals.trie.stage[node]]
        if stage == "law":
            assert outcomes.chance[here] == pytest.approx([1.0])
        if stage == "tax":
            assert {outcomes.labels[label].signal for label in outcomes.label[here]} == {"odd", "usual"}


def test_steps_that_were_not_tried_are_left_out_of_both_tries():
    signals, _, paths = random_outcome_trie(np.random.default_rng(3), n_models=2, depth=3)
    of_path = paths.trie.model[paths.trie.target]
    tried = of_path == 1  # model m1 alone, wherever
    within = replace(paths, signals=signals).within(tried)
    assert np.array_equal(within.signals.tried, signals.trie.model[signals.trie.target] == 1)
    edges = path_edges(signals.trie, signals.outcomes.stages, paths.trie)
    assert np.array_equal(paths.trie.depth[paths.trie.target[edges]], signals.trie.depth[signals.trie.target])
    plan = Planner(within.signals).plan(Objective(maximize="accuracy"))
    assert "m0" not in plan.explain()


def test_a_chosen_stage_is_no_start():
    world = BranchingWorld.draw(np.random.default_rng(0), 60)
    rows = list(world.rows(lambda q: [(0, 1, 1), (1, 0, 1)]))
    signals = estimate_signals(branching_paths(rows), rows, fits=2)
    assert len(signals.trie.arms(0)) == 1

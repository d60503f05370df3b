"""The SLO benchmark's rows are those that are asked for, and its recorded requests are what the record says."""

import gzip
import sys
from dataclasses import replace

import numpy as np
import pytest

from vinelm.controller.planning.metric import LATE_WEIGHT

pytest.importorskip("simpy")

import bench_slo
import slo_figures
import slo_workloads


@pytest.fixture(scope="module")
def scripts():
    return bench_slo, slo_workloads, slo_figures


@pytest.fixture(scope="module")
def bench(scripts):
    script, workloads, _ = scripts
    whole = workloads.simulated(None)
    small = replace(whole, slos_s=(2.0, 4.0), split=lambda seed: [part.rows(range(12)) for part in whole.split(seed)])
    return script.Bench.of(small, 0)


@pytest.fixture(scope="module")
def rows(scripts, bench):
    script, *_ = scripts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["slo_rivals"], "TRIALS", 1)
        return [row for a in (*script.ARRIVALS, "crowd") for row in bench.rows(a, None)]


@pytest.mark.long
def test_every_policy_meets_every_load_at_every_slo(scripts, rows):
    bench, _, figures = scripts
    names = ["policy", "slo_s", "arrivals", "per_second", "load_age_s", "has_dispatch_correction", "seed"]
    assert all([*row] == [*names, *bench.FIGURES] for row in rows)
    found = {tuple(row[name] for name in names) for row in rows}
    assert len(found) == len(rows) == 2 * (3 * (4 + 6 * 2) + 4 + 6 * 3)
    assert {row["policy"] for row in rows} == set(figures.POLICIES)
    assert {row["arrivals"] for row in rows} == {"idle", "Poisson", "bursty (gamma; no trace at hand)", "crowd"}
    for row in rows:
        assert row["in_slo_accuracy"] <= min(row["accuracy"], 1 - row["violation_rate"]) + 1e-9
        assert row["cost_usd"] > 0


def test_idle_engines_show_no_load(scripts, rows):
    bench, _, figures = scripts
    idle = [row for row in rows if row["arrivals"] == "idle"]
    aware, unaware = ([row for row in idle if row["policy"] == policy] for policy in (figures.AWARE, figures.UNAWARE))
    for row in aware:
        [same] = [other for other in unaware if other["slo_s"] == row["slo_s"]]
        assert [row[name] for name in bench.FIGURES] == [same[name] for name in bench.FIGURES]


def test_the_strong_static_plan_is_the_best_of_its_trials_which_are_not_those_that_are_served(bench):
    from slo_rivals import OTHER_SEEDS, TRIALS, PlansUnderLoad

    seeds = []

    def times(seed):
        seeds.append(seed)
        return bench.times("Poisson", None, seed)[0]

    plans = PlansUnderLoad(bench.planner, bench.training, 25, times, lambda seed: bench.settings("Poisson", seed), 0)
    best = plans.best(2.0, 0.5)
    assert seeds == list(range(OTHER_SEEDS, OTHER_SEEDS + TRIALS))
    assert len(plans.tried) == 36  # four models, one to three invocations: 4 + 16 + 16

    def value(path):
        found = plans.tried[path]
        return np.mean([(one.success & (one.latency_s <= 2.0)).mean() - 0.5 * (one.latency_s > 2.0).mean() for one in found])

    assert value(best) == pytest.approx(max(value(path) for path in plans.tried))
    assert plans.best(2.0, None) == plans.best(2.0, LATE_WEIGHT)  # weighed as the program weighs it


def test_a_sparse_annotation_is_bought_for_two_percent(bench, scripts):
    from slo_rivals import sparse_annotation

    _, workloads, _ = scripts
    training = workloads.simulated_requests(120, seed=3)
    sparse = sparse_annotation(training, 0)
    bought = int(sparse.count[1:].sum())
    assert 0 < bought < 0.1 * training.reached[:, 1:].sum()
    assert bench.sparse.annotated.meta["estimator"] == "latent"


def test_the_summary_compares_within_seeds(scripts):
    *_, figures = scripts
    made = [
        {"seed": seed, "x": x, "kind": kind} for seed, x, kind in ((1, 2.0, "a"), (0, 1.0, "a"), (1, 4.0, "a"), (1, 9.0, "b"))
    ]
    np.testing.assert_array_equal(figures.of(made, "x", kind="a"), [1.0, 3.0])
    np.testing.assert_array_equal(figures.of(made, "x", kind=("a", "b")), [1.0, 5.0])
    assert figures.stated(np.array([0.1, 0.3])) == " 20.0 +-127.1 %"


def test_recorded_exams_are_what_the_record_says(scripts, tmp_path):
    _, workloads, _ = scripts
    lines = ["dataset,question_id,model,round,correct,cost_usd,latency_s,answer"]
    for question, model, round_, correct, latency in (
        ("1", "a", 1, 0, 2.0), ("1", "a", 2, 1, 5.0), ("1", "b", 1, 1, 3.0), ("2", "a", 1, 1, 2.0), ("2", "b", 1, 0, ""),
    ):  # fmt: skip
        lines.append(f"x,{question},{model},{round_},{correct},0.01,{latency},{'A' if question == '1' else ''}")
    path = tmp_path / "exams.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    table = workloads.recorded_exams(path)
    node = {path: table.trie.node(path) for path in (("a",), ("b",), ("a", "a"), ("a", "b"), ("b", "b"))}
    assert table.request_ids == ("x/1", "x/2")
    assert [bool(table.success[0, node[path]]) for path in node] == [False, True, True, True, True]
    assert [float(table.latency_s[0, node[path]]) for path in node] == [2.0, 3.0, 5.0, 3.0, 3.0]
    assert float(table.latency_s[1, node["b",]]) == 3.0  # not recorded: the model's mean
    assert table.with_stop("workflow").ended[:, node["a",]].tolist() == [True, False]  # a letter passes, right or wrong
    assert not table.success[1, node["b", "b"]]  # nor is its retry, which repeats the wrong answer


def test_the_pages_quote_means_over_seeds_and_leads_within_them(scripts):
    *_, figures = scripts
    late = {figures.STATIC: (0.5, 0.7), figures.STRONG: (0.2, 0.3), figures.AWARE: (0.4, 0.4), figures.PROGRAM: (0.12, 0.2)}
    labels = {"has_dispatch_correction": True, "per_second": 1.0}
    rows = [
        {"policy": policy, "slo_s": slo_s, "arrivals": arrivals, "seed": seed, **labels}
        | {"load_age_s": 0.0 if policy in figures.LOAD_AWARE else None}
        | {"violation_rate": shares[seed] / slo_s, "in_slo_accuracy": 0.5}
        for policy, shares in late.items()
        for slo_s in (1.0, 2.0)
        for arrivals in ("Poisson", "crowd", "idle")
        for seed in (0, 1)
    ]
    found = figures.page_figures(rows)
    assert found["tight_slos_s"] == [1.0, 2.0]
    assert found["by_slo"]["1 s"][figures.STATIC]["late"] == pytest.approx(0.6)
    assert found["by_slo"]["2 s"][figures.STATIC]["text"] == "30.0 % (50.0 %)"
    assert found["tight"][figures.PROGRAM]["late"] == pytest.approx(0.16 * 0.75)
    lead = found["program_over"][figures.STRONG]["1 s"]
    assert (lead["fewer_late"], lead["more_right"]) == ("9.0 ± 12.7", "0.0 ± 0.0")
    assert lead["fewer_late_points"]["high"] == pytest.approx(9.0 + 12.7, abs=0.1)
    assert found["program_over"][figures.GREEDY]["1 s"] == {"fewer_late": "-", "more_right": "-"}
    assert found["old_reports"][figures.PROGRAM]["fresh"] == "12.0 % (8.0 %)"
    assert found["by_slo"]["1 s"][figures.SPARSE] == {}
    weights = figures.violations_by_weight({0.5: rows, 1.0: rows})
    assert list(weights) == ["0.5", "1", figures.AWARE]


def test_rules_that_react_make_the_calls_that_fit_and_a_hedge_takes_the_first_answer(scripts, bench):
    from science.simulator import Hedged, simulate
    from slo_rivals import MARGIN, expected_s, greedy_chooser, guarded_chooser, hedged_chooser

    planner, trie = bench.planner, bench.planner.trie
    seconds = {trie.models[int(trie.model[node])]: expected_s(planner, int(node), {}) for node in trie.children(0)}
    greedy = greedy_chooser(planner, 100.0)
    assert greedy(0, 0.0, 0.0, {}) == "large"
    right = {name: planner.annotated.accuracy[trie.child(0, name)] for name in trie.models}
    fits = [name for name in seconds if seconds[name] <= seconds["medium"]]
    assert greedy(0, 99.999 - MARGIN * seconds["medium"], 0.0, {}) == max(fits, key=right.__getitem__)
    assert greedy(0, 99.99, 0.0, {}) == "tiny"  # nothing fits: the fastest is asked all the same, once
    assert greedy(trie.node(("tiny",)), 99.99, 0.0, {}) is None
    assert greedy(0, 0.0, 0.0, {"large": 99.0, "medium": 99.0, "small": 99.0}) == "tiny"  # engines as they are loaded now
    guarded = guarded_chooser(("tiny", "large"), planner, 100.0)
    assert guarded(0, 99.0, 0.0, {}) == "tiny"
    assert guarded(trie.node(("tiny",)), 0.0, 0.0, {}) == "large"
    assert guarded(trie.node(("tiny",)), 99.0, 0.0, {}) is None
    hedge = hedged_chooser(("large",), planner)(0, 0.0, 0.0, {})
    assert (hedge.model, hedge.other) == ("large", "tiny")
    table, times = bench.served, np.arange(len(bench.served.request_ids)) * 1000.0
    settings = bench.settings("idle", 0)

    def once_by(choice):
        return simulate(table, times, lambda node, *_: None if node else choice, settings)

    once, own, other = map(once_by, (Hedged("large", "tiny", 2.5), "large", "tiny"))
    slow = own.latency_s > 2.5
    assert 0 < slow.sum() < len(slow)
    np.testing.assert_allclose(once.latency_s, np.where(slow, np.minimum(own.latency_s, 2.5 + other.latency_s), own.latency_s))
    np.testing.assert_allclose(once.cost_usd, own.cost_usd + np.where(slow, other.cost_usd, 0.0))

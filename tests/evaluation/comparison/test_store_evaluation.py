"""`evaluate` on stores: what is refused in one line, cross-fitting, and verdicts from worlds whose truth is known."""

from dataclasses import replace

import evaluate_coverage as coverage
import numpy as np
import pytest
from kit.catalogs import make_catalog
from kit.outcome_tables import catalog as catalog_of
from kit.outcome_tables import random_outcomes
from kit.templates import make_template

import vinelm
from vinelm.errors import ConfigError
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.comparison.comparable import require_comparable
from vinelm.evaluation.comparison.cross_fit import CrossFit
from vinelm.evaluation.comparison.fit import part_of
from vinelm.reports.evaluation_text import evaluation_lines, evaluation_tables
from vinelm.requests.protocols import RequestPath
from vinelm.rows.observation import Observation
from vinelm.template import Branch, Loop, Stage, Template
from vinelm.traces import ObservationStore, StoreIdentity

BEST = vinelm.Objective(maximize="accuracy")


def store_of(path, rows, template, catalog, requests):
    identity = StoreIdentity(
        workflow="a test", template=template.to_dict(), catalog=catalog.to_dict(), dataset_digest="d", fingerprint={},
        is_simulated=False, created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    with ObservationStore.create(path, identity) as store:
        store.register_digests(dict.fromkeys(requests, "x"))
        store.add_many(rows)
    return path


def row(i, model="m0", **fields):
    return Observation(
        **{
            "request_id": f"q{i}", "prefix": (model,), "stage": "generate", "success": i % 3 > 0, "stopped": True,
            "cost_usd": 0.01, "latency_s": 1.0, **fields,
        }
    )  # fmt: skip


def small_store(path, rows, *, models=2):
    template = make_template(models).bind(tuple(make_catalog(models)))
    return store_of(path, rows, template, make_catalog(models), [f"q{i}" for i in range(60)])


def table_store(path, table: OutcomeTable, *, share=1.0, signals=False, seed=0):
    """A store of random paths of three systems."""
    template = Template((Stage("answer"), Loop((Stage("retry"),), times=2)), "workflow").bind(table.systems)
    rng = np.random.default_rng(seed)
    paths = [
        RequestPath(name, tuple(map(str, rng.choice(table.systems, 3))), goes_on=signals and rng.random() < 0.5)
        for name in table.request_ids
        for _ in range(6)
        if rng.random() < share
    ]
    rows = table.observations(paths, template)
    if not signals:
        rows = [replace(one, answer_class=None, signal=None) for one in rows]
    return store_of(path, rows, template, catalog_of(table), table.request_ids)


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "models", "code", "words"),
    [
        ([], 2, "too-few-rows", "0 requests have a scored answer"),
        ([row(i) for i in range(12)], 2, "too-few-rows", "12 requests"),
        ([row(i) for i in range(60)], 1, "one-model", "one model, 'm0'"),
        (
            [row(i, success=None, stopped=None, failure=("timeout", "auth")[i % 2]) for i in range(60)],
            2, "all-failed", "every one of the 60 rows failed (auth 30, timeout 30)",
        ),
    ],
)  # fmt: skip
def test_a_store_that_cannot_say_anything_is_one_line(tmp_path, rows, models, code, words):
    with pytest.raises(ConfigError) as caught:
        vinelm.evaluate(small_store(tmp_path / "s.db", rows, models=models))
    assert caught.value.code == code
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["budget_usd", "log", "workflow", "models"])
def test_what_only_serving_needs_is_refused_without_it(tmp_path, name):
    store = small_store(tmp_path / "s.db", [row(i, f"m{j}") for i in range(60) for j in range(2)])
    with pytest.raises(ConfigError, match=name):
        vinelm.evaluate(store, **{name: 1.0 if name == "budget_usd" else "x"})


def test_serving_needs_an_objective(tmp_path):
    store = small_store(tmp_path / "s.db", [row(i, f"m{j}") for i in range(60) for j in range(2)])
    with pytest.raises(ConfigError, match="one objective"):
        vinelm.evaluate(store, serve=5)


def test_a_bound_that_no_plan_meets_is_one_line(tmp_path):
    store = small_store(tmp_path / "s.db", [row(i, f"m{j}") for i in range(60) for j in range(2)])
    with pytest.raises(ConfigError, match="loosen the bounds"):
        vinelm.evaluate(store, objective=vinelm.Objective(maximize="accuracy", max_cost_usd=1e-9))


def test_free_models_are_compared_by_accuracy_alone(tmp_path):
    table = random_outcomes(120, 3)
    table = replace(table, cost_usd=np.zeros(table.cost_usd.shape))
    found = vinelm.evaluate(table_store(tmp_path / "s.db", table))
    assert len(found.objectives) == 1
    assert found.objectives[0].max_cost_usd is None
    assert any("free" in note for note in found.notes)


# -- verdicts ----------------------------------------------------------------------------------------------------


def test_the_split_follows_from_the_ids():
    names = [f"q{i}" for i in range(400)]
    first = [part_of(name, 0) for name in names]
    assert {part: 70 < first.count(part) < 130 for part in range(4)} == dict.fromkeys(range(4), True)
    assert first != [part_of(name, 1) for name in names]
    assert {part_of(name, 0, 2) for name in names} == {0, 1}


@pytest.mark.parametrize("parts", [2, 4])
def test_every_request_is_judged_once_by_plans_of_other_requests(parts):
    table = random_outcomes(120, 2)
    template = Template((Stage("answer"), Loop((Stage("retry"),), times=1)), "workflow").bind(table.systems)
    rows = [
        row(i, model, request_id=name, stage="answer") for i, name in enumerate(table.request_ids) for model in table.systems
    ]
    fit = CrossFit(table.request_ids, rows, template, catalog_of(table), estimator="latent", parts=parts)
    judged = [name for one in fit.bought for name in one.requests]
    assert sorted(judged) == sorted(table.request_ids)
    for one, half in zip(fit.bought, fit.planning, strict=True):
        planned = {row.request_id for row in half.rows}
        assert planned.isdisjoint(one.requests)
        assert len(planned) + len(one.requests) == 120


def test_where_several_stages_may_begin_the_rows_may_say_that_one_does():
    template = Template((Branch({"a": (Stage("a"),), "b": (Stage("b"),)}),)).bind(("m0", "m1"))
    rows = [row(i, model, stage="a") for i in range(30) for model in ("m0", "m1")]
    names = [f"q{i}" for i in range(30)]
    require_comparable(names, rows, template)
    with pytest.raises(ConfigError, match="requests begin in different stages"):
        require_comparable(names, [*rows, row(31, stage="b")], template)


def test_a_better_second_model_is_worth_a_plan_and_the_interval_has_the_truth(tmp_path):
    """Two models that are right on different requests, a third that is right on none, and a perfect check."""
    n = 400
    right = np.zeros((n, 3), bool)
    right[: n // 2, 0] = right[n // 2 :, 1] = True
    right = right[np.random.default_rng(0).permutation(n)]
    table = replace(random_outcomes(n, 3), success=right, passed=right, cost_usd=np.full((n, 3), 0.01))
    found = vinelm.evaluate(table_store(tmp_path / "s.db", table), objective=BEST)
    own = found.policy("paths")
    assert own.accuracy.low <= 1.0 <= own.accuracy.high + 1e-9
    assert own.against["single"].low > 0.3
    assert (found.verdict.advice, found.verdict.is_fixed) == ("switch", True)  # one model per stage, tried in turn
    assert found.verdict.plan.best_low > 0.3


def test_models_that_are_alike_are_not_worth_it(tmp_path):
    table = random_outcomes(300, 3)
    same = replace(table, success=table.success[:, [0, 0, 0]], passed=table.passed[:, [0, 0, 0]])
    found = vinelm.evaluate(table_store(tmp_path / "s.db", same))
    assert found.verdict.advice != "switch" or found.verdict.plan.saved_usd > 0.0  # the cheapest of them
    assert found.is_served is False
    assert found.requests == 300


@pytest.fixture(scope="module")
def with_answers(tmp_path_factory):
    """An evaluation of a store with answers, some of them below a passed check."""
    path = table_store(tmp_path_factory.mktemp("s") / "s.db", random_outcomes(160, 3, seed=2), signals=True)
    steps = []
    return vinelm.evaluate(path, objective=BEST, on_done=lambda *step: steps.append(step)), steps


def test_every_policy_is_judged_and_progress_is_told(with_answers):
    found, steps = with_answers
    assert [one.name for one in found.policies] == ["signals", "paths", "static", "single", "vote", "two_agree"]
    assert {step[2] for step in steps} == {"estimating", "judging"}
    assert all(done < total for done, total, _ in steps)
    assert any("how they were bought" in note for note in found.notes)  # these rows name no sampler


def test_plain_types_and_words_tell_the_same(with_answers):
    found, _ = with_answers
    plain = found.to_dict()
    assert plain["verdict"] == found.verdict.to_dict()
    assert [one["policy"] for one in plain["policies"]] == [one.name for one in found.policies]
    policies, gains, *_ = evaluation_tables(found)
    assert len(policies.rows) == len(found.policies)
    assert {row.cells[0] for row in gains.rows} == {"VineLM, signals", "VineLM, paths", "vote", "until two agree"}
    assert any("Optimism" in line for line in evaluation_lines(found)) is found.headline.accuracy.is_identified


def test_the_same_store_gives_the_same_figures(tmp_path):
    path = table_store(tmp_path / "s.db", random_outcomes(120, 3, seed=4))
    found = vinelm.evaluate(path)
    assert found.to_dict() == vinelm.evaluate(path).to_dict()
    _judges_each_budget_alone(found)


def _judges_each_budget_alone(found):
    """Intervals are wider than those of one budget, so that all of them hold together."""
    assert [one.objectives for one in found.by_budget] == [(one,) for one in found.objectives]
    middle = found.by_budget[len(found.objectives) // 2]
    assert middle.level == pytest.approx(1 - 0.05 / len(found.objectives))
    assert len(evaluation_tables(found)[-1].rows) == len(found.objectives)
    mean = np.mean([one.policy("paths").accuracy.value for one in found.by_budget])
    assert mean == pytest.approx(found.policy("paths").accuracy.value)


def test_steps_without_rows_are_not_identified(tmp_path):
    """First answers only: what a second call would do nobody knows."""
    table = random_outcomes(200, 3, easy=-1.0)
    template = Template((Stage("answer"), Loop((Stage("retry"),), times=2)), "workflow").bind(table.systems)
    paths = [RequestPath(name, (model,)) for name in table.request_ids for model in table.systems]
    rows = [replace(one, answer_class=None, signal=None) for one in table.observations(paths, template)]
    path = store_of(tmp_path / "s.db", rows, template, catalog_of(table), table.request_ids)
    found = vinelm.evaluate(path, objective=BEST)
    assert not found.policy("paths").accuracy.is_identified
    assert found.policy("paths").accuracy.unsupported > 0.1
    cells = next(row.cells for row in evaluation_tables(found)[0].rows if row.cells[0] == "VineLM, paths")
    assert cells[2] == "not identified"
    assert cells[1].startswith("~")
    assert found.not_identified() == (found.policy("paths"),)
    (line,) = (line for line in evaluation_lines(found) if "Serving held-out requests identifies it" in line)
    assert line.startswith("VineLM over paths is not identified: ")
    assert "for which no row was bought" in line


# -- the benchmark -----------------------------------------------------------------------------------------------


def drawn(kind, worlds, seed, estimator="cascade-svd"):
    arguments = type("Arguments", (), {"seed": seed, "estimator": estimator, "jobs": 1})
    return coverage.run_kind(arguments, kind, worlds, [])


def test_a_few_worlds_are_covered(monkeypatch):
    monkeypatch.setattr(coverage, "FRESH", 2000)
    found = drawn("paths", 5, 7)
    values = [one for what, one in found["coverage"].items() if what.startswith("value")]
    assert sum(one["covered"] for one in values) >= 0.8 * sum(one["intervals"] for one in values) > 0
    assert found["without_gain"]["claimed"] <= 1
    assert "gain claimed in" in coverage.as_text(found)


@pytest.mark.long
def test_plans_over_signals_are_judged_in_a_few_worlds(monkeypatch):
    monkeypatch.setattr(coverage, "FRESH", 2000)
    found = drawn("signals", 4, 1)  # a value is identified in two of these worlds
    assert found["coverage"]["value of signals"]["intervals"] > 0


@pytest.mark.long
def test_intervals_cover_and_gains_are_not_made_up():
    """A hundred worlds, not those of the documented figures."""
    found = drawn("paths", 100, 11, "latent")
    assert found["coverage"]["all gains"]["interval"][0] <= 0.95 <= found["coverage"]["all gains"]["interval"][1]
    assert found["without_gain"]["interval"][0] <= 0.05

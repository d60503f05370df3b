"""Kinds of request judged by rows: scores by kind, what kinds are worth, and the gate before a service."""

import pytest
from kit.stores import made_store

import vinelm
from vinelm.cli.main import main
from vinelm.evaluation.comparison.fit import Fit
from vinelm.evaluation.off_policy.buying import BoughtRows
from vinelm.evaluation.off_policy.scores import scored
from vinelm.evaluation.off_policy.steps import Rest, Step, StepsByStart
from vinelm.objective import Objective
from vinelm.reports.evaluation_text import evaluation_lines
from vinelm.rows.kinds import untitled
from vinelm.rows.observation import Observation
from vinelm.template import Stage, Template
from vinelm.template.kinds import learnt_kinds
from vinelm.traces import ObservationStore
from vinelm.traces.store.kinds import learnt_of_requests, set_request_kinds, told_apart

PRICES = {"m0": 0.001, "m1": 0.001}
UNLIKE = {"code": {"m0": 0.3, "m1": 0.85}, "prose": {"m0": 0.85, "m1": 0.3}}
ALIKE = {"code": {"m0": 0.5, "m1": 0.7}, "prose": {"m0": 0.5, "m1": 0.7}}
ONE_IS_BEST = {"code": {"m0": 0.1, "m1": 0.95}, "prose": {"m0": 0.1, "m1": 0.95}}
ONE_CALL = Template((Stage("answer", ("m0", "m1")),))


class Runs:
    """Asks one model, once."""

    def __init__(self, model: str) -> None:
        self.model = model

    def step(self, seen: tuple[Observation, ...]) -> Step:
        return Step(None if seen else self.model)

    def rest(self, seen: tuple[Observation, ...]) -> Rest:
        return Rest(0.5)


def row(request: str, model: str, right: bool) -> Observation:
    return Observation(
        request_id=request, prefix=(model,), stage="answer", success=right, stopped=True, cost_usd=0.01, latency_s=0.0
    )


def test_each_request_follows_the_policy_of_its_kind() -> None:
    kinds = {f"q{i}": "code" if i % 2 else "prose" for i in range(20)}
    rows = [row(name, model, (model == "m1") == (kind == "code")) for name, kind in kinds.items() for model in PRICES]
    bought = BoughtRows.of(list(kinds), rows, ONE_CALL, kinds)
    found = scored(StepsByStart({("code", None): Runs("m1"), ("prose", None): Runs("m0")}), bought)
    assert found.success.tolist() == [1.0] * 20
    assert scored(Runs("m1"), bought).success.mean() == 0.5


def test_kinds_that_were_bought_more_often_do_not_count_for_more() -> None:
    kinds = {f"q{i:03}": "code" if i < 50 else "prose" for i in range(100)}
    rows = [row(name, "m0", kind == "code") for i, (name, kind) in enumerate(kinds.items()) if kind == "code" or i % 10 == 0]
    together = scored(Runs("m0"), BoughtRows.of(list(kinds), rows, ONE_CALL))
    apart = scored(Runs("m0"), BoughtRows.of(list(kinds), rows, ONE_CALL, kinds))
    assert together.success.mean() > 0.9  # of the rows, where ten times as many are of the easy kind
    assert apart.success.mean() == pytest.approx(0.5)


def test_a_kind_without_a_models_first_answer_shares_its_chances_with_others_like_it() -> None:
    kinds = {f"q{i}": "code" if i < 10 else "prose" for i in range(20)}
    rows = [row(f"q{i}", "m0", True) for i in range(20)] + [row(f"q{i}", "m1", True) for i in range(5)]
    bought = BoughtRows.of(list(kinds), rows, ONE_CALL, kinds)
    assert bought.chance((), "m1", "q0") == 0.5
    assert bought.chance((), "m1", "q10") == 0.0


def test_rows_told_apart_come_back_as_they_were(tmp_path) -> None:
    path = made_store(tmp_path / "a.db", UNLIKE["code"], PRICES, requests=40, kinds=UNLIKE)
    with ObservationStore.open(path) as store:
        rows, template = told_apart(store, store.observations(), store.identity.bound_template())
        assert template.kinds == ("code", "prose", "other")
        assert untitled(rows, template) == store.observations()
        assert set(learnt_of_requests(store, template)[0].values()) == {"code", "prose"}


def test_a_half_plans_by_kind_and_without(tmp_path) -> None:
    path = made_store(tmp_path / "a.db", UNLIKE["code"], {"m0": 0.001, "m1": 0.002}, requests=60, kinds=UNLIKE, depth=1)
    with ObservationStore.open(path) as store:
        rows, template = told_apart(store, store.observations(), store.identity.bound_template())
        half = Fit(rows, template, store.identity.models(), "latent")
    found = half.choose(Objective(maximize="accuracy"))
    assert found["paths"].promised_accuracy > found["no_kinds"].promised_accuracy + 0.15
    assert {"static", "single"} <= set(found)
    assert found["no_kinds"].promised_cost_usd <= found["paths"].promised_cost_usd * 1.001


@pytest.mark.parametrize(("truth", "words"), [(UNLIKE, "They are worth declaring"), (ALIKE, "not worth declaring")])
def test_an_evaluation_says_what_kinds_are_worth(tmp_path, truth, words) -> None:
    path = made_store(tmp_path / "a.db", truth["code"], PRICES, requests=160, kinds=truth, depth=1)
    found = vinelm.evaluate(path, objective=Objective(maximize="accuracy"))
    assert found.kinds is not None
    assert (found.kinds.low > 0.1) == (truth is UNLIKE)
    assert found.verdict.advice == "switch" if truth is UNLIKE else found.verdict.plan is None or found.verdict.gain[0] < 0.1
    assert any(line.startswith("Kinds of request") and words in line for line in evaluation_lines(found))
    assert found.to_dict()["kinds"]["value"] == found.kinds.value
    with ObservationStore.open(path) as store:
        set_request_kinds(store, {})
    plain = vinelm.evaluate(path, objective=Objective(maximize="accuracy"))
    assert plain.kinds is None
    assert not any(line.startswith("Kinds") for line in evaluation_lines(plain))


def test_rows_prove_plans_by_kind_against_what_runs_today(tmp_path) -> None:
    path = made_store(tmp_path / "a.db", UNLIKE["code"], PRICES, requests=100, kinds=UNLIKE, depth=2, today="m0")
    annotated = vinelm.estimate(path)
    found = annotated.verdict
    assert found.why_not == ""
    assert found.models == {"answer": "m0", "retry": "m0"}
    assert found.advice == "switch"
    assert found.plan.best_low > 0.0
    assert vinelm.evaluate(path).verdict == found


def test_kinds_of_few_answers_are_not_told_apart_and_the_evaluation_says_so(tmp_path) -> None:
    path = made_store(tmp_path / "a.db", UNLIKE["code"], PRICES, requests=60, kinds=UNLIKE, depth=1)
    with ObservationStore.open(path) as store:
        set_request_kinds(store, {name: f"k{i % 6}" for i, name in enumerate(store.request_ids())})  # ten requests of each
    found = vinelm.evaluate(path, objective=Objective(maximize="accuracy"))
    assert found.kinds is None
    assert any(note.startswith("Kinds of request are declared and not told apart") for note in found.notes)
    assert learnt_kinds(["a"] * 20 + ["b"] * 20, {"a": 3.9, "b": 4.0}) == ("b", "other")


@pytest.mark.parametrize(("truth", "pays"), [(UNLIKE, True), (ONE_IS_BEST, False)])
def test_declared_kinds_are_told_apart_where_plans_by_kind_promise_more(tmp_path, capsys, truth, pays) -> None:
    path = made_store(tmp_path / "a.db", truth["code"], {"m0": 0.002, "m1": 0.001}, requests=160, kinds=truth, depth=1)
    found = vinelm.estimate(path)
    assert bool(found.template.kinds) == pays
    vinelm.save_trie(tmp_path / "a.vine", found)
    assert main(["plan", str(tmp_path / "a.vine"), "--maximize", "accuracy", "--accept-optimism"]) == 0
    said = "Kinds of request are declared and not told apart: plans by kind promise"
    assert (said in " ".join(capsys.readouterr().out.split())) != pays
    judged = vinelm.evaluate(path, trie=found, objective=Objective(maximize="accuracy"))
    assert any(note.startswith(said) for note in judged.notes) != pays
    assert (judged.kinds is not None) == pays
    assert vinelm.estimate(path, check=False).template.kinds  # nothing is checked


def test_kinds_that_do_not_pay_leave_what_requests_show(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("vinelm.evaluation.tries.promises.promised_gain", lambda by_kind, without: -0.01)
    alike = {kind: {"small": 0.5, "mid": 0.7} for kind in ("code", "prose")}
    prices = {"small": 0.001, "mid": 0.001}
    path = made_store(tmp_path / "a.db", alike["code"], prices, requests=48, kinds=alike, has_answers=True)
    by_kind = vinelm.estimate(path, check=False).signals
    assert by_kind is not None
    assert set(by_kind.stage_kinds) == {"code", "prose", "other"}
    found = vinelm.estimate(path)
    assert found.signals is not None
    assert found.meta["untold_kinds"] == -0.01
    assert vinelm.report(path, found, tmp_path / "report").is_file()

"""The estimate of a store that a judge scored: corrected by labels, with the judge's error in its intervals."""

import datetime
import json

import numpy as np
import pytest

import vinelm
from vinelm.api.estimation import why_paths_only
from vinelm.cli.main import main
from vinelm.errors import ConfigError, EvidenceError
from vinelm.judging import Judgement
from vinelm.judging.judgement import JUDGED
from vinelm.reports.store.page import store_page
from vinelm.reports.store_text import judge_words
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Observation
from vinelm.template import Stage, Template
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.traces.store.judgements import Judgements
from vinelm.trie.verdict import Verdict

N = 320
ACCURACY = {"small": 0.5, "large": 0.8}
TEMPLATE = Template((Stage("answer", ("small", "large")),))


def identity(scorer):
    price = {"input": 1.0, "output": 1.0, "source": "test", "as_of": datetime.date(2026, 1, 1)}
    models = [vinelm.Model(name=name, provider="test", model_id=name, engine="e", price=price) for name in ACCURACY]
    return StoreIdentity(
        workflow="w", template=TEMPLATE.to_dict(), catalog=vinelm.Catalog(models).to_dict(), dataset_digest="d",
        fingerprint={"scorer": scorer}, is_simulated=True, created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip


def judged_store(path, *, sensitivity=0.9, specificity=0.8, labelled=120, unjudged=0, failing=0.0, judge=True, seed=7):
    """Every request on both models; the first ``labelled`` have a label, the last ``unjudged`` no verdict."""
    rng = np.random.default_rng(seed)
    with ObservationStore.open_or_create(path, identity(JUDGED if judge else "code")) as store:
        ids = [f"q{i:03d}" for i in range(N)]
        store.register([Request(name, {"q": name}) for name in ids])
        records = Judgements(store)
        rows, judgements = [], []
        for i, name in enumerate(ids):
            for model, accuracy in ACCURACY.items():
                failed = rng.random() < failing
                truth = rng.random() < accuracy
                verdict = bool(rng.random() < (sensitivity if truth else 1 - specificity))
                row = Observation(
                    request_id=name, prefix=(model,), stage="answer", success=None if failed else verdict if judge else truth,
                    stopped=None if failed else True, cost_usd=0.001 * (1 + 9 * (model == "large")), latency_s=1.0,
                    failure="timeout" if failed else None,
                )  # fmt: skip
                rows.append(row)
                if not failed:
                    judgements.append((name, (model,), judgement(
                        verdict if i < N - unjudged else None, truth if i < labelled else None
                    )))  # fmt: skip
        store.add_many(rows)
        if judge:
            with store.database.transaction():
                for one in judgements:
                    records.add(*one)
    return path


def judgement(correct, truth):
    detail = None if correct is not None else "the judge's reply held no verdict (3 attempts)"
    return Judgement(
        judge="j", asked="a", correct=correct, truth=truth, label=None if truth is None else "l", model="grader",
        cost_usd=0.0001, calls=1, detail=detail,
    )  # fmt: skip


def accuracies(annotated):
    trie = annotated.trie
    nodes = {name: trie.node((name,)) for name in ACCURACY}
    return {name: (float(annotated.accuracy[node]), float(annotated.accuracy_se[node])) for name, node in nodes.items()}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A judged store and its estimate."""
    path = judged_store(tmp_path_factory.mktemp("base") / "j.db")
    return path, vinelm.estimate(path, check=False)


def test_accuracies_are_those_of_right_answers_and_errors_hold_the_judges(tmp_path, base):
    path, judged = base
    true = accuracies(vinelm.estimate(judged_store(tmp_path / "t.db", judge=False), check=False))
    verdicts = accuracies(vinelm.estimate(judged_store(tmp_path / "w.db", labelled=0), check=False))
    for name, (estimate, error) in accuracies(judged).items():
        assert abs(estimate - true[name][0]) < 2.5 * error
        assert error > 1.2 * verdicts[name][1]
    assert verdicts["small"][0] > true["small"][0] + 0.02
    assert verdicts["large"][0] < true["large"][0]
    facts = judged.meta["judge"]
    assert (facts["model"], facts["labels"], facts["is_corrected"]) == ("grader", 120, True)
    assert facts["cost_usd"] == pytest.approx(0.064)
    assert judged.signals is None
    assert "declare signal, agree or answer" in why_paths_only(path, judged)  # not that a judge scored them


@pytest.mark.long
def test_failed_calls_are_wrong_whatever_the_judge_says_of_others(tmp_path):
    judged = accuracies(vinelm.estimate(judged_store(tmp_path / "j.db", failing=0.3, labelled=300), check=False))
    for name, accuracy in ACCURACY.items():
        estimate, error = judged[name]
        assert abs(estimate - 0.7 * accuracy) < 2.5 * error + 0.01


@pytest.mark.long
def test_the_trie_keeps_what_is_said_of_the_judge(tmp_path):
    judged = vinelm.estimate(judged_store(tmp_path / "j.db"), max_error=1.0)
    vinelm.save_trie(tmp_path / "t.vine", judged)
    assert vinelm.load_trie(tmp_path / "t.vine").meta["judge"] == judged.meta["judge"]
    evidence = judged.meta["evidence"]
    raw = vinelm.estimate(judged_store(tmp_path / "w.db", labelled=0), max_error=1.0).meta["evidence"]
    assert evidence["best_half_width"] > 1.2 * raw["best_half_width"]
    assert evidence["best_accuracy"] == pytest.approx(max(a for a, _ in accuracies(judged).values()), abs=1e-9)


def test_without_labels_the_judge_is_taken_at_its_word(tmp_path):
    judged = vinelm.estimate(judged_store(tmp_path / "j.db", labelled=0, unjudged=5), check=False)
    assert judged.meta["judge"]["is_corrected"] is False
    assert judged.meta["judge"]["unscored"] == 10
    words = judge_words(judged.meta["judge"])
    assert "none for 10 rows" in words
    assert "taken at its word, and the intervals do not hold its errors" in words


def test_rows_without_a_verdict_are_not_wrong(tmp_path, base):
    some = accuracies(vinelm.estimate(judged_store(tmp_path / "s.db", unjudged=120), check=False))
    every = accuracies(base[1])
    for name in ACCURACY:
        assert some[name][0] == pytest.approx(every[name][0], abs=0.06)  # 40 % wrong would be 0.2 to 0.32 less


def test_a_judge_that_disagrees_is_refused_in_one_line(tmp_path, capsys):
    path = judged_store(tmp_path / "j.db", sensitivity=0.45, specificity=0.5)
    with pytest.raises(ConfigError, match="the judge does not agree with the labels"):
        vinelm.estimate(path)
    assert main(["estimate", str(path), "-o", str(tmp_path / "t.vine")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert not (tmp_path / "t.vine").exists()
    with pytest.raises(EvidenceError, match="the judge gave no verdict on any answer"):
        vinelm.estimate(judged_store(tmp_path / "n.db", unjudged=N))
    with pytest.raises(ConfigError, match="the oracle stop"):
        vinelm.estimate(judged_store(tmp_path / "o.db"), stop="oracle")


def test_the_command_says_how_far_the_judge_is_trusted(tmp_path, capsys):
    path = judged_store(tmp_path / "j.db")
    assert main(["estimate", str(path), "-o", str(tmp_path / "t.vine"), "--no-check"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Scored by a judge (grader): agrees with 8" in said
    assert "% of 120 labels; it calls" in said
    assert "Accuracies are corrected for that, and their intervals hold its errors." in said
    assert main(["estimate", str(path), "-o", str(tmp_path / "t.vine"), "--no-check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["judge"]["labels"] == 120


def test_a_store_without_a_judge_has_no_table_for_one(tmp_path):
    path = judged_store(tmp_path / "t.db", judge=False)
    assert b"judgements" not in path.read_bytes()
    assert "judge" not in vinelm.estimate(path, check=False).meta


@pytest.mark.long
def test_the_report_says_that_verdicts_were_judged(tmp_path):
    path = judged_store(tmp_path / "j.db")
    page = store_page(path, vinelm.estimate(path, check=False))
    assert any("errors are not corrected" in line for line in page.findings)
    assert any("agrees with" in value for name, value in page.provenance if name == "Scorer")


@pytest.mark.long
def test_an_evaluation_says_that_verdicts_were_judged(tmp_path):
    found = vinelm.evaluate(judged_store(tmp_path / "j.db"), objective=vinelm.Objective(maximize="accuracy"))
    assert any("A judge scored the answers" in note for note in found.notes)
    with pytest.raises(ConfigError, match="the judge does not agree with the labels"):
        vinelm.evaluate(judged_store(tmp_path / "d.db", sensitivity=0.45, specificity=0.5))


def test_the_errors_of_a_judge_are_corrected_also_where_plans_take_tried_steps_only(tmp_path, monkeypatch):
    path = judged_store(tmp_path / "a.db")
    usual = vinelm.estimate(path, max_error=1.0)
    only_tried = Verdict(tried_only=True)
    monkeypatch.setattr("vinelm.evaluation.comparison.comparison.Comparison.verdict", lambda *_, **__: only_tried)
    found = vinelm.estimate(path, max_error=1.0)
    assert usual.tried is None
    assert found.tried is not None
    assert accuracies(found) == accuracies(usual)
    assert found.meta["judge"]["is_corrected"]

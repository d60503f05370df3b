"""The workflows on recorded outcomes: complete tables, licences beside them, and outcomes only."""

from importlib.resources import files

import pytest

from vinelm.cli.main import main
from vinelm.io.tables import read_table
from vinelm.workflows import load_workflow
from vinelm.workflows.recorded import classeval, exam_answers


@pytest.mark.parametrize(("module", "n"), [(classeval, 376), (exam_answers, 600)])
def test_each_model_has_one_answer_to_each_request(module, n):
    rows = [row for _, row in read_table(module.TABLE)]
    ids = {next(iter(row.values())) for row in rows}
    models = {recorded for recorded, _, _ in module.PRICES.values()}
    assert len(ids) == n
    assert {row["model"] for row in rows} == models
    assert len(rows) == len({(next(iter(row.values())), row["model"]) for row in rows}) == n * len(models)


def test_the_tables_are_small_hold_no_text_and_have_their_licences_beside_them():
    data = files("vinelm.workflows.recorded") / "data"
    assert "MIT License" in (data / "CLASSEVAL_LICENSE").read_text()
    assert "BSD 2-Clause" in (data / "EXAMS_LICENSE").read_text()
    assert classeval.TABLE.stat().st_size < 10_000
    for module in (classeval, exam_answers):
        assert max(len(str(value)) for _, row in read_table(module.TABLE) for value in row.values()) < 30


def test_recorded_dollars_are_those_of_the_recorded_tokens():
    price = {recorded: (tokens_in, tokens_out) for recorded, tokens_in, tokens_out in exam_answers.PRICES.values()}
    for _, row in read_table(exam_answers.TABLE):
        per_in, per_out = price[row["model"]]
        usd = (int(row["tokens_in"]) * per_in + int(row["tokens_out"]) * per_out) / 1e6
        assert float(row["cost_usd"]) == pytest.approx(usd, abs=1e-9)


@pytest.mark.parametrize("name", ["code", "exams"])
def test_they_need_no_catalog(name, capsys):
    workflow = load_workflow(name)
    assert workflow.models is not None
    assert main(["check", name]) == 0
    assert "Ready" in capsys.readouterr().out

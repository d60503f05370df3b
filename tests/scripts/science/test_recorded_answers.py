"""Recorded answers as an exact table."""

import gzip
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kit.catalogs import make_catalog
from science.recorded_answers import AnswerColumns, answers_table, read_answers

from vinelm.catalog import Catalog, Model, Price
from vinelm.errors import DatasetError
from vinelm.template import Loop, Stage, Template
from vinelm.traces import Condition, LogColumns, LogImport, ObservationStore, import_log

DATA = Path(os.environ.get("VINELM_DATA", Path(__file__).parents[4] / "shared" / "data"))
SPIDER = ("gpt-4__dea_sql", "gpt-3.5__c3", "codes-1b__sft", "codex__few_shot")
HEAD = "question_id,model,correct,exec_status,result_rows\n"
ROWS = HEAD + (
    "7,m0,1,ok,3\n"
    "7,m1,0,ok,0\n"
    "7,other,maybe,?,?\n"
    "2,m1,1,ok,1\n"
    "2,m0,0,error,\n"
)  # fmt: skip
TEMPLATE = Template((Stage("generate", ("m0", "m1")), Loop((Stage("repair", ("m0", "m1")),), 2)))


def prices(requests, models):
    return np.array([[float(r) + 10 * (m == "m1") for m in models] for r in requests])


def written(tmp_path, text):
    path = tmp_path / "answers.csv"
    path.write_text(text)
    return path


def test_each_node_shows_its_own_models_answer(tmp_path):
    table = answers_table(written(tmp_path, ROWS), TEMPLATE, make_catalog(2), prices)
    assert table.request_ids == ("7", "2")
    correct = {("7", "m0"): True, ("7", "m1"): False, ("2", "m0"): False, ("2", "m1"): True}
    accepted = {("7", "m0"): True, ("7", "m1"): False, ("2", "m0"): False, ("2", "m1"): True}
    for r, request in enumerate(table.request_ids):
        for node in range(1, len(table.trie)):
            model = table.trie.prefix(node)[-1]
            assert table.success[r, node] == correct[request, model]
            assert table.stopped[r, node] == accepted[request, model]
            assert table.cost_usd[r, node] == float(request) + 10 * (model == "m1")
    assert not table.latency_s.any()


def test_a_right_answer_without_rows_is_right_and_not_accepted(tmp_path):
    text = HEAD + "1,m0,1,ok,0\n1,m1,0,ok,5\n"
    table = answers_table(written(tmp_path, text), TEMPLATE, make_catalog(2), prices)
    node = table.trie.node(("m0",))
    assert table.success[0, node]
    assert not table.stopped[0, node]


def test_columns_are_mapped_by_name_and_gzip_is_read(tmp_path):
    path = tmp_path / "answers.csv.gz"
    path.write_bytes(gzip.compress(b"id,system,right\na,m0,true\na,m1,FALSE\n"))
    columns = AnswerColumns(request="id", model="system", correct="right", status=None, rows=None)
    answers = read_answers(path, ("m1", "m0"), columns)
    assert answers.models == ("m1", "m0")
    assert answers.correct.tolist() == [[False, True]]
    assert answers.accepted.all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ROWS + "7,m0,1,ok,3\n", ":7: request '7' has a second answer"),
        (HEAD + "1,m0,1,ok,1\n1,m1,1,ok,1\n2,m0,1,ok,1\n", ":4: request '2' has no answer of 'm1'"),
        (HEAD + "1,m0,1,ok,1\n", "no answer of the model 'm1'"),
        (HEAD + "1,m0,maybe,ok,1\n", ":2: correct is 'maybe'"),
        (HEAD + "1,m0,1,ok,few\n", ":2: result_rows is 'few'"),
        (HEAD + "1,m0,1\n", ":2: the line does not have the header's 5 fields"),
        ("question_id,model,exec_status,result_rows\n", ":1: no column 'correct'"),
        ("", ":1: no column 'question_id'"),
    ],
)
def test_errors_name_the_line(tmp_path, text, words):
    with pytest.raises(DatasetError, match=words) as caught:
        answers_table(written(tmp_path, text), TEMPLATE, make_catalog(2), prices)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_prices_of_a_wrong_shape(tmp_path):
    with pytest.raises(DatasetError, match="cannot read"):
        read_answers(tmp_path / "none.csv", ("m0",))
    with pytest.raises(ValueError, match="cost_usd must give"):
        answers_table(written(tmp_path, ROWS), TEMPLATE, make_catalog(2), lambda r, m: np.zeros(3))


def test_the_real_table_is_complete():
    path = DATA / "outcomes" / "spider_sql.csv.gz"
    if not path.exists():
        pytest.skip("real data not at hand")
    answers = read_answers(path, ("gpt-4__dea_sql", "gpt-3.5__c3", "codes-1b__sft"))
    assert answers.correct.shape == (508, 3)
    assert 0.3 < answers.correct.mean() < 0.95
    assert (answers.correct & ~answers.accepted).any()


@pytest.mark.skipif(not DATA.exists(), reason="real data not at hand")
def test_the_real_text_to_sql_table_is_what_the_exact_table_says(tmp_path):
    """What `import_log` stores of it, cell by cell: everything that is reached, nothing else."""
    table = DATA / "outcomes" / "spider_sql.csv.gz"
    columns = LogColumns(
        request=("question_id",), model="model", success="correct",
        stopped_if=(Condition("exec_status", "=", "ok"), Condition("result_rows", ">", "0")),
    )  # fmt: skip
    prices = 0.001 * np.arange(1, len(SPIDER) + 1)
    catalog = Catalog(
        Model(name=name, provider="recorded", model_id=name, engine=name,
              price=Price(input=0, output=0, call=float(price), source="assumed", as_of="2026-01-01"))
        for name, price in zip(SPIDER, prices, strict=True)
    )  # fmt: skip
    how = LogImport(columns=columns, workflow="spider", catalog=catalog, depth=3, stages=("generate", "repair"))
    found = import_log(table, tmp_path / "s.db", how)
    template = Template((Stage("generate"), Loop((Stage("repair"),), 2))).bind(SPIDER)
    exact = answers_table(table, template, catalog, lambda r, m: np.tile(prices, (len(r), 1)), columns=AnswerColumns())
    with ObservationStore.open(tmp_path / "s.db") as store:
        rows = {(row.request_id, row.prefix): row for row in store.observations()}
        assert store.identity.bound_template() == template
    assert found.rows == int(exact.reached[:, 1:].sum()) == len(rows)
    for r, n in zip(*np.nonzero(exact.reached[:, 1:]), strict=True):
        row = rows[exact.request_ids[r], exact.trie.prefix(int(n) + 1)]
        assert math.isnan(row.latency_s)  # the table has no seconds: unknown in the rows, 0 in what has to be finite
        assert replace(row, latency_s=0.0) == exact.observation(int(r), int(n) + 1)

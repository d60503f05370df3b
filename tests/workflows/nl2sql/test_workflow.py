import json

import pytest

from vinelm.errors import DatasetError
from vinelm.requests.workflow import AnswerWriter, Workflow
from vinelm.trie import Trie
from vinelm.workflows.nl2sql import nl2sql, nl2sql_2
from vinelm.workflows.nl2sql import workflow as module
from vinelm.workflows.nl2sql.bundled import bundled_dataset
from vinelm.workflows.nl2sql.sql import run_sql


def test_the_tries_have_the_papers_sizes(folder):
    eight = nl2sql(folder).template.bind([f"m{i}" for i in range(8)])
    two = nl2sql_2(folder).template.bind(["a", "b"])
    assert (Trie.from_template(eight).n_nodes, Trie.from_template(two).n_nodes) == (584, 30)
    assert [stage.name for stage in two.invocations] == ["generate", "repair", "repair", "repair"]
    assert eight.stop == two.stop == "workflow"


def test_a_score_is_that_of_the_full_result(folder):
    workflow = nl2sql(folder)
    first, _, third, _ = workflow.requests
    assert workflow.score(first, {"sql": "SELECT 4"})
    assert not workflow.score(first, {"sql": "SELECT 5"})
    assert not workflow.score(first, {"sql": "SELECT"})
    assert not workflow.score(first, {"sql": ""})
    assert not workflow.score(first, {})
    assert not workflow.score(first, {"sql": None})
    assert workflow.score(third, {"sql": third.data["gold_sql"], "rows": []})
    assert not workflow.score(third, {"sql": "SELECT id, price FROM orders ORDER BY id"})


def test_scoring_again_runs_nothing(folder, monkeypatch):
    workflow = nl2sql(folder)
    ran = []

    def counted(path, sql, **caps):
        ran.append(sql)
        caps.pop("max_steps", None)  # steps are counted in the limited process alone
        return run_sql(path, sql, **caps)

    monkeypatch.setattr("vinelm.workflows.nl2sql.databases.run_limited", counted)
    monkeypatch.setattr("vinelm.workflows.nl2sql.dataset.run_sql", counted)
    for _ in range(3):
        assert workflow.score(workflow.requests[0], {"sql": "SELECT 4 AS n"})
    assert ran == ["SELECT 4 AS n", workflow.requests[0].data["gold_sql"]]


def test_labels_never_reach_the_graph(folder):
    workflow = nl2sql(folder)
    for request in workflow.requests:
        assert workflow.graph_input(request).keys() == {"question", "db_id"}


def test_the_writer_writes_answers_that_the_scorer_judges(folder):
    import random

    workflow = nl2sql(folder)
    writer: AnswerWriter = workflow.writer
    for request in workflow.requests:
        text = writer.right(request, random.Random(1))
        assert workflow.score(request, {"sql": module.prompts.extract_sql(text)})


def test_resources_change_with_databases_and_prompts(folder, monkeypatch):
    before = nl2sql(folder).resources
    assert before.keys() == {"database:shop", "prompts"}
    assert nl2sql(folder).resources == before
    monkeypatch.setattr("vinelm.workflows.nl2sql.prompts.SYSTEM", "Write SQL.")
    after = nl2sql(folder).resources
    assert after["database:shop"] == before["database:shop"]
    assert after["prompts"] != before["prompts"]


def test_a_dataset_at_fault_is_refused_before_anything_runs(folder):
    lines = (folder / "questions.jsonl").read_text().splitlines()
    row = json.loads(lines[1]) | {"gold_sql": "SELECT nope FROM customer"}
    (folder / "questions.jsonl").write_text("\n".join([lines[0], json.dumps(row), *lines[2:]]))
    with pytest.raises(DatasetError, match=r"questions\.jsonl:2: the gold SQL fails: no such column: nope"):
        nl2sql(folder)


def test_the_bundled_dataset_is_the_default():
    workflow = nl2sql()
    assert isinstance(workflow, Workflow)
    assert workflow.name == "nl2sql"
    assert [request.id for request in workflow.requests] == [row["question_id"] for row in bundled_dataset().questions]
    for request in workflow.requests[::10]:
        assert request.data.keys() == {"question", "db_id", "gold_sql"}
        assert workflow.score(request, {"sql": request.data["gold_sql"]})

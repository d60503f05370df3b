"""What a statement shows: how it ended, and which other statements found the same."""

import pytest

from vinelm.workflows.nl2sql import nl2sql
from vinelm.workflows.nl2sql.answers import SameRows, sql_signal
from vinelm.workflows.nl2sql.graph import shown

SAME = [
    "SELECT id, name FROM customer",
    "SELECT name, id FROM customer ORDER BY id DESC",
    "SELECT name, id FROM customer WHERE id > 0",
]
OTHER = ["SELECT id, name FROM customer WHERE id < 4", "SELECT id, city FROM customer", "SELECT 1"]
LONG = [
    "SELECT a.id, b.id FROM customer a, customer b ORDER BY 1, 2",
    "SELECT b.id, a.id FROM customer a, customer b ORDER BY 2 DESC",
]
LONG_OTHER = "SELECT a.id, 1 + b.id FROM customer a, customer b ORDER BY 1, 2"


@pytest.fixture
def workflow(folder):
    return nl2sql(folder)


def answer(workflow, sql):
    state = {"question": "?", "db_id": "shop", "sql": sql, **shown(workflow.agree._databases.run("shop", sql))}
    return workflow.signals.answer_of(state), sql_signal(state)


@pytest.mark.parametrize(
    ("sql", "label"), [("SELECT 1", "rows"), ("SELECT id FROM customer WHERE id = 9", "empty"), ("SELECT", "error")]
)
def test_the_signal_is_how_the_statement_ended(workflow, sql, label):
    assert answer(workflow, sql)[1] == label


def test_statements_agree_if_they_find_the_same_rows(workflow):
    same, other = [answer(workflow, sql)[0] for sql in SAME], [answer(workflow, sql)[0] for sql in OTHER]
    for one in same:
        assert all(workflow.agree(one, another) for another in same)
        assert not any(workflow.agree(one, another) or workflow.agree(another, one) for another in other)


def test_of_a_long_result_every_row_counts(workflow):
    """The state holds the first five only: the first rows of these are the same, or are not."""
    one, two, other = (answer(workflow, sql)[0] for sql in (*LONG, LONG_OTHER))
    assert one["rows"] != two["rows"]
    assert workflow.agree(one, two)
    assert workflow.agree(two, one)
    assert not workflow.agree(one, other)


def test_cells_that_the_state_shortens_are_compared_in_full(workflow):
    texts = ["SELECT printf('%.300c', 'x') || 'a'", "SELECT printf('%.300c', 'x') || 'b'", "SELECT x'00'", "SELECT x'01'"]
    answers = [answer(workflow, sql)[0] for sql in texts]
    assert answers[0]["rows"] == answers[1]["rows"]
    assert [[workflow.agree(one, other) for other in answers] for one in answers] == [
        [row == column for column in range(4)] for row in range(4)
    ]


def test_a_statement_that_did_not_run_is_no_answer(workflow):
    failed, _ = answer(workflow, "SELECT")
    assert workflow.signals.class_of(failed, []) is None
    empty, _ = answer(workflow, "SELECT id FROM customer WHERE id = 9")
    assert workflow.signals.class_of(empty, []) == 0
    assert isinstance(workflow.agree, SameRows)

import csv
import gzip
import itertools
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vinelm.workflows.nl2sql import result_comparison as compare
from vinelm.workflows.nl2sql.databases import Databases
from vinelm.workflows.nl2sql.result_comparison import orders_rows, same_result

CELLS = st.sampled_from([None, 0, 1, 2, 1.0, 0.5, "a", "b", "1", b"a"])


def tables(columns: int) -> st.SearchStrategy:
    return st.lists(st.tuples(*[CELLS] * columns), min_size=1, max_size=5)


def brute_force(gold, rows, is_ordered) -> bool:
    if len(gold) != len(rows) or len(gold[0]) != len(rows[0]):
        return False
    for order in itertools.permutations(range(len(rows[0]))):
        moved = [tuple(row[i] for i in order) for row in rows]
        if moved == gold if is_ordered else Counter(moved) == Counter(gold):
            return True
    return False


@settings(max_examples=300, deadline=None)
@given(data=st.data(), columns=st.integers(1, 4), is_ordered=st.booleans())
def test_agrees_with_trying_every_permutation(data, columns, is_ordered):
    gold = data.draw(tables(columns))
    rows = data.draw(st.one_of(tables(columns), st.permutations(gold)))
    order = data.draw(st.permutations(range(len(rows[0]))))
    rows = [tuple(row[i] for i in order) for row in rows]
    assert same_result(gold, rows, is_ordered=is_ordered) == brute_force(gold, rows, is_ordered)


@pytest.mark.parametrize(
    ("gold", "rows", "is_same"),
    [
        ([(1,)], [(1.0,)], True),
        ([(0.1 + 0.2,)], [(0.3,)], True),
        ([(1.0000001,)], [(1,)], True),
        ([(1.00001,)], [(1,)], False),
        ([(-0.0,)], [(0,)], True),
        ([(float("inf"),)], [(float("inf"),)], True),
        ([(None,)], [(None,)], True),
        ([(None,)], [(0,)], False),
        ([(None,)], [("",)], False),
        ([(1,)], [("1",)], False),
        ([("a",)], [("A",)], False),
        ([("a",)], [(b"a",)], False),
        ([(1,), (1,)], [(1,)], False),
        ([(1,), (1,), (2,)], [(1,), (2,), (2,)], False),
        ([(1, 2)], [(1,)], False),
        ([], [], True),
        ([], [(None,)], False),
        ([(2**62 + 1,)], [(2**62,)], False),
    ],
)
def test_cells_and_counts(gold, rows, is_same):
    assert same_result(gold, rows, is_ordered=False) is is_same
    assert same_result(gold, rows, is_ordered=True) is is_same


def test_order_counts_only_where_gold_orders():
    assert same_result([(1, "a"), (2, "b")], [("b", 2), ("a", 1)], is_ordered=False)
    assert not same_result([(1, "a"), (2, "b")], [("b", 2), ("a", 1)], is_ordered=True)
    assert same_result([(1, "a"), (2, "b")], [("a", 1), ("b", 2)], is_ordered=True)


def test_columns_move_together_and_not_row_by_row():
    assert not same_result([(1, 2), (1, 2)], [(1, 2), (2, 1)], is_ordered=False)


def test_columns_alike_in_values_and_different_in_rows():
    gold = [(0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (2, 2)]
    assert same_result(gold, [(b, a) for a, b in gold], is_ordered=False)
    assert not same_result(gold, [(0, 0), (0, 1), (1, 2), (1, 0), (2, 2), (2, 0)], is_ordered=False)


def test_forty_equal_columns_need_one_try_each(monkeypatch):
    monkeypatch.setattr(compare, "MAX_PROJECTIONS", 41)
    gold = [(1,) * 40 + (2,), (3,) * 40 + (4,)]
    assert same_result(gold, [row[::-1] for row in reversed(gold)], is_ordered=False)


def test_a_search_beyond_the_cap_says_different(monkeypatch):
    gold = [(1, 2, 3), (2, 3, 1)]
    assert same_result(gold, [(3, 1, 2), (1, 2, 3)], is_ordered=False)
    monkeypatch.setattr(compare, "MAX_PROJECTIONS", 0)
    assert not same_result(gold, [(3, 1, 2), (1, 2, 3)], is_ordered=False)


@pytest.mark.parametrize(
    ("sql", "is_ordered"),
    [
        ("SELECT a FROM t ORDER BY a", True),
        ("select a from t order  by a desc limit 3;", True),
        ("SELECT a FROM (SELECT a FROM t ORDER BY a)", False),
        ("SELECT a FROM t WHERE b IN (SELECT b FROM u ORDER BY c LIMIT 1)", False),
        ("SELECT row_number() OVER (ORDER BY a) FROM t", False),
        ("SELECT 'order by' FROM t", False),
        ("SELECT a FROM t UNION SELECT b FROM u ORDER BY 1", True),
        ("SELECT a FROM t UNION SELECT b FROM u", False),
        ("WITH x AS (SELECT a FROM t ORDER BY a) SELECT a FROM x", False),
        ("WITH x AS (SELECT a FROM t) SELECT a FROM x ORDER BY a", True),
        ("SELECT a, FROM t ORDER BY (b", True),
        ("SELECT a,, FROM (SELECT 1 ORDER BY 1) WHERE 'order by'", False),
    ],
)
def test_where_the_order_is_fixed(sql, is_ordered):
    assert orders_rows(sql) is is_ordered


# The table of real predictions makes one distinction that we do not: it keeps 1970 and 1970.0 apart. One row turns on it.
GOLD_BY_YEAR = "SELECT avg(Weight) ,  YEAR FROM CARS_DATA GROUP BY YEAR;"
AVERAGED_YEAR = "SELECT avg(weight) ,  avg(year) FROM cars_data GROUP BY YEAR"


@pytest.mark.long
def test_agrees_with_the_verdicts_on_9144_real_predictions(real_data):
    databases = Databases(real_data / "nl2sql" / "databases")
    with gzip.open(real_data / "nl2sql" / "questions.jsonl.gz", "rt", encoding="utf-8") as lines:
        questions = {row["question_id"]: row for row in map(json.loads, lines)}
    n_rows, apart = 0, []
    with gzip.open(real_data / "outcomes" / "spider_sql.csv.gz", "rt", encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            question = questions[row["question_id"]]
            gold = databases.recall(question["db_id"], question["gold_sql"])
            found = databases.recall(question["db_id"], row["prediction"])
            assert gold.status == "ok"
            assert found.status == row["exec_status"], row["prediction"]
            assert found.status != "ok" or len(found.rows) == int(row["result_rows"])
            is_right = found.status == "ok" and same_result(gold.rows, found.rows, is_ordered=orders_rows(question["gold_sql"]))
            n_rows += 1
            if is_right != (row["correct"] == "1"):
                apart.append((question["gold_sql"], row["prediction"].strip(), is_right))
    assert n_rows == 9144
    assert apart == [(GOLD_BY_YEAR, AVERAGED_YEAR, True)]

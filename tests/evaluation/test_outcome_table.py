"""The table of first answers tells what a profile would have stored, and what every path would have done."""

from dataclasses import replace

import numpy as np
import pytest

from vinelm.errors import ConfigError
from vinelm.evaluation import OutcomeTable
from vinelm.requests.protocols import RequestPath
from vinelm.template import Loop, Stage, Template

TEMPLATE = Template((Stage("answer"), Loop((Stage("retry"),), times=2)))


def table() -> OutcomeTable:
    return OutcomeTable(
        request_ids=("q1", "q2"),
        systems=("a", "b", "c"),
        success=np.array([[False, True, True], [False, False, True]]),
        signal=np.array([[0, 1, 1], [1, 0, -1]]),
        labels=("bad", "fine"),
        passed=np.array([[False, True, True], [True, False, False]]),
        answer_class=np.array([[-1, 7, 7], [4, -1, 0]]),
        cost_usd=np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        groups=("g", "g"),
    )


def test_a_path_ends_at_the_first_answer_that_passes_unless_it_goes_on():
    prefixes = [cell.prefix for cell in table().cells(RequestPath("q1", ("a", "b", "c")))]
    assert prefixes == [("a",), ("a", "b")]
    on = list(table().cells(RequestPath("q1", ("a", "b", "c"), goes_on=True)))
    assert [cell.is_continued for cell in on] == [False, False, True]


def test_rows_have_the_outcome_and_number_classes_in_the_order_of_asking():
    paths = [RequestPath("q1", ("a", "c", "b"), goes_on=True), RequestPath("q2", ("a", "c"), goes_on=True)]
    rows = table().observations([*paths, RequestPath("q1", ("a", "b"))], TEMPLATE)
    assert [row.prefix for row in rows] == [("a",), ("a", "c"), ("a", "c", "b"), ("a",), ("a", "c"), ("a", "b")]
    assert [row.stage for row in rows] == ["answer", "retry", "retry", "answer", "retry", "retry"]
    assert [row.answer_class for row in rows] == [None, 0, 0, 0, 1, 0]
    assert [row.signal for row in rows] == ["bad", "fine", "fine", "fine", None, "fine"]
    assert [row.is_continued for row in rows] == [False, False, True, False, True, False]
    assert [row.cost_usd for row in rows] == [1.0, 3.0, 2.0, 4.0, 6.0, 2.0]
    assert [row.stopped for row in rows] == [False, True, True, True, False, True]


def test_a_cell_that_two_paths_share_is_one_row():
    rows = table().observations([RequestPath("q1", ("a", "b")), RequestPath("q1", ("a", "c"))], TEMPLATE)
    assert [row.prefix for row in rows] == [("a",), ("a", "b"), ("a", "c")]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"success": np.zeros((2, 2), bool)}, "success has shape"),
        ({"groups": ("g",)}, "groups has 1 items"),
        ({"systems": ("a", "a", "b")}, "systems: a name repeats"),
        ({"signal": np.full((2, 3), 2)}, "outside of the 2 labels"),
        ({"answer_class": np.full((2, 3), -2)}, "answer_class"),
        ({"cost_usd": np.full((2, 3), np.nan)}, "cost_usd"),
    ],
)
def test_a_table_that_does_not_fit_together_is_refused(change, says):
    with pytest.raises(ConfigError, match=says):
        replace(table(), **change)


def test_unknown_names_are_refused():
    outcomes = table()
    with pytest.raises(ConfigError, match="unknown system 'x'"):
        outcomes.columns(["x"])
    with pytest.raises(ConfigError, match="unknown request 'q9'"):
        list(outcomes.cells(RequestPath("q9", ("a",))))
    with pytest.raises(ConfigError, match="the path names 'x'"):
        list(outcomes.cells(RequestPath("q1", ("a", "x"))))

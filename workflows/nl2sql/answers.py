"""Determines, without the gold result, how an SQL statement ended and whether two statements found the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vinelm.workflows.nl2sql.databases import Databases
from vinelm.workflows.nl2sql.graph import SHOWN_CHARS, SHOWN_ROWS
from vinelm.workflows.nl2sql.result_comparison import same_result

ANSWER = ("db_id", "sql", "status", "row_count", "rows")
"""The keys of the state that make an answer. Its ``rows`` are only the first few rows of the result."""


def sql_signal(state: Mapping[str, Any]) -> str:
    """Return how the last statement in the state ended: ``"rows"``, ``"empty"`` for a result without rows, or ``"error"``."""
    if state.get("status") != "ok":
        return "error"
    return "rows" if state["row_count"] else "empty"


class SameRows:
    """Compares two answers: whether their statements found the same rows, in any order, up to a permutation of the columns.

    A statement that did not run is not an answer, so it is not equal to anything, not even to itself. Results that the state
    does not contain in full are read from the cache of ``databases``, or executed again.

    Args:
        databases: the databases that the statements ran on.
    """

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    def __call__(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        """Return whether the statements of the two answers found the same rows."""
        if (one["status"], other["status"]) != ("ok", "ok") or one["row_count"] != other["row_count"]:
            return False
        if (one["db_id"], one["sql"]) == (other["db_id"], other["sql"]):
            return True
        if _is_whole(one) and _is_whole(other):
            return same_result(one["rows"], other["rows"], is_ordered=False)
        return same_result(self._rows(one), self._rows(other), is_ordered=False)

    def _rows(self, answer: Mapping[str, Any]) -> Any:
        return self._databases.recall(answer["db_id"], answer["sql"]).rows


def _is_whole(answer: Mapping[str, Any]) -> bool:
    """Return whether the answer contains every row of the result, without shortened or converted cells."""
    cells = (cell for row in answer["rows"] for cell in row)
    return answer["row_count"] <= SHOWN_ROWS and not any(
        isinstance(cell, str) and (len(cell) > SHOWN_CHARS or cell.endswith(" bytes>") or cell in {"inf", "-inf", "nan"})
        for cell in cells
    )

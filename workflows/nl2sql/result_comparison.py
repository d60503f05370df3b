"""Compares query results (execution accuracy)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

Rows = Sequence[Sequence[Any]]

MAX_PROJECTIONS = 2_000
"""The maximum number of partial column permutations that are tried before two results count as different. Real results need one
per column; only adversarial tables come near this limit."""


def same_result(gold_rows: Rows, rows: Rows, *, is_ordered: bool) -> bool:
    """Return whether the rows are equal as multisets (as sequences if ``is_ordered``), up to a permutation of the columns.

    Numbers are compared at 6 decimal places, whole floats as integers (1 == 1.0), None only with None, text and blobs exactly.
    Two empty results are the same whatever their columns.
    """
    if len(gold_rows) != len(rows):
        return False
    if not gold_rows:
        return True
    if len(gold_rows[0]) != len(rows[0]):
        return False
    gold = [tuple(map(_comparable, row)) for row in gold_rows]
    found = [tuple(map(_comparable, row)) for row in rows]
    if is_ordered:  # rows stay in place, so a permutation exists exactly if the columns are the same vectors
        return gold == found or Counter(zip(*gold, strict=True)) == Counter(zip(*found, strict=True))
    return Counter(gold) == Counter(found) or _permutation_exists(gold, found)


def _comparable(cell: Any) -> Hashable:
    return round(cell, 6) if isinstance(cell, float) else cell  # in Python 1 == 1.0, with equal hashes


def _permutation_exists(gold: list[tuple[Hashable, ...]], found: list[tuple[Hashable, ...]]) -> bool:
    """Return whether the rows of both results are equal, as multisets, after the columns of ``found`` are put in another order.

    Searches depth-first over the columns of ``gold``, and drops a partial choice if the rows differ in the chosen columns.
    False also after :data:`MAX_PROJECTIONS` comparisons.
    """
    gold_columns, columns = list(zip(*gold, strict=True)), list(zip(*found, strict=True))
    values = [Counter(column) for column in columns]
    candidates = [[j for j, counted in enumerate(values) if counted == wanted] for wanted in map(Counter, gold_columns)]
    if not all(candidates):
        return False
    order = sorted(range(len(candidates)), key=lambda i: len(candidates[i]))
    budget = MAX_PROJECTIONS

    def assign(chosen: tuple[int, ...]) -> bool:
        nonlocal budget
        if len(chosen) == len(order):
            return True
        wanted = Counter(zip(*(gold_columns[i] for i in order[: len(chosen) + 1]), strict=True))
        tried: set[tuple[Hashable, ...]] = set()  # equal columns are interchangeable
        for j in candidates[order[len(chosen)]]:
            if j in chosen or columns[j] in tried:
                continue
            tried.add(columns[j])
            if budget <= 0:
                return False
            budget -= 1
            if Counter(zip(*(columns[i] for i in (*chosen, j)), strict=True)) == wanted and assign((*chosen, j)):
                return True
        return False

    return assign(())


@lru_cache(maxsize=10_000)
def orders_rows(sql: str) -> bool:
    """Return whether the query has an ORDER BY at the top level, not only in a subquery or window."""
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(sql, read="sqlite")
    except SqlglotError:
        return _has_outer_order_by(sql)
    return tree.args.get("order") is not None


def _has_outer_order_by(sql: str) -> bool:
    """Return whether ORDER BY occurs outside parentheses and quotes; for queries that sqlglot cannot parse."""
    depth, quote, outer = 0, "", []
    for char in sql:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif depth == 0:
            outer.append(char)
    return "order by" in " ".join("".join(outer).lower().split())

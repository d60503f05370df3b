"""Text-to-SQL systems on Spider: every recorded statement is executed again; nothing but its text is taken from the record."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from recorded_spider import COST_SEED, COST_SIGMA, USD_PER_1000_CALLS
from signals_parts.record import Asked, Record, UsdPer1000, read_rows, some_systems

from vinelm.errors import DatasetError
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.outcome_table import NO_ANSWER
from vinelm.requests.workflow import Request
from vinelm.trie.arrays import FloatArray
from vinelm.workflows.nl2sql import nl2sql
from vinelm.workflows.nl2sql.graph import finished, shown
from vinelm.workflows.nl2sql.prompts import extract_sql
from vinelm.workflows.nl2sql.result_comparison import orders_rows, same_result
from vinelm.workflows.nl2sql.sql import SqlResult
from vinelm.workflows.nl2sql.workflow import Scorer

FILE = Path("outcomes") / "spider_sql.csv.gz"
LABELS = ("error", "empty", "rows")
ABOUT = (
    "answers and accuracy real, executed again; prices assumed; a second try is another system's independent first answer, "
    "without feedback"
)
OTHERS = {
    "codes-15b__sft": 0.5,
    "codes-3b__sft": 0.15,
    "codex__din_sql": 12.0,
    "codex__few_shot": 4.0,
    "deepseek-7b__dts_sql": 0.3,
    "gpt-4__dail_sql_sc": 45.0,
    "gpt-4__din_sql": 40.0,
    "gpt-4__few_shot": 10.0,
    "gpt-4__mac_sql": 25.0,
    "graphix_t5_3b": 0.15,
}
"""Assumed dollars per 1,000 calls of the other systems, as in `bench_estimator.py`."""
OTHER_SEEDS = (1, 2)


def load_spider(data: Path) -> Record:
    """Every recorded system on every question that all of them answer. Executes each distinct statement once."""
    path = data / FILE
    rows = read_rows(path, ("question_id", "model", "base_model", "prediction"))
    systems = tuple(dict.fromkeys(row["model"] for row in rows))
    base = {row["model"]: row["base_model"] for row in rows}
    recorded = {(row["question_id"], row["model"]): extract_sql(row["prediction"]) for row in rows}
    workflow = nl2sql(data / "nl2sql")
    requests = [request for request in workflow.requests if all((request.id, name) in recorded for name in systems)]
    if not requests:
        raise DatasetError(f"{path}: no question of {data / 'nl2sql'} is answered by all {len(systems)} systems")
    statements = [[recorded[request.id, name] for name in systems] for request in requests]
    outcomes = executed(requests, systems, statements, workflow.score)
    order = [(row["question_id"], row["model"]) for row in rows]
    asked = Asked({one.id: one.data["db_id"] for one in requests}, {one.id: one.data["question"] for one in requests})
    return Record("spider", outcomes, choices(systems, base), lambda chosen: costs(outcomes, order, chosen), ABOUT, asked)


def executed(requests: list[Request], systems: tuple[str, ...], statements: list[list[str]], score: Scorer) -> OutcomeTable:
    """Success, status, the workflow's check, and which answers give the same rows."""
    shape = (len(requests), len(systems))
    success, passed = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    signal, answer_class = np.zeros(shape, np.int64), np.full(shape, NO_ANSWER)
    for r, request in enumerate(requests):
        known: dict[str, tuple[bool, bool, int, int]] = {}
        firsts: list[tuple[str, SqlResult]] = []
        for m, sql in enumerate(statements[r]):
            if sql not in known:
                result = score.databases.recall(request.data["db_id"], sql)
                right = bool(sql) and score.gold.is_right(request, result)
                accepted = finished(shown(result))
                known[sql] = right, accepted, label(result), class_of(sql, result, firsts)
            success[r, m], passed[r, m], signal[r, m], answer_class[r, m] = known[sql]
    return OutcomeTable(
        request_ids=tuple(request.id for request in requests),
        systems=systems,
        success=success,
        signal=signal,
        labels=LABELS,
        passed=passed,
        answer_class=answer_class,
        cost_usd=np.zeros(shape),
        groups=tuple(request.id for request in requests),
    )


def label(result: SqlResult) -> int:
    """The status that the application sees, as an index into ``LABELS``."""
    return 0 if result.status != "ok" else 2 if result.rows else 1


def class_of(sql: str, result: SqlResult, firsts: list[tuple[str, SqlResult]]) -> int:
    """The first class whose first answer gives the same rows; in order where both statements order theirs."""
    if result.status != "ok":
        return NO_ANSWER
    for kind, (other, rows) in enumerate(firsts):
        if same_result(rows.rows, result.rows, is_ordered=orders_rows(other) and orders_rows(sql)):
            return kind
    firsts.append((sql, result))
    return len(firsts) - 1


def costs(outcomes: OutcomeTable, order: list[tuple[str, str]], chosen: UsdPer1000) -> FloatArray:
    """Log-normal over requests, drawn in the order of the file, as in `recorded_spider.py`."""
    rng = np.random.default_rng(COST_SEED)
    rows = {name: r for r, name in enumerate(outcomes.request_ids)}
    columns = {name: m for m, name in enumerate(chosen)}
    found = np.zeros((len(rows), len(columns)))
    for question, model in order:
        if model in columns:
            factor = math.exp(COST_SIGMA * rng.standard_normal() - COST_SIGMA**2 / 2)
            if question in rows:
                found[rows[question], columns[model]] = usd(model, chosen) / 1000 * factor
    return found


def usd(name: str, chosen: UsdPer1000) -> float:
    """The given price, or the assumed one."""
    given = chosen[name]
    return price(name, "") if given is None else given


def choices(systems: tuple[str, ...], base: Mapping[str, str]) -> dict[str, UsdPer1000]:
    """The development systems where the file has them, and other choices of eight, drawn at random with a fixed seed."""
    found: dict[str, UsdPer1000] = {}
    if set(USD_PER_1000_CALLS) <= set(systems):
        found["spider"] = dict(USD_PER_1000_CALLS)
    for seed in OTHER_SEEDS:
        names = some_systems(systems, seed)
        if all(set(names) != set(other) for other in found.values()):
            found[f"spider-{seed}"] = {name: price(name, base[name]) for name in names}
    return found


def price(name: str, base: str) -> float:
    """Assumed dollars per 1,000 calls: as listed above, else by the base model's class and size."""
    listed = {**USD_PER_1000_CALLS, **OTHERS}.get(name)
    if listed is not None:
        return listed
    text = f"{name} {base}".lower()
    if "gpt-4" in text:
        return 15.0
    if "gpt-3.5" in text or "gpt-35" in text:
        return 1.0
    size = re.search(r"(\d+(?:\.\d+)?)b\b", text)
    billions = float(size.group(1)) if size else 30.0
    return 0.05 * max(billions, 1.0) if billions < 30.0 else 4.0

"""Exam questions and nine models: real answers, dollars and failures. There is no check of its own: an answer passes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from signals_parts.record import Asked, Record, UsdPer1000, number, read_questions, read_rows, some_systems

from vinelm.errors import DatasetError
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.outcome_table import NO_ANSWER
from vinelm.trie.arrays import FloatArray

FILE = Path("outcomes") / "exam_retries.csv.gz"
TEXTS = Path("math") / "exams.jsonl.gz"
LABELS = ("error", "no answer", "answer")
ABOUT = (
    "answers, accuracy and dollars real; no check of its own: any letter passes; a second try is another model's independent "
    "first answer"
)
MOST_SYSTEMS = 9
"""A file with more systems gives a choice of eight."""
_LETTER = re.compile(r"[A-J]")


def load_exams(data: Path) -> Record:
    """The first answer of every model to every question that all of them were asked."""
    path = data / FILE
    rows = [
        row
        for row in read_rows(path, ("dataset", "question_id", "model", "round", "answer", "correct", "cost_usd", "error"))
        if row["round"] == "1"
    ]
    systems = tuple(sorted({row["model"] for row in rows}))
    cell = {(f"{row['dataset']}/{row['question_id']}", row["model"]): row for row in rows}
    asked = dict.fromkeys(question for question, _ in cell)
    requests = [question for question in asked if all((question, model) in cell for model in systems)]
    if not requests:
        raise DatasetError(f"{path}: no question was asked of all {len(systems)} models")
    shape = (len(requests), len(systems))
    success, signal = np.zeros(shape, np.bool_), np.zeros(shape, np.int64)
    answer_class, cost_usd = np.full(shape, NO_ANSWER), np.zeros(shape)
    for r, question in enumerate(requests):
        for m, model in enumerate(systems):
            row = cell[question, model]
            has_answer = _LETTER.fullmatch(row["answer"]) is not None
            signal[r, m] = 2 if has_answer else 0 if row["error"] else 1
            success[r, m] = has_answer and row["correct"] == "1"
            cost_usd[r, m] = number(row, "cost_usd", path)
            if has_answer:
                answer_class[r, m] = ord(row["answer"]) - ord("A")
    outcomes = OutcomeTable(
        request_ids=tuple(requests),
        systems=systems,
        success=success,
        signal=signal,
        labels=LABELS,
        passed=answer_class != NO_ANSWER,
        answer_class=answer_class,
        cost_usd=cost_usd,
        groups=tuple(requests),
    )
    chosen = systems if len(systems) <= MOST_SYSTEMS else some_systems(systems, 0)
    asked = Asked({name: name.split("/")[0] for name in requests}, read_questions(data / TEXTS, request_of, words_of))
    return Record("exams", outcomes, {"exams": dict.fromkeys(chosen)}, lambda chosen: costs(outcomes, chosen), ABOUT, asked)


def request_of(question: dict[str, Any]) -> str:
    return f"{question['exam']}/{question['question_id']}"


def words_of(question: dict[str, Any]) -> str:
    return " ".join((question["context"], question["question"], *question["choices"].values()))


def costs(outcomes: OutcomeTable, chosen: UsdPer1000) -> FloatArray:
    """The recorded dollars; of a system with a given price, scaled to it."""
    found = outcomes.cost_usd[:, outcomes.columns(tuple(chosen))].copy()
    for m, price in enumerate(chosen.values()):
        mean = found[:, m].mean()
        if price is not None:
            found[:, m] = found[:, m] * (price / 1000 / mean) if mean > 0 else price / 1000
    return found

"""Mixed traffic: questions of many kinds, with the kind and the text of each (LLMRouter's example data, RouterBench)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from signals_parts.record import Asked, Record, UsdPer1000, number, read_questions, read_rows

from vinelm.errors import DatasetError
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.outcome_table import NO_ANSWER, NO_SIGNAL
from vinelm.trie.arrays import FloatArray

FOLDER = Path("mixed")
LLMROUTER, ROUTERBENCH = FOLDER / "llmrouter.csv.gz", FOLDER / "routerbench.csv.gz"
USD_PER_MILLION = {"gemma-2-9b-it": 0.10, "nemotron": 0.90, "70b": 0.90}
"""List prices of a million tokens, read and written, by a part of the name; all others cost $0.20."""
CHARS_PER_TOKEN, TOKENS_OUT = 4.0, 200.0
LLMROUTER_ABOUT = (
    "scores real, right from 0.5 on; single calls, no answers kept; list prices of a million tokens, for tokens that are "
    "assumed: a quarter of the prompt's characters and 200 of the answer"
)
ROUTERBENCH_ABOUT = (
    "answers, verdicts and dollars real; the check: a letter or parsable Python was found; equal letters or syntax trees "
    "agree; a second try is another model's independent first answer"
)


def load_llmrouter(data: Path) -> Record:
    """Every model's score on every question; one call for each request."""
    path = data / LLMROUTER
    rows = read_rows(path, ("question_id", "task"))
    systems = tuple(name for name in rows[0] if name not in ("question_id", "task"))
    requests = tuple(row["question_id"] for row in rows)
    asked = Asked({row["question_id"]: row["task"] for row in rows}, texts_of(path))
    shape = (len(rows), len(systems))
    score = np.array([[number(row, name, path) for name in systems] for row in rows])
    tokens = TOKENS_OUT + np.array([len(asked.texts.get(name, "")) for name in requests]) / CHARS_PER_TOKEN
    outcomes = OutcomeTable(
        request_ids=requests,
        systems=systems,
        success=score >= 0.5,
        signal=np.full(shape, NO_SIGNAL),
        labels=(),
        passed=np.ones(shape, np.bool_),
        answer_class=np.full(shape, NO_ANSWER),
        cost_usd=tokens[:, None] * np.array([list_price(name) for name in systems]) / 1e6,
        groups=requests,
    )
    return made("llmrouter", outcomes, LLMROUTER_ABOUT, asked, most_calls=1)


def load_routerbench(data: Path) -> Record:
    """The first answer of every model to every question that all of them were asked, under the application's own check."""
    path = data / ROUTERBENCH
    rows = read_rows(path, ("question_id", "task", "model", "answer", "check_ok", "correct", "cost_usd"))
    systems = tuple(sorted({row["model"] for row in rows}))
    cell = {(row["question_id"], row["model"]): row for row in rows}
    asked = Asked({row["question_id"]: row["task"] for row in rows}, texts_of(path))
    requests = tuple(name for name in asked.kinds if all((name, system) in cell for system in systems))
    if not requests:
        raise DatasetError(f"{path}: no question was asked of all {len(systems)} models")
    kind = np.full((len(requests), len(systems)), NO_ANSWER)
    for r, name in enumerate(requests):
        classes: dict[str, int] = {}
        for m, system in enumerate(systems):
            answer = cell[name, system]["answer"]
            if answer:
                kind[r, m] = classes.setdefault(answer, len(classes))

    def column(of: str) -> FloatArray:
        return np.array([[number(cell[name, system], of, path) for system in systems] for name in requests])

    outcomes = OutcomeTable(
        request_ids=requests,
        systems=systems,
        success=column("correct") >= 0.5,
        signal=np.full(kind.shape, NO_SIGNAL),
        labels=(),
        passed=column("check_ok") > 0,
        answer_class=kind,
        cost_usd=column("cost_usd"),
        groups=requests,
    )
    return made("routerbench", outcomes, ROUTERBENCH_ABOUT, asked, most_calls=None)


def made(name: str, outcomes: OutcomeTable, about: str, asked: Asked, most_calls: int | None) -> Record:
    """The record of all systems, at the dollars of the outcomes or at those that are asked for."""

    def costs(chosen: UsdPer1000) -> FloatArray:
        found = outcomes.cost_usd[:, outcomes.columns(tuple(chosen))].copy()
        for m, price in enumerate(chosen.values()):
            if price is not None:
                found[:, m] *= price / 1000 / found[:, m].mean()
        return found

    choice: dict[str, UsdPer1000] = {name: dict.fromkeys(outcomes.systems)}
    return Record(name, outcomes, choice, costs, about, asked, most_calls, own_budgets=True)


def texts_of(path: Path) -> dict[str, str]:
    """The prompts of the questions beside a table, by question; nothing where the file is not there."""
    file = path.with_name(path.name.replace(".csv.gz", "_questions.jsonl.gz"))
    return read_questions(file, lambda one: str(one["question_id"]), lambda one: str(one["prompt"]))


def list_price(system: str) -> float:
    """Dollars of a million tokens."""
    return next((usd for part, usd in USD_PER_MILLION.items() if part in system), 0.20)

"""Plans over a table of recorded answers, against what runs today: where they differ, what they gain there, what they save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from signals_parts import classeval
from signals_parts.record import read_rows
from signals_parts.systems import load_tables

from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.outcome_table import NO_ANSWER

RECORDS = ("exams", "spider", "classeval", "routerbench")
AGENTS = ("swe", "livecodebench")
"""Tables whose answers are not kept: only whether each has solved its task."""
CHEAP = 5
DEAR = 0.25
"""Today's model is the strongest of those that cost at least this share of the dearest."""
HIDES = "classeval, visible behaviour"
"""Equal on the visible tests is taken for the same here, although the hidden ones may differ."""

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Plans:
    """All plans over one table. Arrays have shape (requests, plans).

    Attributes:
        today: The model that runs today.
        names: Of the plans.
        answer: The plan's answer, as a class: equal classes of one request are the same answer.
        same: The plan's answer is the same as today's.
        score: The plan's score less today's.
        usd: Dollars of the plan, over today's mean dollars.
        escalates: Today's model answers in the end.
        asks: By plan: which of ``cheap`` it asks, shape (requests, len(cheap)).
        cheap: The models that plans are made of.
        model_usd: Dollars of each of these, over today's mean dollars; shape (requests, len(cheap)).
        today_usd: Dollars of today's model likewise, shape (requests,).
    """

    today: str
    names: tuple[str, ...]
    answer: NDArray[np.int64]
    same: BoolArray
    score: FloatArray
    usd: FloatArray
    escalates: BoolArray
    asks: tuple[BoolArray, ...]
    cheap: tuple[str, ...]
    model_usd: FloatArray
    today_usd: FloatArray

    def differing(self) -> FloatArray:
        """Share of the requests in which each plan's answer differs from today's."""
        return 1.0 - self.same.mean(axis=0)

    def diff(self) -> FloatArray:
        """Each plan's mean score less today's."""
        found: FloatArray = self.score.mean(axis=0)
        return found

    def saved(self) -> FloatArray:
        """Share of today's dollars that each plan saves."""
        found: FloatArray = 1.0 - self.usd.mean(axis=0)
        return found


def load_plans(data: Path) -> dict[str, Plans]:
    """The plans of every table that the folder has, by the table's name."""
    found = {}
    for name, (table, equal) in load_sources(data).items():
        found[name] = plans_of(table, equal)
        if name == "classeval":
            found[HIDES] = plans_of(table)
    return found


def load_sources(data: Path, only: tuple[str, ...] = RECORDS) -> dict[str, tuple[OutcomeTable, NDArray[np.int64]]]:
    """Recorded answers and their classes, equal ones of which have equal scores, by the table's name."""
    found = {}
    for name, loaded in load_tables(data, None, only).items():
        table, equal = loaded.table, loaded.table.answer_class
        if name == "classeval":
            equal = whole_behaviour(data, table)
        elif name in AGENTS:
            equal, table = solved(table), replace(table, answer_class=np.tile(np.arange(len(table.systems)), (len(table), 1)))
        found[name] = table, equal
    return found


def solved(table: OutcomeTable) -> NDArray[np.int64]:
    """Classes of answers of which only the score is kept: two that are right are the same, and a wrong one is like no other."""
    return np.where(table.success, 0, 1 + np.arange(len(table.systems)))


def whole_behaviour(data: Path, table: OutcomeTable) -> NDArray[np.int64]:
    """Classes of what the programs return on all inputs, hidden ones included: equal ones have equal scores."""
    path = data / classeval.FILE
    found = np.full(table.answer_class.shape, NO_ANSWER)
    rows = {
        (row["item_id"], row["system"]): row
        for row in read_rows(path, (*classeval.COLUMNS, "all_behaviour"))
        if classeval.is_used(row)
    }
    for r, item in enumerate(table.request_ids):
        classes: dict[str, int] = {}
        for m, system in enumerate(table.systems):
            if (row := rows[item, system])["status"] == "ok":
                found[r, m] = classes.setdefault(row["all_behaviour"], len(classes))
    return found


def plans_of(table: OutcomeTable, equal: NDArray[np.int64] | None = None, models: tuple[int, list[int]] | None = None) -> Plans:
    """All plans of the five strongest models that cost at most half of today's.

    Args:
        table: Recorded answers; what plans see of them are its checks and answer classes.
        equal: Classes of answers by which a plan is compared with today's model; None: those that plans see.
        models: Today's and the cheaper ones; None: those of :func:`models_of`.
    """
    equal = table.answer_class if equal is None else equal
    today, cheap = models_of(table) if models is None else models
    mean_usd = table.cost_usd[:, today].mean()
    served = [(name, *_served(answered, table, today)) for name, answered in _plans(table, cheap)]
    rows = np.arange(len(table))
    chosen = np.stack([model for _, model, *_ in served], axis=1)
    answer = equal[rows[:, None], chosen]
    return Plans(
        today=table.systems[today],
        names=tuple(name for name, *_ in served),
        answer=answer,
        same=answer == equal[:, [today]],
        score=table.success[rows[:, None], chosen].astype(float) - table.success[:, [today]],
        usd=np.stack([dollars for _, _, dollars, _ in served], axis=1) / mean_usd,
        escalates=chosen == today,
        asks=tuple(asked[:, cheap] for *_, asked in served),
        cheap=tuple(table.systems[m] for m in cheap),
        model_usd=table.cost_usd[:, cheap] / mean_usd,
        today_usd=table.cost_usd[:, today] / mean_usd,
    )


def models_of(table: OutcomeTable) -> tuple[int, list[int]]:
    """Today's model, and the cheaper ones that plans are made of, by number."""
    usd, right = table.cost_usd.mean(axis=0), table.success.mean(axis=0)
    today = int(np.where(usd >= DEAR * usd.max(), right, -1.0).argmax())
    return today, [int(m) for m in np.argsort(-right, kind="stable") if usd[m] <= usd[today] / 2][:CHEAP]


Step = tuple[tuple[int, ...], int, BoolArray]
"""Models that are asked now, whose answer is taken if the plan ends here, and where it does."""


def _plans(table: OutcomeTable, cheap: list[int]) -> Iterator[tuple[str, list[Step]]]:
    names, passed, kind = table.systems, table.passed, table.answer_class
    always = np.ones(len(table), np.bool_)

    def agree(*models: int) -> BoolArray:
        first = kind[:, models[0]]
        return np.logical_and.reduce([first != NO_ANSWER, *(kind[:, m] == first for m in models[1:])])

    for a in cheap:
        yield names[a], [((a,), a, always)]
        yield f"check {names[a]}", [((a,), a, passed[:, a])]
    for a, b in permutations(cheap, 2):
        yield f"check {names[a]}, then {names[b]}", [((a,), a, passed[:, a]), ((b,), b, passed[:, b])]
    for a, b in combinations(cheap, 2):
        yield f"{names[a]} and {names[b]} agree", [((a, b), a, agree(a, b))]
        yield f"{names[a]} passes and {names[b]} agrees", [((a, b), a, agree(a, b) & passed[:, a])]
    for a, b, c in combinations(cheap, 3):
        yield f"{names[a]}, {names[b]} and {names[c]} agree", [((a, b, c), a, agree(a, b, c))]
        third = [((c,), a, agree(a, c)), ((), b, agree(b, c))]
        yield f"two of {names[a]}, {names[b]}, {names[c]}", [((a, b), a, agree(a, b)), *third]


def _served(steps: list[Step], table: OutcomeTable, today: int) -> tuple[NDArray[np.int64], FloatArray, BoolArray]:
    """Whose answer each request gets, for how many dollars, and which models are asked; today's where no step ends it."""
    model, usd, going = np.full(len(table), today), np.zeros(len(table)), np.ones(len(table), np.bool_)
    all_asked = np.zeros((len(table), len(table.systems)), np.bool_)
    for asked, taken, ends in steps:
        for m in asked:
            usd += np.where(going, table.cost_usd[:, m], 0.0)
            all_asked[:, m] |= going
        model[going & ends] = taken
        going = going & ~ends
    return model, usd + np.where(going, table.cost_usd[:, today], 0.0), all_asked

"""Fit the model of answers with and without ordered effects, and score its forecasts of later answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from vinelm.estimator.signals.answers import AnswerTable, Context
from vinelm.estimator.signals.course import Course
from vinelm.estimator.signals.histories import histories
from vinelm.estimator.signals.history_level import HistoryLevel
from vinelm.estimator.signals.predictive import Predictive
from vinelm.rows.observation import Observation
from vinelm.signals import Label
from vinelm.trie.arrays import FloatArray

LEAST_REACH = 1e-5
BINS = 10
DRAWS = 1_000


class Forecast(NamedTuple):
    """What was said about a later answer, and whether it is right."""

    request: str
    is_again: bool
    chance: float
    right: bool


def fitted(rows: Sequence[Observation], stages: Sequence[str], *, ordered: bool) -> Predictive:
    """The joined fits. Without ordered effects a later answer is one more first answer: contexts differ by the model only."""
    table = AnswerTable.of(rows, Course.chain(stages))
    if ordered:
        return Predictive.of(table)
    first = [Context(stages[0], context.model, False, False) for context in table.contexts]
    names = tuple(sorted(set(first)))
    place = np.array([names.index(context) for context in first])
    flat = replace(
        table,
        contexts=names,
        context=place[table.context],
        is_repeat=np.zeros(len(table), np.bool_),
        repeats=np.zeros((len(names), 2)),
    )
    model = Predictive.of(flat)
    again = np.array([context.is_again for context in table.contexts])
    return replace(
        model,
        contexts=table.contexts,
        log_types=model.log_types[place],
        label_rates=model.label_rates[place],
        same_again=np.where(again, 0.0, np.nan),
        cost_usd=model.cost_usd[place],
        cost_by_fit=model.cost_by_fit[place],
    )


def levels_of(model: Predictive, stages: Sequence[str], models: Sequence[str]) -> list[HistoryLevel]:
    """The histories of the fitted model, rare ones included."""
    return histories(model, Course.chain(stages), models, goes_on=True, least_reach=LEAST_REACH)


def forecasts(
    model: Predictive, levels: Sequence[HistoryLevel], models: Sequence[str], rows: Sequence[Observation]
) -> dict[int, Forecast]:
    """The chance that each later answer is right, given what its request had shown until then, by the place of its row.

    Rows whose history the model does not continue are left out.
    """
    by_cell = {(row.request_id, row.prefix): row for row in rows}
    found: dict[int, Forecast] = {}
    index = [_index(level) for level in levels]
    chance = [_chances(level) for level in levels]
    for number, row in enumerate(rows):
        path = [by_cell.get((row.request_id, row.prefix[:k])) for k in range(1, row.depth)]
        if not path or None in path or row.failure is not None or row.depth > len(levels):
            continue
        place = _place([one for one in path if one is not None], model, models, index)
        said = None if place is None else chance[row.depth - 1].get((place, models.index(row.model)))
        if said is not None:
            found[number] = Forecast(row.request_id, row.model in row.prefix[:-1], said, bool(row.success))
    return found


def _index(level: HistoryLevel) -> dict[tuple[int, int, int, int], int]:
    keys = zip(level.parent.tolist(), level.model.tolist(), level.label.tolist(), level.kind.tolist(), strict=True)
    return {key: i for i, key in enumerate(keys)}


def _chances(level: HistoryLevel) -> dict[tuple[int, int], float]:
    """P(the last answer is right) by the history before and the model."""
    last = np.where(level.kind >= 0, level.right[np.arange(len(level)), np.maximum(level.kind, 0)], 0.0)
    found: dict[tuple[int, int], list[float]] = {}
    for parent, model, right, reach in zip(
        level.parent.tolist(), level.model.tolist(), last.tolist(), level.reach.tolist(), strict=True
    ):
        both = found.setdefault((parent, model), [0.0, 0.0])
        both[0] += right
        both[1] += reach
    return {key: right / reach for key, (right, reach) in found.items()}


def _place(path: Sequence[Observation], model: Predictive, models: Sequence[str], index: Sequence[dict]) -> int | None:
    """The history of a request after these rows; None if the model does not have it."""
    classes: list[int] = []
    place = 0
    for row, known in zip(path, index, strict=False):
        label = Label.of(bool(row.stopped) and row.failure is None, row.signal)
        if row.answer_class is not None and row.answer_class not in classes:
            classes.append(row.answer_class)
        kind = -1 if row.answer_class is None else classes.index(row.answer_class)
        if label not in model.labels:
            return None
        found = known.get((place, models.index(row.model), model.labels.index(label), kind))
        if found is None:
            return None
        place = found
    return place


@dataclass(frozen=True)
class Score:
    """How good forecasts are: mean log score (nats, 0 is best), expected calibration error in points, and their number."""

    log_score: float
    ece: float
    mean_said: float
    mean_right: float
    n: int


def score(found: Sequence[Forecast]) -> Score:
    """Score forecasts."""
    said, right = _arrays(found)
    bins = np.minimum((said * BINS).astype(int), BINS - 1)
    gaps = [abs(float((said - right)[bins == b].sum())) for b in range(BINS)]
    return Score(
        float(_log(said, right).mean()), 100 * sum(gaps) / len(said), float(said.mean()), float(right.mean()), len(said)
    )


def gain(with_: Sequence[Forecast], without: Sequence[Forecast]) -> tuple[float, float, float]:
    """Mean log score gained, and its 95 % interval by the bootstrap over requests. The forecasts are of the same answers."""
    difference = _log(*_arrays(with_)) - _log(*_arrays(without))
    requests = np.unique([one.request for one in with_], return_inverse=True)[1]
    total, count = np.bincount(requests, difference), np.bincount(requests)
    weights = np.random.default_rng(0).multinomial(len(total), np.full(len(total), 1 / len(total)), DRAWS)
    low, high = np.quantile((weights @ total) / (weights @ count), (0.025, 0.975))
    return float(difference.mean()), float(low), float(high)


def _arrays(found: Sequence[Forecast]) -> tuple[FloatArray, FloatArray]:
    return np.array([one.chance for one in found]), np.array([float(one.right) for one in found])


def _log(said: FloatArray, right: FloatArray) -> FloatArray:
    clipped = np.clip(said, 1e-4, 1 - 1e-4)
    return np.where(right > 0, np.log(clipped), np.log1p(-clipped))

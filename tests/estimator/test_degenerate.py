"""Rows that are legal and say little, or that are not legal at all, for every estimator (issue: bad input)."""

import importlib.util
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vinelm.errors import EvidenceError, InputError, VineLMError
from vinelm.estimator import ESTIMATORS, ObservationTable, make_estimator
from vinelm.estimator.validation.checks import validate_estimate
from vinelm.rows.observation import Observation

HAS_XGBOOST = importlib.util.find_spec("xgboost") is not None
PAIRS = [
    (name, stop)
    for name in ESTIMATORS
    for stop in ("oracle", "workflow")
    if (HAS_XGBOOST or name != "prefix-xgboost") and not (name.startswith("prefix") and stop == "workflow")
]


def row(request: str, path: str, *, right: bool | None, cost: float = 0.01, latency: float = 1.0, **fields: Any) -> Observation:
    stage = "generate" if len(path) == 1 else "repair"
    return Observation(
        request_id=request, prefix=tuple(path), stage=stage, success=right, stopped=right, cost_usd=cost, latency_s=latency,
        **fields,
    )  # fmt: skip


def failed(request: str, path: str) -> Observation:
    return row(request, path, right=None, failure="timeout")


ROWS: dict[str, list[Observation]] = {
    "one row": [row("q0", "a", right=False)],
    "no observation at depths 2 and 3": [row(f"q{i}", "ab"[i % 2], right=i % 3 == 0) for i in range(30)],
    "no observation at depth 1": [row(f"q{i}", "ab", right=i % 2 == 0) for i in range(10)],
    "one model always right": [row(f"q{i}", "a", right=True) for i in range(30)]
    + [row(f"q{i}", "b", right=i % 2 == 0) for i in range(30)],
    "nothing is ever right": [row(f"q{i}", "aba"[:d], right=False) for i in range(20) for d in (1, 2, 3)],
    "everything is right at once": [row(f"q{i}", "ab"[i % 2], right=True) for i in range(20)],
    "every call failed": [failed(f"q{i}", "ab"[i % 2]) for i in range(20)],
    "everything is free and instant": [row(f"q{i}", "a", right=i % 2 == 0, cost=0.0, latency=0.0) for i in range(20)],
    "one model costs nothing": [row(f"q{i}", "ab"[i % 2], right=i % 3 == 0, cost=float(i % 2)) for i in range(20)],
    "one request took for ever": [row(f"q{i}", "a", right=i % 2 == 0, latency=1e6 if i == 0 else 1e-6) for i in range(20)],
    "always as many in flight": [row(f"q{i}", "a", right=i % 2 == 0, in_flight=3) for i in range(20)],
}


@pytest.mark.parametrize(("name", "stop"), PAIRS)
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
def test_legal_rows_that_say_little_give_finite_answers(made: Any, name: str, stop: Any, rows: list[Observation]) -> None:
    catalog = made.catalog("a", "b")
    fitted = make_estimator(name).fit(rows, made.template(catalog, 3, stop), catalog).annotated_
    for values in (fitted.accuracy, fitted.path_cost_usd, fitted.path_latency_s, fitted.cost_var, fitted.latency_var):
        assert np.all(np.isfinite(values))
    for values in (fitted.path_cost_usd, fitted.path_latency_s, fitted.cost_var, fitted.latency_var, fitted.stop):
        assert np.all(values >= 0)
    assert np.all((fitted.accuracy >= -1e-9) & (fitted.accuracy <= 1 + 1e-9))
    up = fitted.trie.parent[1:]
    if stop == "oracle" and (name == "latent" or name.startswith("cascade")):
        assert np.all(fitted.accuracy[1:] >= fitted.accuracy[up] - 1e-9)
    assert np.all(fitted.path_latency_s[1:] >= fitted.path_latency_s[up])
    for error in (fitted.accuracy_se, fitted.cost_se, fitted.latency_se):
        assert error is None or np.all(np.isfinite(error) & (error >= 0))


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
def test_evidence_of_such_rows_is_never_a_crash_and_never_certain(made: Any, rows: list[Observation]) -> None:
    catalog = made.catalog("a", "b")
    template = made.template(catalog, 3, "oracle")
    estimator = make_estimator("latent").fit(rows, template, catalog)
    cells = ObservationTable.from_observations(rows, template, estimator.annotated_.trie)
    found = validate_estimate(cells, template, catalog, estimator.annotated_)
    assert math.isfinite(found.best_half_width)
    assert found.best_half_width > 0.0
    with pytest.raises(EvidenceError) as refused:
        found.require(1e-9, spent_usd=1.0, everything_usd=10.0)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["latent", "cascade"])
def test_a_model_that_is_always_right_is_said_to_be_good_at_every_turn(made: Any, name: str) -> None:
    catalog = made.catalog("a", "b")
    fitted = make_estimator(name).fit(ROWS["one model always right"], made.template(catalog, 3, "oracle"), catalog).annotated_
    assert fitted.accuracy[fitted.trie.node(("a",))] > 0.99
    assert 0.4 < fitted.accuracy[fitted.trie.node(("b",))] < 0.6


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (field, value)
        for field in ("cost_usd", "latency_s", "tool_cost_usd", "tool_latency_s")
        for value in (math.nan, -1.0, math.inf)
        if field != "latency_s" or not math.isnan(value)  # which says that the seconds are unknown
    ],
)
def test_an_amount_that_is_none_never_becomes_a_row(field: str, value: float) -> None:
    with pytest.raises(VineLMError, match=rf"'q'.*{field}"):
        replace(row("q", "a", right=True), **{field: value})


def test_a_row_needs_a_request(made: Any) -> None:
    with pytest.raises(VineLMError, match="request id"):
        row("", "a", right=True)


@pytest.mark.parametrize("name", ["latent", "cascade-svd"])
def test_rows_of_another_template_or_told_twice_are_refused_in_one_line(made: Any, name: str) -> None:
    catalog = made.catalog("a", "b")
    template = made.template(catalog, 2, "oracle")
    good = row("q", "a", right=False)
    for bad, words in (
        (row("q", "aba", right=True), "no such prefix"),
        (row("q", "z", right=True), "no such prefix"),
        (replace(good, stage="plan"), "stage 'plan'"),
        (replace(good, success=True), "two different rows"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            make_estimator(name).fit([good, bad], template, catalog)
        assert "\n" not in str(caught.value)
    twice = make_estimator(name).fit([good, good], template, catalog).annotated_
    assert twice.count is not None
    assert twice.count.sum() == 1

import math

import pytest

from vinelm.errors import VineLMError
from vinelm.rows.observation import Observation, Usage

ROW = {
    "request_id": "q1",
    "prefix": ("a", "b"),
    "stage": "repair",
    "success": True,
    "stopped": False,
    "cost_usd": 0.1,
    "latency_s": 2.0,
}


def test_knows_its_place_and_who_ends_it():
    row = Observation(**ROW)
    assert (row.model, row.depth) == ("b", 2)
    assert row.ended("oracle")
    assert not row.ended("workflow")
    failed = Observation(**ROW | {"success": None, "stopped": None, "failure": "timeout"})
    assert failed.ended("oracle")
    assert failed.ended("workflow")


@pytest.mark.parametrize(("arm", "stages", "contradicts"), [(None, [], False), ("a", ["a"], False), ("a", ["b"], True)])
def test_only_a_row_that_says_what_came_next_can_contradict(arm, stages, contradicts):
    assert Observation(**ROW | {"arm": arm}).contradicts(stages) is contradicts


@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1])
@pytest.mark.parametrize("field", ["cost_usd", "latency_s", "tool_cost_usd", "tool_latency_s"])
def test_no_amount_is_nan_or_negative(field, bad):
    if field == "latency_s" and math.isnan(bad):
        assert not Observation(**ROW | {field: bad}).is_timed  # seconds may be unknown
        return
    with pytest.raises(VineLMError, match=f"'q1'.*{field}"):
        Observation(**ROW | {field: bad})


def test_needs_a_request_and_a_prefix():
    with pytest.raises(VineLMError, match="request id"):
        Observation(**ROW | {"request_id": ""})
    with pytest.raises(VineLMError, match="prefix"):
        Observation(**ROW | {"prefix": ()})
    with pytest.raises(VineLMError, match="cost_usd"):
        Usage(model="a", cost_usd=math.nan, latency_s=0.0)


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.1, math.nan])
def test_a_probability_is_above_zero_and_at_most_one(bad):
    with pytest.raises(VineLMError, match=r"'q1'.*probability"):
        Observation(**ROW | {"probability": bad})
    assert Observation(**ROW | {"probability": 1.0}).probability == 1.0

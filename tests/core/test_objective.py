import copy
import dataclasses
import math

import numpy as np
import pytest

from vinelm.errors import ConfigError
from vinelm.objective import Objective


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "exactly one target"),
        ({"maximize": "accuracy", "minimize": "cost"}, "exactly one target"),
        ({"maximize": "cost"}, "maximize"),
        ({"minimize": "accuracy"}, "minimize"),
        ({"maximize": "accuracy", "min_accuracy": 1.5}, "fraction"),
        ({"maximize": "accuracy", "min_accuracy": math.nan}, "fraction"),
        ({"maximize": "accuracy", "max_cost_usd": -1.0}, "max_cost_usd"),
        ({"maximize": "accuracy", "max_latency_s": math.nan}, "max_latency_s"),
        ({"maximize": "accuracy", "max_latency_s": math.inf}, "max_latency_s"),
        ({"maximize": "accuracy", "confidence": 1.0}, "confidence"),
        ({"maximize": "accuracy", "cost_budget": "per_request"}, "no effect"),
        ({"maximize": "accuracy", "risk": "dp"}, "no effect"),
        ({"maximize": "accuracy", "z": 1.0}, "no effect"),
        ({"maximize": "accuracy", "risk": "median", "max_latency_s": 1.0}, "risk"),
        ({"maximize": "accuracy", "risk": "dp", "max_latency_s": 1.0, "late_weight": -1.0}, "late_weight is -1.0"),
        ({"maximize": "accuracy", "risk": "dp", "max_latency_s": 1.0, "late_weight": math.nan}, "late_weight is nan"),
        ({"maximize": "accuracy", "max_latency_s": 1.0, "late_weight": 0.5}, "late_weight has no effect"),
        ({"minimize": "cost", "risk": "dp", "max_latency_s": 1.0, "late_weight": 0.5}, "late_weight has no effect"),
        ({"minimize": "cost", "confidence": 0.9}, "confidence has no effect"),
        ({"minimize": "latency", "max_cost_usd": 1.0, "confidence": 0.9}, "confidence has no effect"),
        ({"maximize": "accuracy", "on_infeasible": "ignore"}, "on_infeasible"),
    ],
)
def test_refuses_in_one_line(fields, says):
    with pytest.raises(ConfigError, match=says) as caught:
        Objective(**fields)
    assert "\n" not in str(caught.value)


def test_plain_json_names_unknown_fields():
    objective = Objective(maximize="accuracy", max_latency_s=15.0)
    assert objective.to_dict() == {"maximize": "accuracy", "max_latency_s": 15.0}
    assert Objective.from_dict(objective.to_dict()) == objective
    with pytest.raises(ConfigError, match="'max_latency'"):
        Objective.from_dict({"maximize": "accuracy", "max_latency": 15})


def test_reads_like_a_sentence():
    text = str(Objective(minimize="cost", min_accuracy=0.8, max_latency_s=15))
    assert text == "minimize cost, accuracy >= 0.8, latency <= 15 s"
    assert Objective(minimize="latency").target == "latency"


def test_equal_objectives_have_equal_hashes_and_shapes():
    made, again = (Objective(maximize="accuracy", max_cost_usd=0.1, risk="mean+sd", max_latency_s=2.0, z=1.5) for _ in range(2))
    assert made == again
    assert hash(made) == hash(again)
    assert made.shape == again.shape
    assert copy.deepcopy(made) == made
    assert dataclasses.replace(made, max_cost_usd=0.2).shape == made.shape
    assert dataclasses.replace(made, max_cost_usd=0.2) != made
    for change in (
        {"max_cost_usd": None},
        {"z": 2.0},
        {"confidence": 0.9},
        {"min_accuracy": 0.0},
        {"cost_budget": "per_request"},
    ):
        assert dataclasses.replace(made, **change).shape != made.shape
    assert "shape" not in made.to_dict()
    assert "shape" not in repr(made)
    with pytest.raises(ConfigError, match="'shape'"):
        Objective.from_dict({"maximize": "accuracy", "shape": ()})


@pytest.mark.parametrize("name", ["min_accuracy", "max_cost_usd", "max_latency_s", "confidence"])
@pytest.mark.parametrize("value", [True, "1", [0.5], {}, 10**400, float("nan"), -1])
def test_what_is_no_number_in_range_is_one_line(name, value):
    with pytest.raises(ConfigError, match=name) as told:
        Objective(maximize="accuracy", **{name: value})
    assert len(str(told.value)) < 200
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("plain", [5, True, "accuracy", [], ["maximize"], None])
def test_an_objective_is_read_from_an_object_of_fields(plain):
    with pytest.raises(ConfigError, match="it must be an object of fields"):
        Objective.from_dict(plain)


def test_numbers_of_numpy_are_numbers():
    assert Objective(maximize="accuracy", max_cost_usd=np.float32(0.5), max_latency_s=np.int64(3)).max_latency_s == 3

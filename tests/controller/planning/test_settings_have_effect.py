"""Every setting of an objective that is accepted changes what is planned somewhere; what never would is an error."""

import random
from dataclasses import replace
from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from kit.oracles.random_cases import random_annotated

from vinelm.controller import Planner
from vinelm.errors import ConfigError, InfeasibleError
from vinelm.objective import Objective

TARGETS = ({"maximize": "accuracy"}, {"minimize": "cost"}, {"minimize": "latency"})
BOUNDS = ("min_accuracy", "max_cost_usd", "max_latency_s")
SETTINGS = {
    "cost_budget": ("per_request",),
    "risk": ("mean+sd", "dp"),
    "z": (2.5,),
    "late_weight": (5.0,),
    "confidence": (0.95,),
    "on_infeasible": ("raise",),
}
TRIES = 400


def combined(most):
    """Targets, bounds and up to so many settings, as far as an objective accepts them."""
    found = []
    for target, names in product(TARGETS, [c for n in range(4) for c in combinations(BOUNDS, n)]):
        for chosen in (c for n in range(most + 1) for c in combinations(SETTINGS, n)):
            for values in product(*(SETTINGS[name] for name in chosen)):
                fields = {**target, **dict.fromkeys(names, 0.5), **dict(zip(chosen, values, strict=True))}
                if is_accepted(fields):
                    found.append(fields)
    return found


def is_accepted(fields):
    try:
        Objective(**fields)
    except ConfigError:
        return False
    return True


@cache
def case(i):
    """A small trie with errors of accuracy, its planner, and a bound of each kind that cuts through it."""
    rng = random.Random(i)
    annotated = random_annotated(rng, max_models=3, max_depth=3)
    errors = np.random.default_rng(i).uniform(0.0, 0.3, len(annotated.trie))
    annotated = replace(annotated, accuracy_se=errors)
    values = {
        "min_accuracy": rng.choice(annotated.accuracy[1:].tolist()) * rng.uniform(0.7, 1.0),
        "max_cost_usd": rng.choice(np.cumsum(annotated.cost_usd[1:4]).tolist()) * rng.uniform(0.5, 1.5),
        "max_latency_s": rng.choice(np.cumsum(annotated.latency_s[1:4]).tolist()) * rng.uniform(0.8, 2.0),
    }
    return Planner(annotated), values


@cache
def planned(i, fields):
    planner, values = case(i)
    try:
        decision = planner.plan(Objective(**{name: values.get(name, value) for name, value in fields}))
    except InfeasibleError as error:
        return str(error)
    return decision.target, decision.next_model, decision.relaxed


def without_effect(fields):
    """The settings and bounds without which no plan over any of the tries is another one."""
    left = {name for name in fields if name not in {"maximize", "minimize"}}
    left -= {name for name in left if not is_accepted({k: v for k, v in fields.items() if k != name})}
    if not left & set(BOUNDS):
        left.discard("on_infeasible")  # is for requests whose models have all failed
    for i in range(TRIES):
        if not left:
            break
        base = planned(i, tuple(fields.items()))
        left -= {name for name in left if planned(i, tuple((k, v) for k, v in fields.items() if k != name)) != base}
    return left


def test_a_setting_alone_has_an_effect():
    assert len(combined(1)) > 60
    assert {str(fields): left for fields in combined(1) if (left := without_effect(fields))} == {}


@pytest.mark.parametrize("extra", [{}, {"late_weight": 5.0}, {"min_accuracy": 0.5}])
def test_the_program_honours_confidence(extra):
    fields = {"maximize": "accuracy", "max_latency_s": 0.5, "risk": "dp", "confidence": 0.95, **extra}
    assert without_effect(fields) == set()


@pytest.mark.long
def test_settings_together_have_an_effect():
    assert {str(fields): left for fields in combined(3) if (left := without_effect(fields))} == {}

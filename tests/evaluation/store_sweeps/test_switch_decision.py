"""What two paired intervals allow to say."""

from dataclasses import replace

import pytest

from vinelm.evaluation import OffPolicyEstimate, PlanComparison, SwitchDecision
from vinelm.objective import Objective


def between(low, high, **fields):
    plain = {"standard_error": 0.01, "effective": 100.0, "unsupported": 0.0, "is_identified": True, **fields}
    return OffPolicyEstimate(value=(low + high) / 2, low=low, high=high, **plain)


def compared(kind, gain, saved, **fields):
    """A comparison with a single model of 1 dollar."""
    some = between(0.5, 0.6)
    return PlanComparison(
        kind=kind, policy="paths", objective=Objective(maximize="accuracy"), plans=("p",), rivals=("r",), rival_names=("r",),
        accuracy=some, cost_usd=between(0.4, 0.5), rival_accuracy=some, rival_cost_usd=between(0.9, 1.1), gain=gain,
        saved_usd=saved, static_plans=("s",), static_accuracy=some, static_cost_usd=between(0.4, 0.5),
        over_static=fields.pop("over_static", between(-0.1, 0.1)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "gain", "saved", "verdict"),
    [
        ("cheaper", (-0.01, 0.02), (0.3, 0.5), "switch"),
        ("cheaper", (-0.03, 0.02), (0.3, 0.5), "open"),
        ("cheaper", (-0.01, 0.02), (-0.1, 0.5), "open"),
        ("cheaper", (-0.09, -0.03), (0.3, 0.5), "keep"),
        ("cheaper", (-0.01, 0.02), (-0.1, 0.01), "keep"),
        ("better", (0.01, 0.08), (-0.01, 0.2), "switch"),
        ("better", (0.01, 0.08), (-0.2, 0.2), "open"),
        ("better", (-0.01, 0.08), (0.0, 0.2), "open"),
        ("better", (-0.05, 0.01), (0.0, 0.2), "keep"),
        ("better", (0.01, 0.08), (-0.4, -0.1), "keep"),
    ],
)
def test_both_intervals_count(kind, gain, saved, verdict):
    assert compared(kind, between(*gain), between(*saved)).verdict == verdict


def test_the_same_plan_is_kept_and_what_is_unknown_is_said():
    same = between(0.0, 0.0, is_same=True)
    assert compared("cheaper", same, same).verdict == "keep"
    unknown = between(0.0, 0.1, is_identified=False)
    assert compared("cheaper", unknown, between(0.1, 0.2)).verdict == "not identified"


def test_a_decision_rests_on_the_comparison_that_says_most():
    keep = compared("cheaper", between(-0.09, -0.03), between(0.3, 0.5))
    switch = compared("better", between(0.01, 0.08), between(0.0, 0.2))
    unsure = compared("better", between(-0.01, 0.08), between(0.0, 0.2))
    assert SwitchDecision(comparisons=(keep, switch)).verdict == "switch"
    assert SwitchDecision(comparisons=(keep, switch)).shown is switch
    assert SwitchDecision(comparisons=(keep, unsure)).verdict == "open"
    assert SwitchDecision(comparisons=(keep,)).verdict == "keep"


def test_being_better_than_a_static_plan_needs_its_interval_above_zero():
    one = compared("cheaper", between(-0.01, 0.02), between(0.3, 0.5), over_static=between(0.01, 0.1))
    assert one.beats_static
    assert not replace(one, over_static=between(-0.01, 0.1)).beats_static
    assert not replace(one, over_static=between(0.01, 0.1, is_identified=False)).beats_static

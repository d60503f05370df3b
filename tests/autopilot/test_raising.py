"""What sends a plan that serves back: its failures, dollars and seconds, by the requests that still run as today."""

import numpy as np
import pytest

from vinelm.autopilot.raising import Raising, Took

TODAY = Took(0.002, 1.0)


def served(requests=4000, *, usd=0.4, seconds=1.2, fails=0.0, seed=0, **options):
    """A stream of skewed costs, whose plan takes such multiples of today's dollars and seconds; returns the alarm."""
    options = {"saved": 0.6, "is_alone": True, **options}
    raising = Raising(0.02, (0, 300), (6, 300), options.pop("saved"), TODAY, **options)
    rng = np.random.default_rng(seed)
    for _ in range(requests):
        cost, time_s = TODAY.usd * rng.gamma(4.0) / 4.0, rng.gamma(4.0) / 4.0
        if rng.random() < raising.share:
            raising.served(has_escalated=bool(rng.random() < fails), took=Took(usd * cost, seconds * time_s))
        else:
            raising.ran_as_today(Took(cost, time_s))
        if raising.alarm is not None:
            break
    return raising.alarm


@pytest.mark.parametrize(
    ("changed", "alarm"),
    [
        ({"usd": 0.55, "seconds": 1.6, "max_slowdown": 2.0}, None),
        ({"usd": 1.0, "has_below": True}, "it saves less than half of what its proof saw"),
        ({"fails": 0.05}, "its model fails more often"),
        ({"fails": 0.05, "is_alone": False}, "it escalates more or less often"),
        ({"seconds": 3.0, "max_slowdown": 2.0}, "its calls take longer than is allowed"),
    ],
)
def test_it_goes_back_for_what_has_changed_and_only_then(changed, alarm):
    assert {served(seed=seed, **changed) for seed in range(2)} == {alarm}

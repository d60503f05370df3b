"""The benchmark of several machines: its parts of drift, and what it refuses to report."""

from argparse import Namespace

import bench_scale as bench
import pytest


def test_drift_is_measured_over_as_many_runs_as_asked_for():
    options = Namespace(runs=3, requests=40, profiled=100, alpha=0.05, seed=0, delay_runs=2)
    found = bench.drift_figures(options)
    assert found["drift_false_alarms"]["runs"] == 3
    assert {one["runs"] for one in found["drift_delay_requests"].values()} == {2}
    bench.check(found)


def test_more_false_alarms_than_stated_end_the_benchmark():
    with pytest.raises(SystemExit, match="more than the stated rate"):
        bench.check({"drift_false_alarms": {"runs": 1000, "alarms": 90, "interval": [0.073, 0.11], "stated": 0.05}})

"""The benchmark of several machines: its parts of drift, and what it refuses to report."""

import importlib.util
import sys
from argparse import Namespace
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        spec = importlib.util.spec_from_file_location("bench_scale", SCRIPTS / "bench_scale.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
        sys.modules.pop("drift_delay", None)


def test_drift_is_measured_over_as_many_runs_as_asked_for(bench):
    options = Namespace(runs=3, requests=40, profiled=100, alpha=0.05, seed=0, delay_runs=2)
    found = bench.drift_figures(options)
    assert found["drift_false_alarms"]["runs"] == 3
    assert {one["runs"] for one in found["drift_delay_requests"].values()} == {2}
    bench.check(found)


def test_more_false_alarms_than_stated_end_the_benchmark(bench):
    with pytest.raises(SystemExit, match="more than the stated rate"):
        bench.check({"drift_false_alarms": {"runs": 1000, "alarms": 90, "interval": [0.073, 0.11], "stated": 0.05}})

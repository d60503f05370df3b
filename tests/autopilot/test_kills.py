"""A service under an autopilot that is killed again and again: its dollars of a day hold, and it comes to its proof."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vinelm.autopilot.status import status_of
from vinelm.traces import ObservationStore

pytestmark = pytest.mark.long
SERVICE = """
import sys
from kit.worlds.piloted import Service, equal
from kit.worlds.replays import models, truth
service = Service(sys.argv[1], models(nano=equal, big=truth), every_s=0.05, shadow_usd_per_day=float(sys.argv[2]))
start = int(sys.argv[3])
for number in range(start, start + 100_000):
    service.ask([number])
    print(number, flush=True)
"""
DAY_USD = 0.6


def test_killed_at_any_time_it_goes_on_within_the_days_dollars(tmp_path):
    path, at = tmp_path / "pilot.db", 0
    for turn in range(12):
        command = [sys.executable, "-c", SERVICE, str(path), str(DAY_USD), str(at)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]) as process:
            until = time.monotonic() + 4.0 + 0.7 * turn
            while time.monotonic() < until and (line := process.stdout.readline()):
                at = int(line) + 1
            process.send_signal(signal.SIGKILL)
        if path.exists():
            with ObservationStore.open(path) as store:
                assert store.committed_usd() <= DAY_USD + 1e-9
    (step,) = status_of(path).steps
    assert step.recorded > 150

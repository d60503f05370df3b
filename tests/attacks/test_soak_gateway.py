"""The soak of the gateway finds what it is to find, and half a minute of it passes."""

import json
import subprocess
import sys

import pytest
import soak_gateway
from attack_paths import ATTACKS

GOOD = {
    "wrong": [],
    "ends": {"answered": 3},
    "usd": {"tight": {"cap": 1.0, "billed": 0.5, "spent": 0.5, "reserved": 0.25}},
}


def test_what_holds_is_no_breach():
    assert soak_gateway.breaches(GOOD) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"wrong": ["call 7: lost"]}, "call 7: lost"),
        ({"ends": {"killed": 3}}, "no call was answered"),
        ({"usd": {"tight": {"cap": 1.0, "billed": 0.5, "spent": 0.9, "reserved": 0.2}}}, "has spent"),
        ({"usd": {"tight": {"cap": 1.0, "billed": 0.5, "spent": 0.2, "reserved": 0.2}}}, "was billed"),
    ],
)
def test_what_does_not_hold_is_one(changed, said):
    [line] = soak_gateway.breaches({**GOOD, **changed})
    assert said in line


@pytest.mark.long
def test_half_a_minute_of_kills_and_full_disks_loses_nothing(tmp_path):
    file = tmp_path / "soak.json"
    command = [sys.executable, str(ATTACKS / "soak_gateway.py"), "--seconds", "30", "--results", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=480)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = json.loads(file.read_text())
    assert found["ends"]["answered"] > 20
    assert sum(found["troubles"].values()) >= 3

"""Every target of the Makefile can be made: what it depends on exists or has a rule. Nothing is run."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", TARGETS)
def test_what_a_target_needs_is_there(target):
    done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_documented_targets_are_found():
    assert {"demo", "test", "test-all", "docs", "lint", "types"} <= set(TARGETS)

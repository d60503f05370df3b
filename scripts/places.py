"""Where scripts find what stands outside of `scripts/`: applications, oracles, attacks. Importing it puts them on the path."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
APPS, TESTS = ROOT / "apps", ROOT / "tests"
PYTHONPATH = os.pathsep.join(map(str, (ROOT / "scripts", APPS)))
"""For a process that a script starts."""
sys.path.extend(str(folder) for folder in (APPS, TESTS, TESTS / "attacks") if str(folder) not in sys.path)

"""Lets the attacks import what `scripts/` and `tests/kit` have: engines, servers, oracles, result files. Import it first."""

import os
import sys
from pathlib import Path

ATTACKS = Path(__file__).resolve().parent
SCRIPTS = ATTACKS.parents[1] / "scripts"
SHARED = os.pathsep.join(map(str, (ATTACKS, SCRIPTS)))
"""Value of PYTHONPATH for a process that an attack starts."""
sys.path.extend(str(folder) for folder in (SCRIPTS, ATTACKS.parent) if str(folder) not in sys.path)

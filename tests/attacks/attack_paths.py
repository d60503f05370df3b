"""Lets the attacks import what `scripts/` has: the fake engine, the servers, result files. Import it first."""

import os
import sys
from pathlib import Path

ATTACKS = Path(__file__).resolve().parent
SCRIPTS = ATTACKS.parents[1] / "scripts"
SHARED = os.pathsep.join(map(str, (ATTACKS, SCRIPTS)))
"""Value of PYTHONPATH for a process that an attack starts."""
if str(SCRIPTS) not in sys.path:
    sys.path.append(str(SCRIPTS))

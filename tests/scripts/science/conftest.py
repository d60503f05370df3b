"""The studies' parts are imported as the scripts import them."""

import sys
from pathlib import Path

SCRIPTS = str(Path(__file__).parents[3] / "scripts")
if SCRIPTS not in sys.path:
    sys.path.append(SCRIPTS)  # last: a script never hides a test's module

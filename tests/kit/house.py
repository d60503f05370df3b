"""`scripts/house.py` as a module, and the house that it sees."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _load():
    spec = importlib.util.spec_from_file_location("house_script", ROOT / "scripts" / "house.py")
    module = sys.modules["house_script"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


house_script = _load()
HOUSE = house_script.House(ROOT)

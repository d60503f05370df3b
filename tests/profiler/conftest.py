"""Makes the toys importable. Their folder holds nothing else, so that no other name is shadowed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "toy"))

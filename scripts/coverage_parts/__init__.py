"""The parts of `scripts/evaluate_coverage.py`: worlds, what policies truly achieve in them, and the figures."""

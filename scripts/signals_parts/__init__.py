"""Parts of the benchmark `scripts/signals.py`."""

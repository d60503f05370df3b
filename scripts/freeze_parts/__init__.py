"""Parts of `freeze.py`."""

"""Parts of `house.py`."""

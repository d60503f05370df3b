"""What the soak test (`soak.py`) is made of."""

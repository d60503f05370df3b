"""The parts of ``scripts/first_trial.py``: the local server, and the applications."""

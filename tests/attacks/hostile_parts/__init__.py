"""The parts of ``tests/attacks/hostile.py``: each attacks one side of VineLM, within bounds and on loopback only."""

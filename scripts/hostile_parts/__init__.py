"""The parts of ``scripts/hostile.py``: each attacks one side of VineLM, within bounds and on loopback only."""

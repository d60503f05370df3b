"""The parts of ``scripts/hostile.py``: each has ``run(progress)``, which attacks one part and says what got through."""

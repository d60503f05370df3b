"""Makes the toys importable. Their folder holds nothing else, so that no other name is shadowed."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "toy"))


@pytest.fixture(scope="session")
def python():
    """Starts processes that have everything loaded: ``python.start(code, *arguments)``."""
    from loaded_python import LoadedPython

    loaded = LoadedPython()
    yield loaded
    loaded.close()


@pytest.fixture(scope="session")
def kept_workers():
    """Workers in processes by where they run; ended with the session."""
    kept = {}
    yield kept
    for _, close in kept.values():
        close()


@pytest.fixture
def one_zygote(kept_workers, monkeypatch):
    """Runs of one source share the process that their units are forked from: it takes seconds to load."""
    from vinelm.profiler import ExecutionConfig

    start = ExecutionConfig.worker

    def worker(place, units, fingerprint):
        if place.isolation != "process":
            return start(place, units, fingerprint)
        key = repr(place)
        if key not in kept_workers:
            made = start(place, units, fingerprint)
            kept_workers[key] = made, made.close
            made.close = lambda: None
        return kept_workers[key][0]

    monkeypatch.setattr(ExecutionConfig, "worker", worker)

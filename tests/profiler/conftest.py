"""Processes that tests of one session share."""

import pytest


@pytest.fixture(scope="session")
def python():
    """Starts processes that have everything loaded: ``python.start(code, *arguments)``."""
    from kit.servers.loaded_python import LoadedPython

    loaded = LoadedPython()
    yield loaded
    loaded.close()


@pytest.fixture(scope="session")
def kept_workers():
    """Process workers by execution config; closed with the session."""
    kept = {}
    yield kept
    for _, close in kept.values():
        close()


@pytest.fixture
def one_zygote(kept_workers, monkeypatch):
    """Runs of one source share their fork server, which takes seconds to load."""
    from vinelm.profiler import runner

    start = runner.make_worker

    def make_worker(settings, units, fingerprint, equal):
        if settings.execution.isolation != "process":
            return start(settings, units, fingerprint, equal)
        key = repr(settings.execution)
        if key not in kept_workers:
            worker = start(settings, units, fingerprint)
            kept_workers[key] = worker, worker.close
            worker.close = lambda: None
        return kept_workers[key][0]

    monkeypatch.setattr(runner, "make_worker", make_worker)

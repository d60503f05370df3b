"""Processes that tests of one session share."""

import pytest


@pytest.fixture(scope="session")
def python(warm_program):
    """Starts processes that have everything loaded: ``python.start(code, *arguments)``."""
    from kit.servers.loaded_python import LoadedPython

    loaded = LoadedPython(warm_program)
    yield loaded
    loaded.close()


@pytest.fixture(scope="session")
def kept_workers(warm_program):
    """Process workers by execution config; closed with the session, before the warm program that they are forks of."""
    kept = {}
    yield kept
    for _, close in kept.values():
        close()


@pytest.fixture
def one_zygote(kept_workers, warm_python, monkeypatch):
    """Runs of one source share their fork server, and all fork servers what they load, which takes seconds."""
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

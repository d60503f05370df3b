"""How all tests are collected and run. What they build stands in `tests/kit`."""

import gc
import os
import ssl
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from kit.catalogs import make_catalog

from vinelm.catalog import Catalog

pytest_plugins = ("kit.outside_world",)

TESTS = Path(__file__).parent
for folder in (TESTS / "attacks", TESTS.parent / "scripts"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))  # imported as the scripts import them; last, so that none hides a test's module

os.environ.setdefault("VINELM_DRAW_SECRET", "draws of the tests are alike")  # in their child processes, too

settings.register_profile("no deadline", deadline=None)  # no test asserts a time of the clock
settings.load_profile("no deadline")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Modules and collected tests stay to the end: the garbage collector need not look at them, nor at the rest, so often.

    Each worker begins with another folder: in a fresh clone it then compiles what the others find compiled.
    """
    gc.disable()
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", "gw0"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if session.config.args == session.config.getini("testpaths"):
        folders = sorted(str(path) for path in TESTS.iterdir() if any(path.rglob("test_*.py")))
        first = int(worker.removeprefix("gw")) * len(folders) // workers
        session.config.args = folders[first:] + folders[:first]
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        frozen = gc.get_freeze_count()
        gc.get_freeze_count = lambda: frozen  # every batch asks, and millions would be counted
        gc.enable()
        gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """All workers have the same order, whatever they began with."""
    items.sort(key=lambda item: item.path.relative_to(TESTS).parts[0])


@pytest.fixture(scope="session", autouse=True)
def one_tls_context():
    """Every SDK's client reads all root certificates anew, 20 ms each: no test speaks TLS."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


@pytest.fixture
def catalog() -> Catalog:
    return make_catalog()


@pytest.fixture(scope="session")
def warm_program(tmp_path_factory):
    """A Python whose `vinelm` is a fork of one process that has imported it: an import takes two seconds of a processor.

    On Linux. One process serves all workers: the one that has started it ends it when the others no longer hold the lock.
    """
    if sys.platform != "linux":
        yield sys.executable
        return
    from fcntl import LOCK_EX, LOCK_SH, LOCK_UN, flock

    from docs_parts.warm_vinelm import Warm

    folder, warm = tmp_path_factory.getbasetemp(), None
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with open(folder / "beginning", "a") as beginning, open(folder / "warm", "a+", encoding="utf-8") as shared:
        flock(beginning, LOCK_EX)
        shared.seek(0)
        if not (program := shared.read()):
            warm = Warm()
            shared.write(program := str(warm.folder / "python-of-vinelm"))
            shared.flush()
        flock(shared, LOCK_SH)
        flock(beginning, LOCK_UN)
        yield program
        if warm is not None:
            flock(beginning, LOCK_EX)
            flock(shared, LOCK_EX)
            shared.truncate(0)
            warm.end()


@pytest.fixture
def warm_python(warm_program, monkeypatch):
    """``sys.executable`` is such a program, for this test and for the commands that it runs; returns it."""
    monkeypatch.setattr(sys, "executable", warm_program)
    return warm_program

"""Tests of a store in PostgreSQL need a server; many go on with a service whose plan is proven."""

from contextlib import contextmanager
from copy import copy
from types import SimpleNamespace

import pytest
from kit.servers.postgres_server import postgres_server, postgres_server_url, postgres_url
from kit.worlds.piloted import Service, equal
from kit.worlds.replays import models, truth

from vinelm.autopilot import raising

__all__ = ["postgres_server", "postgres_server_url", "postgres_url"]


@contextmanager
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raising, "HELD", raising.HELD // 4)
        yield


@pytest.fixture
def quick_levels():
    """Each level of a plan's share needs a quarter of the requests."""
    with quick():
        yield


@pytest.fixture(scope="package")
def history(tmp_path_factory):
    """A service until its plan serves nearly all requests: its store, and what its states were on the way."""
    catalog, path = models(nano=equal, big=truth), tmp_path_factory.mktemp("proven") / "pilot.db"
    service, states = Service(path, catalog), []
    with quick():
        answers = service.ask(range(200))
        states.append(copy(service.look()))
        service.ask(range(200, 420))
        states.append(copy(service.look()))
        for start in range(1000, 1200, 50):
            service.ask(range(start, start + 50))
            states.append(copy(service.look()))
    service.vine.close()
    return SimpleNamespace(path=path, answers=answers, states=states)


@pytest.fixture(scope="package")
def proven_store(history):
    """The store of a service whose plan serves nearly all requests."""
    assert history.states[-1].share == 0.95
    return history.path

import pytest
from kit.servers.gateways import KEY, KEY_ENV, catalog_of, running
from kit.wire.openai_format import answering
from kit.wire.server import WireServer, end_connections


@pytest.fixture(scope="module")
def wire():
    server = WireServer()
    yield server
    end_connections()
    server.stop()


@pytest.fixture
def upstream(wire, monkeypatch):
    """The server behind the gateway, which answers "four"."""
    monkeypatch.setenv(KEY_ENV, KEY)
    return wire.answers(answering("fo", "ur"))


@pytest.fixture
def gateway(upstream):
    """Without keys, without a plan and without a record."""
    with running(catalog_of(upstream.url)) as found:
        yield found

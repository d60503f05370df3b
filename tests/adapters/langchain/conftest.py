"""A server on loopback that answers as a test says."""

import pytest
from kit.wire.server import WireServer, end_connections


@pytest.fixture
def server():
    found = WireServer()
    yield found
    found.stop()
    end_connections()

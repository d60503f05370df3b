"""A real Redis for the tests of a fleet: a given one, a running one, or one of our own; else the tests are skipped."""

import os
import shutil
import uuid

import pytest
from redis_for_bench import OwnRedis

WHERE = "VINELM_TEST_REDIS"
DEFAULT = "redis://127.0.0.1:6379/0"
WHY_NOT = (
    f"no Redis: set {WHERE}=redis://host:port/db, run one on the default port, or install it (Debian: apt install redis-server)"
)
NO_DRIVER = "no driver of Redis: pip install 'vinelm[fleet]'"


def answers(url):
    redis = pytest.importorskip("redis", reason=NO_DRIVER)
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=0.3, socket_timeout=0.3) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory):
    given = os.environ.get(WHERE)
    if given:
        assert answers(given), f"{WHERE} does not answer"
        yield given
    elif answers(DEFAULT):
        yield DEFAULT
    elif shutil.which("redis-server"):
        server = OwnRedis(tmp_path_factory.mktemp("redis"))
        server.start()
        yield server.url
        server.kill()
    else:
        pytest.skip(WHY_NOT)


@pytest.fixture
def redis_server(tmp_path):
    """A server that the test may kill."""
    pytest.importorskip("redis", reason=NO_DRIVER)
    if not shutil.which("redis-server"):
        pytest.skip("no redis-server to kill: install it (Debian: apt install redis-server)")
    server = OwnRedis(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def fleet_name():
    """A name that no other test uses: its keys are apart."""
    return f"test-{uuid.uuid4().hex[:12]}"

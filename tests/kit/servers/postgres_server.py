"""A real PostgreSQL for the tests: a given one, a running one, or one of our own; else the tests are skipped."""

import os
from contextlib import contextmanager

import pytest

WHERE = "VINELM_TEST_POSTGRES"
DEFAULT = "postgresql://postgres@127.0.0.1:5432/postgres"
WHY_NOT = (
    f"no PostgreSQL: set {WHERE}=postgresql://user@host:port/database, run one on the default port, or install it "
    "(Debian: apt install postgresql; the driver: pip install 'vinelm[postgres]')"
)


def connected(url):
    psycopg = pytest.importorskip("psycopg", reason=WHY_NOT)
    return psycopg.connect(url, autocommit=True, connect_timeout=3)


def answers(url):
    psycopg = pytest.importorskip("psycopg", reason=WHY_NOT)
    try:
        connected(url).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture(scope="session")
def postgres_server_url():
    pytest.importorskip("psycopg", reason=WHY_NOT)
    given = os.environ.get(WHERE)
    if given:
        assert answers(given), f"{WHERE} does not answer"
        yield given
        return
    if answers(DEFAULT):
        yield DEFAULT
        return
    with started() as server:
        yield server.url


@contextmanager
def started():
    """A server of our own; skips where there is none to start."""
    from postgres_for_bench import own_postgres, programs

    if programs() is None:
        pytest.skip(WHY_NOT)
    with own_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server_url):
    """An empty schema of its own, removed afterwards."""
    from postgres_for_bench import empty_schema

    with empty_schema(postgres_server_url) as url:
        yield url


@pytest.fixture
def postgres_server():
    """A server that the test may stop."""
    pytest.importorskip("psycopg", reason=WHY_NOT)
    with started() as server:
        yield server

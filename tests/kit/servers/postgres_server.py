"""A real PostgreSQL for the tests: a given one, a running one, or one of our own; else the tests are skipped."""

import os
import pwd
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path
from urllib.parse import quote

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


def programs():
    """The folder of ``initdb``, which Debian keeps out of the path; None if PostgreSQL is not installed."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class PostgresServer:
    """A server of our own, which can be killed and started again. It does not run as root: there it is the user postgres."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.process = Path(folder), None
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._user = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            self._user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        command = [
            programs() / "initdb",
            "-D",
            self.folder / "data",
            "-U",
            "postgres",
            "-A",
            "trust",
            "-N",
            "--no-locale",
            "-E",
            "UTF8",
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder, **self._user)

    def start(self):
        command = [programs() / "postgres", "-D", self.folder / "data", "-p", str(self.port), "-k", "", "-h", "127.0.0.1"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder, **self._user
        )
        until = time.monotonic() + 30
        while not answers(self.url):
            assert self.process.poll() is None, "postgres ended"
            assert time.monotonic() < until, "postgres does not answer"
            time.sleep(0.02)

    def stop(self):
        """Stop it at once: open connections are cut."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(3)  # SIGQUIT: immediate shutdown, children included
            self.process.wait()


def own_server():
    """A server of our own in a folder that its user can reach, which pytest's are not; skips where there is none to start."""
    import tempfile

    if programs() is None:
        pytest.skip(WHY_NOT)
    folder = Path(tempfile.mkdtemp(prefix="vinelm-postgres-"))
    return PostgresServer(folder)


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
    server = own_server()
    try:
        server.start()
        yield server.url
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


def with_schema(url, name):
    """The address of a schema of a database."""
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={name}')}"


@pytest.fixture
def postgres_url(postgres_server_url):
    """An empty schema of its own, removed afterwards."""
    name = f"t{uuid.uuid4().hex[:12]}"
    with connected(postgres_server_url) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    yield with_schema(postgres_server_url, name)
    with connected(postgres_server_url) as connection:
        connection.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
def postgres_server():
    """A server that the test may stop."""
    pytest.importorskip("psycopg", reason=WHY_NOT)
    server = own_server()
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)

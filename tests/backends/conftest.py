"""A small workflow's worth of requests over one database, and calls to make on it."""

import sqlite3
from contextlib import closing

import pytest

from vinelm.clock import VirtualClock
from vinelm.requests.protocols import CallContext
from vinelm.requests.workflow import Request

SHAPES = (
    "SELECT name FROM staff WHERE age > {n}",
    "SELECT COUNT(*) FROM sale WHERE staff_id = {n}",
    "SELECT s.name, SUM(x.amount) FROM staff AS s JOIN sale AS x ON x.staff_id = s.id WHERE s.age > {n} GROUP BY s.name",
    "SELECT city, AVG(age) FROM staff GROUP BY city HAVING COUNT(*) > {k}",
    "SELECT name FROM staff WHERE id IN (SELECT staff_id FROM sale WHERE amount > {n})",
    "SELECT name FROM staff WHERE hired >= '20{k:02d}-01-01' ORDER BY age DESC LIMIT 3",
)


def make_database(path):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE staff (id INTEGER PRIMARY KEY, name TEXT, city TEXT, age INTEGER, hired TEXT)")
        db.execute("CREATE TABLE sale (id INTEGER PRIMARY KEY, staff_id INTEGER, amount INTEGER, note TEXT)")
        db.executemany(
            "INSERT INTO staff VALUES (?, ?, ?, ?, ?)",
            [(i, f"n{i}", "ABC"[i % 3], 20 + i * 7 % 45, f"20{i % 20:02d}-03-0{1 + i % 9}") for i in range(1, 61)],
        )
        db.executemany(
            "INSERT INTO sale VALUES (?, ?, ?, ?)", [(i, 1 + i * 7 % 60, i * 13 % 97, f"x{i % 5}") for i in range(1, 301)]
        )
    db.close()


def make_requests(count):
    rows = [SHAPES[i % len(SHAPES)].format(n=1 + i * 3 % 55, k=1 + i % 17) for i in range(count)]
    return [Request(f"q{i}", {"question": f"question {i}", "db_id": "shop", "gold_sql": sql}) for i, sql in enumerate(rows)]


@pytest.fixture(scope="session")
def databases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("databases")
    make_database(folder / "shop.sqlite")
    return folder


class Judge:
    """Scores SQL by running it: right where it gives the gold query's rows."""

    def __init__(self, folder):
        self.db = sqlite3.connect(f"file:{folder / 'shop.sqlite'}?mode=ro", uri=True)
        self.known = {}

    def rows(self, sql):
        if sql not in self.known:
            try:
                self.known[sql] = sorted(map(repr, self.db.execute(sql).fetchall()))
            except sqlite3.Error as error:
                self.known[sql] = error
        return self.known[sql]

    def is_right(self, request, sql):
        gold = self.rows(request.data["gold_sql"])
        assert isinstance(gold, list), gold
        return self.rows(sql) == gold


@pytest.fixture(scope="session")
def judge(databases):
    judge = Judge(databases)
    yield judge
    judge.db.close()


@pytest.fixture
def make_call():
    """A call context that keeps the usages it is told of in ``.usages``."""

    def make(request, *prefix, clock=None):
        usages = []
        call = CallContext(
            stage="repair" if prefix[1:] else "generate",
            prefix=prefix,
            clock=clock or VirtualClock(),
            on_usage=usages.append,
            request=request,
        )
        return call, usages

    return make


@pytest.fixture(scope="session")
def requests():
    return make_requests(240)


@pytest.fixture(scope="module")
def transport():
    """A server on loopback that answers as each test says."""
    from kit.wire.server import WireServer  # here: another process imports this file from its own folder

    server = WireServer()
    yield server
    server.stop()


@pytest.fixture
def kept():
    """Closes the clients that it is given when the test is over."""
    made = []

    def keep(client):
        made.append(client)
        return client

    yield keep
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def google_key_file(tmp_path_factory):
    """A service account's, whose token endpoint is on loopback."""
    from kit.wire.providers import give_token, service_account
    from kit.wire.server import WireServer

    server = WireServer().answers(give_token)
    path = tmp_path_factory.mktemp("google") / "key.json"
    path.write_text(service_account(f"{server.url}/token"))
    yield str(path)
    server.stop()


@pytest.fixture
def credentials(monkeypatch, tmp_path, google_key_file):
    """The environment holds a canary for every provider, and nothing else that an SDK would find by itself."""
    from kit.wire.client import KEY
    from kit.wire.providers import ACCESS_KEY, AMBIENT

    for name in AMBIENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", google_key_file)

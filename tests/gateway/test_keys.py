"""The file of keys: hashes, caps that hold for all processes, and reservations that survive the death of one."""

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from vinelm.errors import CallRefused, ConfigError
from vinelm.gateway import KeyBook
from vinelm.gateway.keys import NANO
from vinelm.rows.observation import Usage

DAY_S = 86_400.0


@pytest.fixture
def clock():
    return [20_000 * DAY_S]


@pytest.fixture
def book(tmp_path, clock):
    made = KeyBook(tmp_path / "keys.db", now=lambda: clock[0])
    yield made
    made.close()


def used(usd):
    return Usage(model="m", cost_usd=usd, latency_s=0.0)


def today(book):
    return {day.key.name: (round(day.spent_usd, 9), round(day.reserved_usd, 9), day.calls) for day in book.today()}


def test_a_key_is_kept_as_its_hash_in_a_file_of_its_owner(book):
    assert not book.has_keys
    key = book.add("alice", tenant="acme", daily_usd=5.0, calls_per_min=9)
    assert book.has_keys
    found = book.find(key)
    assert (found.name, found.tenant, found.daily_usd, found.calls_per_min) == ("alice", "acme", 5.0, 9)
    assert book.find(key + "x") is book.find("") is book.find("alice") is None
    assert book.path.stat().st_mode & 0o777 == 0o600
    for path in book.path.parent.iterdir():
        assert key.encode() not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0


def test_keys_differ_and_a_name_is_one_keys(book):
    assert book.add("a") != book.add("b")
    with pytest.raises(ConfigError, match="there is a key 'a'"):
        book.add("a")


@pytest.mark.parametrize(
    ("name", "more"),
    [("", {}), ("a b", {}), ("x" * 65, {}), ("a", {"tenant": "a/b"}), ("a", {"daily_usd": -1.0}),
     ("a", {"daily_usd": float("nan")}), ("a", {"daily_usd": float("inf")}), ("a", {"calls_per_min": 0})],
)  # fmt: skip
def test_what_can_be_no_key_is_refused(book, name, more):
    with pytest.raises(ConfigError):
        book.add(name, **more)
    assert not book.has_keys


def test_a_revoked_key_is_none_in_every_process_at_once(book):
    key, other = book.add("alice"), KeyBook(book.path)
    assert other.find(key) is not None
    book.revoke("alice")
    assert other.find(key) is book.find(key) is None
    assert book.has_keys  # callers still need one
    with pytest.raises(ConfigError, match="unknown key 'bob'"):
        book.revoke("bob")
    other.close()


def test_a_call_reserves_its_bound_and_settles_at_its_price(book):
    account = book.account(book.find(book.add("alice", daily_usd=1.0)))
    permit = account.authorize(0.6)
    assert today(book) == {"alice": (0.0, 0.6, 0)}
    with pytest.raises(CallRefused, match=r"\$0\.400000 is left of this key's \$1 for today"):
        account.authorize(0.5)
    permit.settle(used(0.1))
    permit.settle(used(0.1))  # once
    permit.close()
    assert today(book) == {"alice": (0.1, 0.0, 1)}
    account.authorize(0.9).close()  # at its bound
    assert today(book) == {"alice": (1.0, 0.0, 2)}
    with pytest.raises(CallRefused):
        account.authorize(1e-9)


def test_a_first_call_above_the_cap_is_refused(book):
    account = book.account(book.find(book.add("alice", daily_usd=0.5)))
    with pytest.raises(CallRefused):
        account.authorize(0.6)
    assert today(book) == {"alice": (0.0, 0.0, 0)}


def test_without_a_cap_everything_is_counted_and_nothing_refused(book):
    key = book.find(book.add("alice"))
    assert book.account(key) is None
    book.count(key, [used(0.25)])
    book.count(key, [used(0.5), Usage(model="", cost_usd=0.0, latency_s=0.0)])
    assert today(book) == {"alice": (0.75, 0.0, 2)}
    for _ in range(9):
        book.count(key, [used(1e30)])  # as nobody pays


def test_a_day_has_its_own_dollars_and_a_call_belongs_to_the_day_it_began(book, clock):
    account = book.account(book.find(book.add("alice", daily_usd=1.0)))
    permit = account.authorize(1.0)
    clock[0] += DAY_S
    account.authorize(1.0).settle(used(0.5))
    permit.settle(used(0.75))
    assert today(book) == {"alice": (0.5, 0.0, 1)}
    clock[0] -= DAY_S
    assert today(book) == {"alice": (0.75, 0.0, 1)}


def test_keys_of_threads_and_connections_never_pass_their_cap(book):
    """Each of 8 threads, on 2 connections, reserves until it is refused."""
    key, other = book.find(book.add("alice", daily_usd=1.0)), KeyBook(book.path, now=book._now)
    permits = []

    def spend(account):
        for number in range(200):
            try:
                permit = account.authorize(0.03)
            except CallRefused:
                continue
            permits.append(permit)
            if number % 3:
                permit.settle(used(0.01))

    threads = [threading.Thread(target=spend, args=((book, other)[n % 2].account(key),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [day] = book.today()
    assert day.spent_usd + day.reserved_usd <= 1.0 + 1e-12
    assert day.spent_usd + day.reserved_usd > 0.97
    open_usd = 0.03 * sum(not permit._is_settled for permit in permits)
    assert day.reserved_usd == pytest.approx(open_usd)
    other.close()


KILLED = """
import os, signal, sys
from vinelm.gateway import KeyBook
book = KeyBook(sys.argv[1])
permits = [book.account(book.find(sys.argv[2])).authorize(0.25) for _ in range(3)]
from vinelm.rows.observation import Usage
permits[0].settle(Usage(model="m", cost_usd=0.05, latency_s=0.0))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.usefixtures("warm_python")
def test_a_killed_processs_reservations_stay_at_their_bound(tmp_path):
    book = KeyBook(tmp_path / "keys.db")
    key = book.add("alice", daily_usd=1.0)
    done = subprocess.run([sys.executable, "-c", KILLED, str(book.path), key], check=False, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert today(book) == {"alice": (0.05, 0.5, 1)}
    account = book.account(book.find(key))
    account.authorize(0.45).close()
    with pytest.raises(CallRefused):
        account.authorize(0.01)
    book.close()


def test_a_rate_is_kept_in_every_minute(book, clock):
    key = book.find(book.add("alice", calls_per_min=2))
    assert [book.wait_s(key), book.wait_s(key)] == [0.0, 0.0]
    clock[0] += 15.0
    assert book.wait_s(key) == 45.0
    clock[0] += 45.0
    assert [book.wait_s(key), book.wait_s(key)] == [0.0, 0.0]
    assert book.wait_s(key) == 60.0
    assert book.wait_s(book.find(book.add("bob"))) == 0.0


def test_a_full_disk_authorizes_nothing_and_frees_nothing(book, caplog):
    account = book.account(book.find(book.add("alice", daily_usd=1.0)))
    permit = account.authorize(0.5)
    pages = book._connection.execute("PRAGMA page_count").fetchone()[0]
    book._connection.execute(f"PRAGMA max_page_count = {pages}")
    book._connection.execute(
        "CREATE TEMP TRIGGER full BEFORE UPDATE ON main.gateway_days BEGIN SELECT RAISE(FAIL, 'disk is full'); END"
    )
    with pytest.raises(CallRefused, match="cannot be written"):
        account.authorize(0.1)
    permit.settle(used(0.1))
    assert "disk is full" in caplog.text
    book._connection.execute("DROP TRIGGER full")
    permit.close()  # it was settled, as far as anybody knows
    assert today(book) == {"alice": (0.0, 0.5, 0)}


@pytest.mark.parametrize("content", [b"no database, and long enough to be none at all" * 30])
def test_what_is_no_file_of_keys_is_one_line(tmp_path, content):
    path = tmp_path / "keys.db"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot hold the gateway's keys"):
        KeyBook(path)
    assert path.read_bytes() == content
    with pytest.raises(ConfigError, match=r"No such file|unable"):
        KeyBook(tmp_path / "none" / "keys.db")


def test_another_programs_database_is_left_alone(tmp_path):
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="another program's database"):
        KeyBook(path)
    assert path.read_bytes() == before


def test_a_file_that_only_others_may_write_authorizes_nothing(book):
    account = book.account(book.find(book.add("alice", daily_usd=1.0)))
    other = sqlite3.connect(book.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    book._connection.execute("PRAGMA busy_timeout = 10")
    with pytest.raises(CallRefused, match="cannot be written"):
        account.authorize(0.1)
    other.execute("ROLLBACK")
    other.close()
    account.authorize(0.1)
    assert int(0.1 * NANO) == 100_000_000
    assert os.path.exists(book.path)

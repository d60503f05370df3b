"""Copies, kills, full disks: what a store says of itself afterwards, and that no row is lost."""

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from kit.servers.loaded_python import LoadedPython

from vinelm.errors import StoreError
from vinelm.requests.workflow import Request
from vinelm.traces import ObservationStore, check_store
from vinelm.traces.databases import database
from vinelm.traces.databases.recovery import OPEN_RUN, recover
from vinelm.traces.databases.schema import SCHEMA_VERSION
from vinelm.traces.testing import a_row, an_identity

RUNNING = """
import signal, sys
from vinelm.traces.store.store import ObservationStore
from vinelm.traces.testing import a_row, an_identity
from vinelm.requests.workflow import Request
store = ObservationStore.create(sys.argv[1], an_identity())
store.register([Request(f"q{i}", {}) for i in range(9)])
with store.exclusive():
    for i in range(5):
        store.add(a_row(f"q{i}"), b"state", reservation=store.reserve(f"q{i}", ("small",), 1.0))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    print("written", flush=True)
    signal.sigwait({signal.SIGUSR1})
store.close()
"""
ROWS = [a_row(f"q{i}") for i in range(5)]


@pytest.fixture(scope="module")
def python(warm_program):
    made = LoadedPython(warm_program, "vinelm.traces.store.store", "vinelm.traces.testing")
    yield made
    made.close()


@pytest.fixture
def live(python, tmp_path):
    """A store in a folder of its own, in the hands of a run that has written five rows."""
    path = tmp_path / "live" / "s.db"
    path.parent.mkdir()
    with python.start(RUNNING, str(path)) as child:
        assert child.stdout.readline() == "written\n"
        yield path, child


def copied(path, folder, *endings):
    folder.mkdir()
    for ending in endings:
        shutil.copy(f"{path}{ending}", folder)
    return folder / path.name


def mark(path):
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT count(*) FROM meta WHERE key = ?", (OPEN_RUN,)).fetchone()
    connection.close()
    return found == (1,)


def test_others_read_while_a_run_writes_and_no_second_run_starts(live):
    path, child = live
    with ObservationStore.open(path) as store:
        assert store.observations() == ROWS
        with (
            pytest.raises(StoreError, match=rf"another run is writing to it \(pid {child.pid} on .+\): wait"),
            store.exclusive(),
        ):
            pass
    assert mark(path)


def test_a_killed_run_leaves_every_row(live):
    path, child = live
    child.send_signal(signal.SIGKILL)
    child.wait()
    with ObservationStore.open(path) as store:
        assert store.observations() == ROWS
    assert not mark(path)
    with ObservationStore.open(path) as store:
        assert store.observations() == ROWS


def test_a_run_that_ends_in_good_order_leaves_no_mark(live):
    path, child = live
    child.send_signal(signal.SIGUSR1)
    child.wait()
    assert not mark(path)


def test_a_copy_with_its_log_has_every_row(live, tmp_path):
    path, _ = live
    copy = copied(path, tmp_path / "copy", "", "-wal")
    with ObservationStore.open(copy, an_identity()) as store:
        assert store.observations() == ROWS
    assert check_store(copy).is_whole


@pytest.mark.parametrize("place", ["where it is", "a copy", "a backup"])
@pytest.mark.parametrize("writes", [False, True])
def test_a_store_that_another_tool_has_looked_into_after_a_kill_opens_with_every_row(live, tmp_path, place, writes):
    """The last to close a SQLite file copies its log into it and removes that: nothing is missing."""
    path, child = live
    child.kill()
    child.wait()
    if place == "a copy":
        path = copied(path, tmp_path / "copy", "", "-wal")
    with closing(sqlite3.connect(path)) as tool:
        assert tool.execute("SELECT count(*) FROM observations").fetchone() == (5,)
        if writes:
            tool.execute("PRAGMA user_version = 1")
            tool.commit()
        if place == "a backup":
            path = tmp_path / "backup.db"
            with closing(sqlite3.connect(path)) as target:
                tool.backup(target)
    assert not path.with_name("s.db-wal").exists()
    assert mark(path)
    with ObservationStore.open(path) as store, store.exclusive():
        assert store.observations() == ROWS
    assert not mark(path)


def test_a_log_that_is_removed_by_hand_is_missed(live):
    path, child = live
    child.kill()
    child.wait()
    path.with_name("s.db-wal").unlink()
    with pytest.raises(StoreError, match="copied during a run without its write-ahead log"):
        ObservationStore.open(path)


def test_a_copy_is_refused_also_when_a_long_log_was_folded_during_the_run(tmp_path, monkeypatch):
    """SQLite would fold it by itself, and leave a file that looks whole and is not."""
    monkeypatch.setattr(database, "_LONG_LOG", 1 << 16)
    path = tmp_path / "s.db"
    with ObservationStore.create(path, an_identity()) as store:
        store.register([Request(f"q{i}", {}) for i in range(300)])
        with store.exclusive():
            sizes = []
            for i in range(300):
                store.add(a_row(f"q{i}"), b"state" * 100, reservation=store.reserve(f"q{i}", ("small",), 1.0))
                sizes.append(path.with_name("s.db-wal").stat().st_size)
                if i % 50 == 0:
                    copy = copied(path, tmp_path / f"copy{i}", "")
                    with pytest.raises(StoreError, match="copied during a run without its write-ahead log"):
                        ObservationStore.open(copy)
            assert sum(after < before for before, after in pairwise(sizes)) > 1  # it was folded, more than once
            assert max(sizes) < 1 << 17
    with ObservationStore.open(path) as store:
        assert len(store) == 300


def test_a_copy_without_its_log_is_refused_until_it_is_accepted(live, tmp_path):
    path, child = live
    copy = copied(path, tmp_path / "copy", "")
    before = copy.read_bytes()
    with pytest.raises(StoreError, match=r"rows are missing: copy s\.db-wal beside it, or accept") as caught:
        ObservationStore.open(copy)
    assert "\n" not in str(caught.value)
    assert copy.read_bytes() == before
    assert [p.name for p in copy.parent.iterdir()] == ["s.db"]
    recover(copy, accept=True)
    with ObservationStore.open(copy) as store:
        assert len(store) < len(ROWS)
    child.kill()
    child.wait()
    with ObservationStore.open(path) as store:
        assert store.observations() == ROWS


def test_a_file_with_a_log_of_another_moment_is_refused(live, tmp_path):
    path, child = live
    copy = copied(path, tmp_path / "copy", "")
    child.kill()
    child.wait()
    with ObservationStore.open(path) as store, store.exclusive():
        store.add_many([a_row(f"p{i}", detail="x" * 900) for i in range(200)])
        store.database.truncate_wal()
        store.add(a_row("last"))
        shutil.copy(f"{path}-wal", f"{copy}-wal")
    with pytest.raises(StoreError, match=r"do not match|malformed"):
        ObservationStore.open(copy)


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9])
def test_a_truncated_file_is_one_line(tmp_path, keep):
    path = tmp_path / "s.db"
    with ObservationStore.create(path, an_identity()) as store:
        store.add_many(a_row(f"q{i}", detail="x" * 500) for i in range(200))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(StoreError, match="malformed: the file is damaged: restore it from a copy") as caught:
        ObservationStore.open(path)
    assert "\n" not in str(caught.value)
    assert not check_store(path).is_whole


def fill_up(store, rows):
    """Add rows until the disk is full; those that were kept."""
    kept = []

    def add_all():
        for i in range(rows):
            entry = store.reserve(f"q{i}", ("small",), 1.0)
            store.add(a_row(f"q{i}", detail="x" * 2000), os.urandom(3000), reservation=entry)
            kept.append(f"q{i}")

    with pytest.raises(StoreError, match="free some space and resume: every row stored so far is kept") as caught:
        add_all()
    assert "\n" not in str(caught.value)
    assert "xxx" not in str(caught.value)
    return kept


def test_a_full_disk_loses_nothing_and_the_store_goes_on_once_there_is_room(tmp_path):
    path = tmp_path / "s.db"
    with ObservationStore.create(path, an_identity()) as store:
        store.register([Request(f"q{i}", {}) for i in range(500)])
        raw = store.database._connection.connection.driver_connection
        raw.execute("PRAGMA max_page_count = 60")
        kept = fill_up(store, 500)
        assert 0 < len(kept) < 500
        assert [row.request_id for row in store.observations()] == kept
        raw.execute("PRAGMA max_page_count = 100000")
        store.add(a_row("q499"))
    with ObservationStore.open(path) as store:
        assert [row.request_id for row in store.observations()] == [*kept, "q499"]
        assert store.checkpoint("q0", ("small",)) is not None
    assert check_store(path).is_whole


FILLING = """
import os, resource, sys
from vinelm.errors import StoreError
from vinelm.traces.store.store import ObservationStore
from vinelm.traces.testing import a_row, an_identity
store = ObservationStore.create(sys.argv[1], an_identity())
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
kept = 0
try:
    with store.exclusive():
        for i in range(500):
            store.add(a_row(f"q{i}", detail="x" * 2000), os.urandom(3000))
            kept = i + 1
except StoreError as error:
    print(kept, error)
store.close()
"""


def test_a_disk_that_stops_taking_bytes_loses_nothing(tmp_path):
    """The kernel refuses the write itself, in the log or while it is folded back."""
    path = tmp_path / "s.db"
    done = subprocess.run([sys.executable, "-c", FILLING, str(path)], capture_output=True, text=True, check=False, timeout=60)
    count, _, words = done.stdout.partition(" ")
    assert int(count) > 0, done.stderr
    assert "every row stored so far is kept" in words
    with ObservationStore.open(path) as store:
        assert [row.request_id for row in store.observations()] == [f"q{i}" for i in range(int(count))]
        with store.exclusive():
            store.add(a_row("more"))
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_folder_is_one_line(tmp_path):
    path = tmp_path / "folder" / "s.db"
    path.parent.mkdir()
    ObservationStore.create(path, an_identity()).close()
    path.parent.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="writable"):
            ObservationStore.open(path).add(a_row())
    finally:
        path.parent.chmod(0o700)


@pytest.mark.parametrize(
    "limit", [pytest.param(120_000, marks=pytest.mark.long), 245_000, pytest.param(370_000, marks=pytest.mark.long)]
)
def test_a_full_disk_is_no_copy_without_its_log(tmp_path, limit):
    """The disk refuses even the deletion of the run's marker; SQLite then folds the log back and deletes it."""
    path = tmp_path / "s.db"
    code = FILLING.replace("400_000", str(limit))
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True, timeout=60)
    count = int(done.stdout.split()[0])
    assert count > 0
    assert not path.with_name("s.db-wal").exists()
    with ObservationStore.open(path) as store:
        assert [row.request_id for row in store.observations()] == [f"q{i}" for i in range(count)]


STAYS_FULL = """
import sys
from vinelm.errors import StoreError
from vinelm.traces.databases.database import Database
from vinelm.traces.store.store import ObservationStore
from vinelm.traces.testing import a_row, an_identity
def refuse(self):
    raise StoreError("full")
Database._delete_marker = refuse
with ObservationStore.create(sys.argv[1], an_identity()) as store, store.exclusive():
    store.add(a_row())
"""


@pytest.mark.long
def test_a_disk_that_stays_full_leaves_a_note_that_only_its_own_store_may_use(tmp_path):
    path, other = tmp_path / "s.db", tmp_path / "other.db"
    for store in (path, other):
        subprocess.run([sys.executable, "-c", STAYS_FULL, str(store)], check=True, timeout=60)
        assert mark(store)
        assert not store.with_name(f"{store.name}-wal").exists()
    shutil.copy(f"{other}.lock", f"{path}.lock")
    with pytest.raises(StoreError, match="copied during a run without its write-ahead log"):
        ObservationStore.open(path)
    with ObservationStore.open(other) as store:
        assert store.observations() == [a_row()]
    assert not mark(other)


READS = """
import ctypes, os, sys
from pathlib import Path
path = Path(sys.argv[1])
from vinelm.cli.main import main
from vinelm.traces import ObservationStore, check_store, contents_of
if os.geteuid() == 0:  # without its capabilities root is an ordinary user
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0
with ObservationStore.open(path) as store:
    print(len(store), contents_of(store).version, check_store(path).is_whole)
print(main(["store", "info", str(path)]), main(["store", "check", str(path)]), sorted(p.name for p in path.parent.iterdir()))
"""


@pytest.mark.parametrize(
    "state", ["log", "read-only file", *(pytest.param(one, marks=pytest.mark.long) for one in ("folded", "old"))]
)
def test_a_store_is_read_where_nothing_may_be_written(tmp_path, live, state):
    path, child = live
    folder, endings = tmp_path / "read only", [""]
    if state == "log":
        child.kill()
        child.wait()
        endings = ["", "-wal"]
    elif state == "old":
        path = Path(__file__).parents[1] / "data" / "v1.sqlite-fixture"
    else:
        child.send_signal(signal.SIGUSR1)
        child.wait()
    copy = copied(path, folder, *endings)
    copy.chmod(0o444)
    folder.chmod(0o755 if state == "read-only file" else 0o555)
    try:
        done = subprocess.run([sys.executable, "-c", READS, str(copy)], capture_output=True, text=True, check=False, timeout=60)
    finally:
        folder.chmod(0o755)
    rows = 3 if state == "old" else len(ROWS)
    assert done.stdout.startswith(f"{rows} {SCHEMA_VERSION} True\n"), done.stderr
    assert done.stdout.strip().endswith(f"0 0 {sorted(copy.name + ending for ending in endings)}")  # nothing new beside it
    assert f"{rows} rows" in done.stdout
    assert "no damage" in " ".join(done.stdout.split())

"""The lock of a run: one holder at a time, whatever happens to its file, and no file afterwards."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vinelm.errors import StoreError
from vinelm.profiler.execution.ledger import Ledger
from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.traces import ObservationStore
from vinelm.traces.databases import lock as lock_module
from vinelm.traces.databases.lock import holder, run_lock
from vinelm.traces.testing import an_identity

HOLDS = """
import sys
from pathlib import Path
from vinelm.traces.databases.lock import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_leaves_the_store_and_nothing_else(tmp_path):
    with ObservationStore.create(tmp_path / "s.db", an_identity()) as store, store.exclusive():
        assert "s.db.lock" in names(tmp_path)
        assert (holder(store.path) or "").startswith(f"pid {os.getpid()} on ")
    assert names(tmp_path) == ["s.db"]
    assert holder(tmp_path / "s.db") is None


def test_a_run_that_raises_leaves_no_lock_either(tmp_path):
    with pytest.raises(ZeroDivisionError), run_lock(tmp_path / "s.db"):
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_the_file_of_a_killed_run_is_taken_over_and_removed(tmp_path):
    path = tmp_path / "s.db"
    with subprocess.Popen([sys.executable, "-c", HOLDS, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(StoreError, match=rf"another run is writing to it \(pid {child.pid} on "), run_lock(path):
            pass
        child.send_signal(signal.SIGKILL)
    assert names(tmp_path) == ["s.db.lock"]
    assert holder(path) is None
    with run_lock(path):
        assert (holder(path) or "").startswith(f"pid {os.getpid()} on ")
    assert names(tmp_path) == []


def test_a_file_that_was_removed_between_open_and_lock_is_no_lock(tmp_path, monkeypatch):
    """The holder unlinks after this process opened the file and before it locks it: the lock would guard no name."""
    path, locked = tmp_path / "s.db", []

    def lock(descriptor: int, *, is_shared: bool = False) -> bool:
        locked.append(os.fstat(descriptor).st_ino)
        if len(locked) == 1:
            os.rename(f"{path}.lock", tmp_path / "kept inode")  # so that the next file has another inode
        return True

    monkeypatch.setattr(lock_module, "lock", lock)
    with run_lock(path):
        assert len(locked) == 2
        assert os.stat(f"{path}.lock").st_ino == locked[1] != locked[0]


def test_a_forked_child_that_ends_leaves_the_lock_to_its_parent(tmp_path):
    path = tmp_path / "s.db"
    with run_lock(path) as held:
        child = os.fork()
        if child == 0:
            held.release()
            os._exit(0)
        os.waitpid(child, 0)
        assert holder(path) is not None
        with pytest.raises(StoreError, match="another run is writing"), run_lock(path):
            pass
    assert names(tmp_path) == []


def contend(path: Path, turns: int) -> int:
    """Take the lock again and again; the number of times it was held. Fails if two processes hold it at a time."""
    held = 0
    for _ in range(turns):
        try:
            with run_lock(path):
                inside = os.open(f"{path}.inside", os.O_CREAT | os.O_EXCL)
                os.close(inside)
                os.unlink(f"{path}.inside")
                held += 1
        except StoreError:
            pass
    return held


def test_processes_that_contend_never_hold_it_at_a_time(tmp_path):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        held = pool.starmap(contend, [(tmp_path / "s.db", 300)] * 4)
    assert sum(held) >= 100
    assert names(tmp_path) == []


def test_a_lock_whose_file_was_removed_is_lost_and_the_run_is_told_before_it_buys(tmp_path):
    path = tmp_path / "s.db"
    with ObservationStore.create(path, an_identity()) as store, store.exclusive():
        ledger = Ledger(store, ProfileLimits(budget_usd=1.0))
        ledger.reserve("a", (), 0.1)
        lock = tmp_path / "s.db.lock"
        lock.unlink()
        with ObservationStore.open(path) as other, other.exclusive():
            with pytest.raises(StoreError, match="was removed while this run held the store") as caught:
                ledger.reserve("b", (), 0.1)
            assert "\n" not in str(caught.value)
            assert lock.exists()
    assert not lock.exists()


def test_a_run_that_ends_does_not_remove_the_lock_of_another(tmp_path):
    path = tmp_path / "s.db"
    with ObservationStore.create(path, an_identity()) as store, ObservationStore.open(path) as other:
        with store.exclusive():
            (tmp_path / "s.db.lock").unlink()
            held = other.exclusive()
            held.__enter__()
        with pytest.raises(StoreError, match="another run is writing to it"), store.exclusive():
            pass
        held.__exit__(None, None, None)

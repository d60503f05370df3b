"""Ctrl-C: the units in flight are waited for and written; a second one does not wait; either way the ledger is settled."""

import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from kit.toys.profiling import ToyBackend, catalog_for, new_store, toy

from vinelm.profiler import ProfileSettings, profile

CODE = """
import sys, time
from kit.toys.profiling import *
from vinelm.profiler import ProfileSettings
from vinelm.profiler.runner import profile
from vinelm.profiler import WorkflowSource
from vinelm.profiler import ExecutionConfig
path, isolation, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
mischief = {f"q{i}/m{m}": seconds for i in range(2, 6) for m in range(2)}
source = WorkflowSource(function="kit.toys.profiling:load", arguments={"mischief": mischief, "n_requests": 6})
loaded = source.load()
place = ExecutionConfig(isolation=isolation, workers=3, source=source)
def tell(progress):
    print("draining" if progress.is_draining else "row", flush=True)
with new_store(path, loaded.workflow, loaded.backends["test"]) as store:
    given = (loaded.workflow, loaded.catalog, loaded.backends, store)
    result = profile(*given, ProfileSettings(execution=place, sampler="exhaustive", on_progress=tell))
    print(result.stopped_by, store.abandon_open(), flush=True)
"""


@pytest.mark.parametrize(
    ("number", "times", "isolation"),
    [
        ("SIGINT", 1, "process"),
        ("SIGINT", 2, "thread"),
        pytest.param("SIGINT", 1, "thread", marks=pytest.mark.long),
        pytest.param("SIGINT", 2, "process", marks=pytest.mark.long),
        ("SIGTERM", 1, "process"),  # the others are heard in the same place
        pytest.param("SIGTERM", 2, "thread", marks=pytest.mark.long),
        ("SIGHUP", 1, "thread"),
        pytest.param("SIGHUP", 2, "process", marks=pytest.mark.long),
    ],
)
def test_a_signal_ends_the_run_in_good_order(tmp_path, isolation, times, number, python):
    seconds = "0.5" if times == 1 else "600"
    heeded = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # the tests themselves may run under nohup
    with python.start(heeded + CODE, str(tmp_path / "s.db"), isolation, seconds) as child:
        until(child, "row", 14)  # q0 and q1 are fast, then three units in flight are slow
        family = descendants(child.pid)
        child.send_signal(signal.Signals[number])
        until(child, "draining", 1)
        if times == 2:
            child.send_signal(signal.Signals[number])
        said = [line.strip() for line in child.stdout]
        assert child.wait(30) == 0
    assert said[-1] == "interrupted 0"
    assert bool(family) == (isolation == "process")
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in family) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [pid for pid in family if Path(f"/proc/{pid}").exists()]
    workflow = toy(n_requests=6)
    whole = tmp_path / "whole.db"
    rows = {}
    for path in (whole, tmp_path / "s.db"):
        with new_store(path, workflow) as store:
            before = store.observations()
            profile(workflow, catalog_for(workflow), {"test": ToyBackend()}, store, ProfileSettings(sampler="exhaustive"))
            rows[path] = sorted(store.observations(), key=lambda row: (row.request_id, row.prefix))
    assert rows[whole] == rows[tmp_path / "s.db"]
    assert 14 <= len(before) < len(rows[whole])


def test_a_signal_that_comes_while_a_run_ends_for_a_look_stops_it(tmp_path, python):
    """Else whoever called it would look, and buy on."""
    signalled = """
import itertools, os, signal
told = itertools.count(1)
def tell(progress):
    if next(told) == 14:  # its row is the last before the look
        os.kill(os.getpid(), signal.SIGINT)
def ignored(progress):"""
    look = 'sampler="exhaustive", look=Look(1e-9, usd=0.0, least_rows=14)'
    code = CODE.replace("def tell(progress):", signalled.lstrip(), 1).replace('sampler="exhaustive"', look)
    code = code.replace("ProfileSettings\n", "Look, ProfileSettings\n", 1)
    with python.start(code, str(tmp_path / "s.db"), "thread", "0") as child:
        said = [line.strip() for line in child.stdout]
        assert child.wait(30) == 0
    assert said[-1] == "interrupted 0"


def test_a_signal_that_is_ignored_stays_ignored(tmp_path, python):
    """As under ``nohup``."""
    code = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + CODE
    with python.start(code, str(tmp_path / "s.db"), "thread", "0.3") as child:
        until(child, "row", 14)
        child.send_signal(signal.SIGHUP)
        said = [line.strip() for line in child.stdout]
        assert child.wait(30) == 0
    assert said[-1] == "complete 0"


def test_a_second_signal_is_heard_where_its_exception_is_lost(tmp_path, python):
    """A collection of garbage may be under way when it comes, and what is raised in there goes nowhere."""
    collecting = """
import gc, os, signal, threading
def second(phase, info):
    if threading.current_thread() is threading.main_thread() and time.monotonic() > due and gc.callbacks:
        gc.callbacks.clear()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)  # the handler runs here, and its exception is lost
def tell(progress):
    global due
    print("draining" if progress.is_draining else "row", flush=True)
    if progress.is_draining:
        due = time.monotonic() + 0.5  # by then it waits for the units in flight
        gc.callbacks.append(second)
        gc.set_threshold(1)
"""
    code = CODE.replace("with new_store", collecting + "with new_store", 1)
    with python.start(code, str(tmp_path / "s.db"), "thread", "600") as child:
        until(child, "row", 14)
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 0  # the units in flight take ten minutes
        said = child.stdout.read()
    assert said.endswith("interrupted 0\n")


def descendants(pid):
    children = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread or process that has ended meanwhile
            children += map(int, path.read_text().split())
    return children + [grandchild for child in children for grandchild in descendants(child)]


def until(child, word, n):
    for line in child.stdout:
        n -= line.strip() == word
        if n == 0:
            return
    raise AssertionError(f"it ended before {word}")

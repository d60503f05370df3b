"""The writer of served rows: nothing is lost or doubled, whatever ends it."""

import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace

import pytest

from vinelm.catalog import Catalog
from vinelm.rows.observation import Observation
from vinelm.template import Stage, Template
from vinelm.traces import ObservationStore, ServedStore, StoreIdentity
from vinelm.traces.served.writer import EvidenceWriter, Feedback

PRICE = {"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2025-06-01"}
MODELS = Catalog.from_dict({"model": [{"name": "a", "provider": "simulated", "model": "a", "price": PRICE}]})
IDENTITY = StoreIdentity(
    workflow="toy", template=Template((Stage("answer", ("a",)),)).to_dict(), catalog=MODELS.to_dict(), dataset_digest="served",
    fingerprint={}, is_simulated=True,
)  # fmt: skip


def row(number: int) -> Observation:
    return Observation(
        request_id=f"r{number}", prefix=("a",), stage="answer", success=None, stopped=True, cost_usd=0.1, latency_s=1.0
    )


def stored(path):
    with ObservationStore.open(path) as store:
        return store.observations()


def test_rows_are_written_in_order_and_each_cell_once(tmp_path):
    seen = []
    writer = EvidenceWriter(tmp_path / "s.db", IDENTITY, on_rows=seen.extend)
    for number in range(1000):
        writer.put(row(number))
        writer.put(replace(row(number), latency_s=9.0))
    assert writer.flush()
    assert stored(tmp_path / "s.db") == [row(number) for number in range(1000)]
    assert (writer.written, writer.dropped, writer.waiting) == (1000, 0, 0)
    assert len(seen) == 2000
    assert writer.close()
    writer.put(row(1000))
    assert writer.close()
    assert len(stored(tmp_path / "s.db")) == 1001


def test_a_hook_that_raises_costs_no_row(tmp_path, caplog):
    def hook(rows):
        raise KeyError

    writer = EvidenceWriter(tmp_path / "s.db", IDENTITY, on_rows=hook)
    writer.put(row(0))
    assert writer.close()
    assert len(stored(tmp_path / "s.db")) == 1
    assert "the drift hook raised KeyError" in caplog.text


def test_the_end_of_the_process_writes_what_waits(tmp_path):
    script = textwrap.dedent(f"""
        import sys
        sys.path[:0] = [{os.path.dirname(__file__)!r}]
        from pathlib import Path
        from test_writer import EvidenceWriter, IDENTITY, row
        from vinelm.traces.served.writer import Feedback
        writer = EvidenceWriter(Path({str(tmp_path / "s.db")!r}), IDENTITY)
        for number in range(300):
            writer.put(row(number))
        writer.put(Feedback("r299", True))
    """)
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    rows = stored(tmp_path / "s.db")
    assert len(rows) == 300
    assert rows[-1].success is True


def test_feedback_goes_to_the_last_row_that_did_not_fail(tmp_path):
    with ServedStore(tmp_path / "s.db", IDENTITY) as store:
        store.add([row(0), replace(row(1), failure="timeout", stopped=None)])
        assert store.set_success("r0", 0.5)
        assert not store.set_success("r1", True)
        assert not store.set_success("r2", True)
    assert [one.success for one in stored(tmp_path / "s.db")] == [0.5, None]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_its_own_rows(tmp_path):
    script = textwrap.dedent(f"""
        import os, sys
        sys.path[:0] = [{os.path.dirname(__file__)!r}]
        from pathlib import Path
        from test_writer import EvidenceWriter, IDENTITY, row
        writer = EvidenceWriter(Path({str(tmp_path / "s.db")!r}), IDENTITY)
        if os.fork() == 0:
            writer.put(row(1))
        else:
            writer.put(row(2))
            os.wait()
    """)
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
    assert {one.request_id for one in stored(tmp_path / "s.db")} == {"r1", "r2"}


POISONED = {
    "a lone surrogate": {"request_id": "\ud800"},
    "a lone surrogate in a stage": {"stage": "\udfff"},
    "a lone surrogate in a detail": {"failure": "unknown", "detail": "\ud800", "stopped": None},
    "too large a number": {"tokens_in": 2**70},
    "an object": {"signal": object()},
}


@pytest.mark.parametrize("kind", POISONED)
def test_a_row_that_the_store_refuses_is_set_aside_and_the_others_are_written(tmp_path, caplog, kind):
    writer = EvidenceWriter(tmp_path / "s.db", IDENTITY)
    for number in range(46):
        writer.put(replace(row(number), **POISONED[kind]) if number == 7 else row(number))
    writer.put(Feedback("\ud800", True))
    writer.put(Feedback("r8", True))
    assert writer.flush()
    writer.put(row(50))
    assert not writer.close() or writer.refused
    rows = stored(tmp_path / "s.db")
    assert {one.request_id for one in rows} == {f"r{number}" for number in (*range(46), 50) if number != 7}
    assert [one.success for one in rows if one.request_id == "r8"] == [True]
    assert (writer.written, writer.refused, writer.dropped, writer.waiting) == (46, 2, 2, 0)
    assert len([line for line in caplog.messages if "the row of the run" in line]) == 1  # named once
    assert all(line.isascii() for line in caplog.messages)


def test_a_store_that_is_locked_is_no_reason_to_set_rows_aside(tmp_path, monkeypatch):
    monkeypatch.setattr("vinelm.traces.databases.database._BUSY_TIMEOUT_S", 0.05)
    monkeypatch.setattr("vinelm.traces.served.writer.RETRY_S", 0.05)
    ServedStore(tmp_path / "s.db", IDENTITY).close()
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writer = EvidenceWriter(tmp_path / "s.db", IDENTITY)
    for number in range(20):
        writer.put(replace(row(number), request_id="\ud800") if number == 3 else row(number))
    assert not writer.flush(1.0)
    assert writer.refused == 0
    other.execute("COMMIT")
    assert writer.flush()
    assert (writer.written, writer.refused) == (19, 1)
    other.close()


def test_what_is_deferred_makes_its_rows_in_the_thread(tmp_path):
    writer = EvidenceWriter(tmp_path / "s.db", IDENTITY)
    threads = []

    def finish():
        threads.append(threading.current_thread().name)
        writer.put(row(1))

    writer.defer(finish)  # as a finalizer does: it starts nothing
    assert threads == []
    writer.put(row(0))
    assert writer.flush()
    assert threads == ["vinelm-evidence"]
    assert {one.request_id for one in stored(tmp_path / "s.db")} == {"r0", "r1"}
    assert writer.close()


ENDS = {
    "a thread that still serves": "threading.Thread(target=lambda: (time.sleep(0.5), [w.put(row(n)) for n in range(5)]))"
    ".start()",
    "an exit handler that runs last": "EARLY.append(lambda: [w.put(row(n)) for n in range(5)])",
    "an object in a cycle": "class A: pass\na = A(); a.a = a; import weakref\n"
    "weakref.finalize(a, w.defer, lambda: [w.put(row(n)) for n in range(5)]).atexit = False; del a; gc.collect()",
    "an unhandled exception": "[w.put(row(n)) for n in range(5)]; 1 / 0",
    "sys.exit": "[w.put(row(n)) for n in range(5)]; sys.exit(0)",
    "a worker process": "[w.close()]; import multiprocessing as m; c = m.get_context('fork')\n"
    "p = c.Process(target=lambda: [w.put(row(n)) for n in range(5)]); p.start(); p.join()",
    "an interrupt": "[w.put(row(n)) for n in range(5)]; import signal; signal.raise_signal(signal.SIGINT)",
}


@pytest.mark.long
@pytest.mark.parametrize("how", ENDS)
def test_a_process_ends_and_its_rows_are_written(tmp_path, how):
    script = textwrap.dedent(f"""
        import atexit
        EARLY = []
        atexit.register(lambda: [one() for one in EARLY])
        import gc, sys, threading, time
        sys.path[:0] = {[os.path.dirname(__file__)]!r}
        from test_writer import IDENTITY, row
        from vinelm.traces.served.writer import EvidenceWriter
        from pathlib import Path
        w = EvidenceWriter(Path({str(tmp_path / "s.db")!r}), IDENTITY)
        w.start()
    """)
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script + ENDS[how]], timeout=60, capture_output=True, text=True, check=False)
    assert time.monotonic() - started < 50, done.stderr
    assert "can't start new thread" not in done.stderr
    assert {one.request_id for one in stored(tmp_path / "s.db")} == {f"r{n}" for n in range(5)}, done.stderr

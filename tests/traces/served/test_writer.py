"""The writer of served rows: nothing is lost or doubled, whatever ends it."""

import os
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

from vinelm.catalog import Catalog
from vinelm.observation import Observation
from vinelm.template import Stage, Template
from vinelm.traces import EvidenceWriter, ObservationStore, ServedStore, StoreIdentity

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
        from vinelm.traces import Feedback
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

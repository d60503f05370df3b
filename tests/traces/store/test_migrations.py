"""Old stores open, and a death in the middle leaves the old version or the new one."""

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vinelm.errors import StoreError
from vinelm.traces import ObservationStore
from vinelm.traces.databases import migrations
from vinelm.traces.databases.schema import SCHEMA_VERSION
from vinelm.traces.testing import a_row, an_identity

OLD = {version: Path(__file__).parents[1] / "data" / f"v{version}.sqlite-fixture" for version in range(1, SCHEMA_VERSION)}


def shape(path):
    """Every table and index as SQLite sees it, free of layout and quoting."""
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
    connection.close()
    return [(kind, name, re.sub(r"\s*([(),])\s*", r"\1", re.sub(r"\s+", " ", sql or ""))) for kind, name, sql in found]


def version_of(path):
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    (value,) = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    connection.close()
    return int(value)


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "store.db"
    shutil.copy(OLD[1], path)
    return path


def test_there_is_a_step_and_a_file_of_every_old_version():
    assert sorted(migrations.STEPS) == sorted(OLD)
    assert all(path.exists() for path in OLD.values())


@pytest.mark.parametrize("version", OLD)
def test_an_old_store_opens_with_everything_in_it(tmp_path, version):
    path = tmp_path / "store.db"
    shutil.copy(OLD[version], path)
    assert version_of(path) == version
    with ObservationStore.open(path, an_identity()) as store:
        rows = store.observations()
        assert rows[0] == a_row()
        assert rows[1] == a_row("q1", ("small", "large"), success=True, cost_usd=0.5, tokens_in=10, tokens_out=3, ttft_s=0.2)
        assert rows[2].failure == "timeout"
        assert store.checkpoint("q1", ("small",)) == b"state after small"
        assert store.request_ids() == ["q1", "q2", "frage ü"]
        assert store.committed_usd() == 0.25 + 0.5 + 1.0 + 0.25 + 4.0
        store.add(a_row("q2"))
    assert version_of(path) == SCHEMA_VERSION
    with ObservationStore.open(path) as store:
        assert len(store) == 4


def test_a_migrated_store_has_the_tables_of_a_new_one(tmp_path, old):
    ObservationStore.open(old).close()
    ObservationStore.create(tmp_path / "new.db", an_identity()).close()
    assert shape(old) == shape(tmp_path / "new.db")


def test_a_step_that_fails_leaves_the_old_version(old, monkeypatch):
    before = shape(old)
    monkeypatch.setitem(migrations.STEPS, 1, (*migrations.STEPS[1], "CREATE TABLE sources (nonsense"))
    with pytest.raises(StoreError):
        ObservationStore.open(old)
    assert version_of(old) == 1
    assert shape(old) == before
    monkeypatch.undo()
    with ObservationStore.open(old) as store:
        assert len(store) == 3


def test_a_version_without_a_way_forward_is_one_line(old, monkeypatch):
    monkeypatch.delitem(migrations.STEPS, 1)
    with pytest.raises(StoreError, match="store version 1 is no longer supported"):
        ObservationStore.open(old)
    assert version_of(old) == 1


def test_a_store_in_a_runs_hands_is_not_migrated(old):
    with ObservationStore.open(old) as store:
        connection = sqlite3.connect(old)
        with connection:
            connection.execute("UPDATE meta SET value = '1' WHERE key = 'schema_version'")
        connection.close()
        with store.exclusive(), pytest.raises(StoreError, match=f"another run is writing to it .pid {os.getpid()} on"):
            ObservationStore.open(old)


DYING = """
import os, signal, sys
from pathlib import Path
from vinelm.traces.databases.migrations import migrate
path, at = Path(sys.argv[1]), int(sys.argv[2])
from sqlalchemy import event, Engine
seen = 0
@event.listens_for(Engine, "before_cursor_execute")
def die(connection, cursor, statement, *rest):
    global seen
    if seen == at:
        os.kill(os.getpid(), signal.SIGKILL)
    seen += 1
migrate(path)
"""


@pytest.mark.parametrize("at", range(5))
def test_a_kill_between_two_statements_leaves_the_old_version(old, at):
    """BEGIN counts too: the fifth statement is the one that notes the new version."""
    before = shape(old)
    done = subprocess.run([sys.executable, "-c", DYING, str(old), str(at)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert version_of(old) == 1
    assert shape(old) == before
    with ObservationStore.open(old) as store:
        assert len(store) == 3


LONG = """
import sys
from pathlib import Path
from vinelm.traces.databases import migrations
one = migrations.STEPS[1]
fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) " \\
    "INSERT INTO sources (kind, name, digest, row_count, added_at) SELECT 'x', hex(randomblob(40)), 'd', i, 'now' FROM n"
migrations.STEPS[1] = (*one, fill)
print("go", flush=True)
migrations.migrate(Path(sys.argv[1]))
print("done", flush=True)
"""


@pytest.mark.long
def test_a_kill_at_any_moment_leaves_the_old_version_or_the_new(tmp_path):
    """The parent kills a long migration at random times: in statements, in the commit, while the log is folded back."""
    seen = set()
    clock = random.Random(7)
    for turn in range(6):
        path = tmp_path / f"store{turn}.db"
        shutil.copy(OLD[1], path)
        child = subprocess.Popen([sys.executable, "-c", LONG, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "go\n"
        if turn == 0:
            assert child.stdout.readline() == "done\n"  # to the end
        else:
            time.sleep(clock.uniform(0, 0.25))
        child.kill()
        child.wait()
        child.stdout.close()
        version = version_of(path)
        seen.add(version)
        connection = sqlite3.connect(path)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        has_table = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'sources'").fetchone() == (1,)
        assert has_table == (version == SCHEMA_VERSION)
        if has_table:
            assert connection.execute("SELECT count(*) FROM sources").fetchone() == (60000,)
        connection.close()
        with ObservationStore.open(path) as store:
            assert len(store) == 3
    assert SCHEMA_VERSION in seen
    assert seen <= {1, SCHEMA_VERSION}

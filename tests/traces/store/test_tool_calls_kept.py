"""Tool calls in merged, exported and checked stores."""

import json
import sqlite3
from contextlib import closing

import pytest
from kit.tool_sessions import a_session

from vinelm.cli.main import main
from vinelm.errors import DatasetError
from vinelm.tools.call import ToolSession
from vinelm.traces import ObservationStore, check_store, contents_of, export_store, import_export, merge_stores
from vinelm.traces.imports.export_import import side_file
from vinelm.traces.testing import an_identity
from vinelm.traces.tools.tool_calls import ToolCalls


def a_store(path, *sessions):
    with ObservationStore.create(path, an_identity()) as store:
        ToolCalls(store).add(sessions, {"get_user"})
    return path


def sessions_in(path):
    with ObservationStore.open(path) as store:
        return ToolCalls(store).sessions()


def session(name, number=1, length=None):
    return ToolSession(name, name, a_session(number)[:length])


def test_a_merge_has_each_session_once_and_the_longer_of_two_copies(tmp_path):
    one = a_store(tmp_path / "a.db", session("r1", 1), session("r2", 2, length=3))
    other = a_store(tmp_path / "b.db", session("r1", 1), session("r2", 2), session("r3", 3))
    merge_stores([one, other], tmp_path / "c.db")
    merge_stores([other, one], tmp_path / "d.db")
    wanted = [session("r1", 1), session("r2", 2), session("r3", 3)]
    for name in ("c.db", "d.db"):
        found, reads = sessions_in(tmp_path / name)
        assert [(s.name, s.group, len(s.events)) for s in found] == [(s.name, s.group, len(s.events)) for s in wanted]
        assert reads == {"get_user"}


def test_a_request_that_was_recorded_twice_is_kept_twice_in_one_group(tmp_path):
    one = a_store(tmp_path / "a.db", session("r1", 1))
    other = a_store(tmp_path / "b.db", session("r1", 2))
    merge_stores([one, other], tmp_path / "c.db")
    found, _ = sessions_in(tmp_path / "c.db")
    assert [(s.name, s.group) for s in found] == [("r1", "r1"), ("r1 (2)", "r1")]
    merge_stores([tmp_path / "c.db", other, one], tmp_path / "d.db")  # nothing new
    assert sessions_in(tmp_path / "d.db")[0] == found
    third = a_store(tmp_path / "e.db", session("r1", 3))
    merge_stores([third, tmp_path / "d.db"], tmp_path / "f.db")  # one of which was merged itself
    both, _ = sessions_in(tmp_path / "f.db")
    assert sorted(len(s.events) for s in both) == sorted(len(a_session(number)) for number in (1, 2, 3))
    assert {s.group for s in both} == {"r1"}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_export_gives_the_calls_back(tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path, table = a_store(tmp_path / "a.db", session("r1", 1), session("r2", 2)), tmp_path / f"rows{suffix}"
    with ObservationStore.open(path) as store:
        export_store(store, table)
    import_export(table, tmp_path / "b.db")
    assert sessions_in(tmp_path / "b.db") == sessions_in(path)


def test_an_export_with_something_else_in_place_of_calls_is_refused(tmp_path):
    path, table = a_store(tmp_path / "a.db", session("r1", 1)), tmp_path / "rows.csv"
    with ObservationStore.open(path) as store:
        export_store(store, table)
    document = json.loads(side_file(table).read_text())
    document["tool_calls"][0]["ended_s"] = "soon"
    side_file(table).write_text(json.dumps(document))
    with pytest.raises(DatasetError, match=r"its tool calls are none \(seconds or dollars") as error:
        import_export(table, tmp_path / "b.db")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "b.db").exists()


def test_info_and_check_know_of_them(tmp_path, capsys):
    path = a_store(tmp_path / "a.db", session("r1", 1), session("r2", 2))
    calls = sum(not isinstance(event, str) for one in (1, 2) for event in a_session(one))
    with ObservationStore.open(path) as store:
        assert contents_of(store).tools == {"sessions": 2, "calls": calls, "unused": 0, "with_values": calls}
    assert main(["store", "info", str(path)]) == 0
    assert f"Tool calls: {calls} of 2 sessions, {calls} of them with values." in capsys.readouterr().out
    assert check_store(path).is_whole
    assert check_store(path).tool_calls == calls


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("ended_s = -1", "it ends before it starts"),
        ("kind = 'guessed'", "unknown kind 'guessed'"),
        ("result = '{'", "result are not valid JSON"),
    ],
)
def test_check_finds_calls_that_cannot_be_true(tmp_path, change, says):
    path = a_store(tmp_path / "a.db", session("r1", 1))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE tool_calls SET {change} WHERE seq = 1")
    found = check_store(path)
    assert not found.is_whole
    assert says in found.findings[0].first

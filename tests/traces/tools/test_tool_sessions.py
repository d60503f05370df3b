"""Recorded sessions of tools: logs of messages, and a store."""

import json

import pytest
from kit.tool_sessions import a_session, shop_sessions, write_log

from vinelm.errors import DatasetError
from vinelm.tools.call import ToolEvent, ToolSession
from vinelm.traces import ObservationStore
from vinelm.traces.testing import an_identity
from vinelm.traces.tools.message_log import read_sessions
from vinelm.traces.tools.tool_calls import ToolCalls


def plain(events):
    return [one if isinstance(one, str) else (one.tool, one.key, one.arguments, one.result, one.is_ok) for one in events]


def test_a_log_of_messages_gives_the_calls_back(tmp_path):
    sessions = shop_sessions(3)
    found = read_sessions(write_log(tmp_path / "log.jsonl", sessions))
    assert [one.name for one in found] == ["s0", "s1", "s2"]
    assert [plain(one.events) for one in found] == [plain(one) for one in sessions]


def test_other_forms_of_messages(tmp_path):
    path = tmp_path / "traj.json"
    call = {"name": "get_user", "args": {"id": 7}, "id": "x"}
    traj = [
        {"type": "human", "content": [{"type": "text", "text": "hi"}]},
        {"type": "ai", "content": "", "tool_calls": [call, {"name": "lost", "args": {}, "id": "y"}]},
        {"type": "tool", "tool_call_id": "x", "content": "Error: no such user"},
    ]
    path.write_text(json.dumps([{"task_id": 5, "traj": traj}, {"task_id": 5, "traj": []}]))
    first, second = read_sessions(path)
    assert (first.group, second.group) == ("5", "5")
    assert first.name != second.name
    (text, event) = first.events
    assert text == "hi"
    assert (event.tool, event.is_ok, event.result) == ("get_user", False, "Error: no such user")


def test_events_may_have_times(tmp_path):
    path = tmp_path / "events.jsonl"
    call = {"kind": "call", "tool": "t", "args": {}, "result": 1, "started_s": 1.5, "ended_s": 2.0}
    path.write_text(json.dumps({"task": "a", "events": [{"kind": "user", "text": "x"}, {"kind": "say", "chars": 3}, call]}))
    (session,) = read_sessions(path)
    assert (session.events[1].started_s, session.events[1].ended_s) == (1.5, 2.0)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "no session in it"),
        ("{", "bad.jsonl:1: not valid JSON"),
        ('{"rows": []}', "bad.jsonl:1: no list of messages"),
        ('{"events": [{"kind": "call", "tool": 3}]}', "bad.jsonl:1: a call needs tool"),
        ('{"events": [{"kind": "call", "tool": "t", "started_s": "x"}]}', "bad.jsonl:1: started_s is 'x'"),
        ('{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "t", "arguments": "{"}}]}]}', "in JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, says):
    (tmp_path / "bad.jsonl").write_text(line)
    with pytest.raises(DatasetError, match=says) as error:
        read_sessions(tmp_path / "bad.jsonl")
    assert "\n" not in str(error.value)


def test_a_store_gives_sessions_back_and_replaces_them(tmp_path):
    sessions = [ToolSession(f"r{at}", f"g{at % 2}", a_session(at)) for at in range(4)]
    with ObservationStore.create(tmp_path / "app.db", an_identity()) as store:
        calls = ToolCalls(store)
        assert calls.sessions() == ([], frozenset())
        count = calls.add(sessions, {"get_user", "get_order"})
        assert count == sum(isinstance(event, ToolEvent) for one in sessions for event in one.events)
        assert calls.sessions() == (sessions, frozenset({"get_user", "get_order"}))
        calls.add([ToolSession("r0", "g0", ["again"])])
        assert calls.sessions()[0][0].events == ["again"]


def test_values_are_kept_only_where_they_were_recorded(tmp_path):
    event = a_session(1)[1]
    bare = ToolEvent(request_id="r", seq=0, tool=event.tool, key=event.key, is_ok=True)
    unused = ToolEvent(request_id="r", seq=1, tool=event.tool, key="k", is_ok=True, kind="speculated", is_used=False)
    with ObservationStore.create(tmp_path / "app.db", an_identity()) as store:
        ToolCalls(store).add([ToolSession("r", "r", [bare, unused])])
        (session,), reads = ToolCalls(store).sessions()
    assert session.events == [bare]
    assert reads == frozenset()

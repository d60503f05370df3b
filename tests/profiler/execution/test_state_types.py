"""A state in a store is rebuilt as data; a store of a stranger runs nothing."""

import os
import re
import sys
import unittest  # noqa: F401 - a package that is there
from collections import deque, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import numpy as np
import ormsgpack
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import Send
from pydantic import BaseModel, SecretStr

from vinelm.errors import StoreError
from vinelm.profiler.execution.checkpoints import UnitSaver
from vinelm.profiler.execution.replayed.record import RECORD, Record
from vinelm.profiler.execution.state_types import StateSerializer

SERDE = StateSerializer()


class Colour(Enum):
    RED = 1


class Point(NamedTuple):
    x: int


Old = namedtuple("Old", "a")


@dataclass
class Held:
    inner: object


class Model(BaseModel):
    value: int


STATES = [
    None, True, 1.5, "a", b"a", [1, [2]], {"a": {"b": 1}}, {1, 2}, frozenset({1}), deque([1]), datetime(2026, 1, 2, tzinfo=UTC),
    date(2026, 1, 2), time(1, 2), timedelta(seconds=3), Decimal("1.5"), UUID(int=1), Path("a/b"), re.compile("a+"), Colour.RED,
    Point(1), Old(2), Held(3), Held(Held({Colour.RED: [Point(1), Model(value=1)]})), Model(value=1), SecretStr("a"),
    ip_address("127.0.0.1"), ip_address("::1"), HumanMessage("a"), Send("node", {"a": Held(1)}),
    [AIMessage("a", tool_calls=[{"name": "t", "args": {"a": 1}, "id": "1"}]), ToolMessage("a", tool_call_id="1")],
]  # fmt: skip


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_states_come_back_as_they_did(state):
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    kept = SERDE.dumps_typed(state)
    assert repr(SERDE.loads_typed(kept)) == repr(JsonPlusSerializer().loads_typed(kept))


def test_arrays_and_local_types_come_back_as_they_did():
    @dataclass
    class Local:
        a: int

    found = SERDE.loads_typed(SERDE.dumps_typed({"array": np.arange(3), "local": Local(1)}))
    np.testing.assert_array_equal(found["array"], np.arange(3))
    assert found["local"] == {"a": 1}


def named(code, module, name, argument):
    return ormsgpack.Ext(code, ormsgpack.packb((module, name, argument)))


def evil(code, module, name, argument):
    """A state that has the call somewhere inside of it."""
    return ormsgpack.packb({"channel_values": {"messages": [1, [named(code, module, name, argument)]]}})


CALLS = [
    (0, "os", "system", "touch ran"), (0, "builtins", "eval", "open('ran', 'w')"), (0, "builtins", "exec", "open('ran', 'w')"),
    (1, "builtins", "open", ["ran", "w"]), (1, "subprocess", "Popen", [["touch", "ran"]]),
    (2, "subprocess", "run", {"args": ["touch", "ran"]}), (4, "subprocess", "Popen", {"args": ["touch", "ran"]}),
    (5, "subprocess", "Popen", {"args": ["touch", "ran"]}), (0, "evil_state_module", "anything", 1),
    (5, "evil_state_module", "Model", {}), (0, "pickle", "loads", b"cos\nsystem\n(S'touch ran'\ntR."),
    (0, "importlib", "import_module", "evil_state_module"), (0, "runpy", "run_path", "evil_state_module.py"),
    (0, "unittest.__main__", "anything", 1),  # of a package that is there, whose import runs it and ends the process
    (1, "builtins", "type", ["a", [], {}]), (0, "builtins", "__import__", "evil_state_module"),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[1]}.{call[2]}-{call[0]}")
def test_nothing_that_a_store_names_is_run_or_imported(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("evil_state_module.py").write_text("open('ran', 'w')\nclass Model:\n    model_fields = {}\n")
    content = evil(*call)
    unreadable = ormsgpack.Ext(0, b"\xc1")
    behind = ormsgpack.packb([unreadable, ormsgpack.Ext(7, b"\xc1"), named(*call)])
    before = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(named(*call)) + b"\xc1"))
    for inside in (content, ormsgpack.packb(ormsgpack.Ext(7, content)), behind, before):
        with pytest.raises(StoreError, match="no type of data") as caught:
            SERDE.loads_typed(("msgpack", inside))
        assert "\n" not in str(caught.value)
    nested = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("builtins", "set", [named(*call)]))))
    with pytest.raises(StoreError):
        SERDE.loads_typed(("msgpack", nested))
    saver = UnitSaver()
    saver.load("thread", ormsgpack.packb([{"id": "1", "v": named(*call)}, {}]))
    with pytest.raises(StoreError):
        saver.get_tuple({"configurable": {"thread_id": "thread", "checkpoint_ns": ""}})
    with pytest.raises(StoreError):
        Record.from_bytes(RECORD + ormsgpack.packb([1, None, [named(*call)]]))
    assert not Path("ran").exists()
    assert "evil_state_module" not in sys.modules
    assert os.listdir() == ["evil_state_module.py"]

"""Served runs write their tool calls to a store: what is kept, what is never kept, and that no request notices."""

import asyncio
import logging
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

pytest.importorskip("langchain")
from langchain.agents import create_agent

from vinelm import Catalog, Speculation, VineLM, VineMiddleware
from vinelm.errors import ConfigError, StoreError
from vinelm.tools.call import SessionPart
from vinelm.traces import ObservationStore, check_store
from vinelm.traces.testing import an_identity
from vinelm.traces.tools.tool_calls import ToolCalls

SECRET = "s3cr3t-9911"
PRICES = {"input": 0.0, "output": 0.0, "source": "test", "as_of": "2026-11-01"}
CALLS = (("look", {"item": SECRET}), ("note", {"text": "a"}))


class Chat(BaseChatModel):
    """Asks for the calls one by one, anew after each message of the user."""

    calls: tuple = CALLS

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=["bound"])

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        last = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
        done = sum(isinstance(message, ToolMessage) for message in messages[last:])
        message = AIMessage("done")
        if done < len(self.calls):
            name, args = self.calls[done]
            message = AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"c{len(messages)}"}])
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def note(text: str) -> str:
    "Note a text. Nobody declares this tool."
    return f"error: {text} is no note"


def an_app(path, *, declares=True, calls=CALLS, **settings):
    chat = Chat(calls=calls)
    vine = VineLM(Catalog.from_chat_models({"m0": chat}, prices={"m0": PRICES}), tool_store=path, **settings)

    def look(item: str) -> dict:
        "Look an item up."
        return {"item": item, "of": "shop"}

    made = vine.tool(look, read_only=True, cost_usd=0.25) if declares else tool(look)
    return vine, create_agent(chat, [made, note], middleware=[VineMiddleware(vine)], checkpointer=InMemorySaver())


def ask(vine, agent, text="hello", thread="t1", mode="sync", **context):
    config, given = {"configurable": {"thread_id": thread}}, {"messages": [HumanMessage(text)]}
    if mode == "async":
        return asyncio.run(agent.ainvoke(given, config, context=vine.context(**context)))
    return agent.invoke(given, config, context=vine.context(**context))


def sessions_in(path):
    with ObservationStore.open(path) as store:
        return ToolCalls(store).sessions()


def rows_in(path, columns):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {columns} FROM tool_calls ORDER BY request_id, seq").fetchall()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_conversation_is_one_session_with_words_and_all_calls(tmp_path, mode):
    path = tmp_path / "tools.db"
    vine, agent = an_app(path, record_tools="values")
    for text in ("first", "second"):
        ask(vine, agent, text, mode=mode)
    assert vine.close()
    assert (vine.tool_record.written, vine.tool_record.dropped) == (6, 0)
    (session,), reads = sessions_in(path)
    assert (session.name, reads) == ("t1", {"look"})
    told = [one if isinstance(one, str) else (one.tool, one.arguments, one.result, one.is_ok) for one in session.events]
    turn = [
        ("look", {"item": SECRET}, {"item": SECRET, "of": "shop"}, True),
        ("note", {"text": "a"}, "error: a is no note", False),
    ]
    assert told == ["first", *turn, "second", *turn]
    assert rows_in(path, "is_read, cost_usd") == [(None, 0.0), (1, 0.25), (None, 0.0)] * 2
    seconds = [second for one in session.events if not isinstance(one, str) for second in (one.started_s, one.ended_s)]
    assert seconds == sorted(seconds)


def test_no_value_is_kept_unless_it_is_asked_for(tmp_path):
    for record in ("digests", "values"):
        path = tmp_path / f"{record}.db"
        vine, agent = an_app(path, record_tools=record)
        ask(vine, agent, f"my password is {SECRET}")
        assert vine.close()
        content = b"".join(file.read_bytes() for file in tmp_path.glob(f"{record}.db*"))
        assert (SECRET.encode() in content) == (record == "values")
        assert b"look" in content


def test_by_default_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vine, agent = an_app(None)
    ask(vine, agent)
    assert vine.tool_record is None
    assert not list(tmp_path.iterdir())


def test_tools_need_not_be_declared(tmp_path):
    vine, agent = an_app(tmp_path / "tools.db", declares=False)
    ask(vine, agent)
    vine.close()
    assert rows_in(tmp_path / "tools.db", "tool, is_read, is_ok") == [("look", None, 1), ("note", None, 0)]


def test_a_tool_that_is_called_with_a_text_alone_is_kept(tmp_path):
    path = tmp_path / "tools.db"
    vine = VineLM(Catalog.from_chat_models({"m0": Chat()}, prices={"m0": PRICES}), tool_store=path, record_tools="values")

    def think(state: MessagesState, model) -> dict:
        return {"messages": [AIMessage("yes")]}

    def act(state: MessagesState) -> dict:
        return {"messages": [AIMessage(note.invoke("a")), AIMessage(note.invoke({"text": "b"}))]}

    built = StateGraph(MessagesState).add_node("think", vine.stage("think", think)).add_node("act", act)
    graph = built.add_edge(START, "think").add_edge("think", "act").compile()
    graph.invoke({"messages": [HumanMessage("hello")]}, context=vine.context())
    vine.close()
    (session,), _ = sessions_in(path)
    assert [one.arguments for one in session.events if not isinstance(one, str)] == [{"*": ["a"]}, {"text": "b"}]


def test_a_guess_that_nobody_asks_for_is_kept_as_unused(tmp_path):
    class Guesses:
        def candidates(self, history):
            return [("look", {"item": "else"}, 0.9)]

    vine, agent = an_app(tmp_path / "tools.db", calls=(("note", {"text": "a"}),))
    vine.adapter.tools.candidates = Guesses()
    ask(vine, agent, speculate=Speculation(waste_usd=1.0))
    assert vine.tool_counts["started"] >= 1
    vine.close()
    assert ("look", "speculated", 0) in rows_in(tmp_path / "tools.db", "tool, kind, is_used")


@pytest.mark.parametrize("on_error", ["default", "raise"])
def test_a_recorder_that_fails_fails_no_request(tmp_path, on_error):
    vine, agent = an_app(tmp_path / "tools.db", on_error=on_error)

    def recorder(part):
        raise OSError("the disk is full")

    vine.adapter.tools.recorder = recorder
    assert ask(vine, agent)["messages"][-1].text == "done"


def test_a_store_that_is_locked_is_written_later(tmp_path, monkeypatch):
    monkeypatch.setattr("vinelm.traces.served.writer.RETRY_S", 0.05)
    path = tmp_path / "tools.db"
    vine, agent = an_app(path)
    ask(vine, agent)
    assert vine.tool_record.flush()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert ask(vine, agent)["messages"][-1].text == "done"
        assert vine.tool_record.waiting
        other.execute("ROLLBACK")
    assert vine.close()
    assert len(rows_in(path, "seq")) == 4


def test_a_store_that_cannot_be_written_costs_calls_and_one_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("vinelm.traces.served.writer.RETRY_S", 0.02)
    path = tmp_path / "tools.db"
    vine, agent = an_app(path)
    path.write_text("a text, and no store at all, written by somebody else " * 9)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert ask(vine, agent)["messages"][-1].text == "done"
        assert not vine.tool_record.close(0.2)
    assert vine.tool_record.dropped == 6
    assert sum("calls of tools wait" in record.message for record in caplog.records) == 1


def test_the_queue_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("vinelm.traces.tools.tool_writer.WAITING", 3)
    vine, agent = an_app(tmp_path / "tools.db")
    vine.tool_record._reset()
    monkeypatch.setattr(vine.tool_record, "start", lambda: None)  # a disk that takes nothing
    for _ in range(4):
        ask(vine, agent)
    assert (vine.tool_record.waiting, vine.tool_record.dropped) == (3, 5)


def test_paths_that_cannot_be_are_refused_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"tool_store=.*does not exist: create it first"):
        an_app(tmp_path / "no" / "tools.db")
    (tmp_path / "text.db").write_text("hello, I am no store but a text of some length")
    with pytest.raises(StoreError):
        an_app(tmp_path / "text.db")


def test_an_existing_store_of_a_workflow_takes_them(tmp_path):
    path = tmp_path / "app.db"
    ObservationStore.create(path, an_identity()).close()
    vine, agent = an_app(path)
    ask(vine, agent)
    assert vine.close()
    with ObservationStore.open(path) as store:
        assert store.identity.workflow == "toy"
    assert len(rows_in(path, "seq")) == 2


def test_several_writers_continue_one_session(tmp_path):
    path = tmp_path / "app.db"
    ObservationStore.create(path, an_identity()).close()
    with ObservationStore.open(path) as one, ObservationStore.open(path) as other:
        for at in range(6):
            parts = [SessionPart("s", f"run{at}", f"said {at}")]
            ToolCalls((one, other)[at % 2]).append(parts, {})
    assert [row[0] for row in rows_in(path, "seq")] == list(range(6))


@pytest.mark.long
def test_a_killed_process_leaves_a_whole_store(tmp_path):
    script = f"""
        import os, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_tool_store import an_app, ask
        vine, agent = an_app({str(tmp_path / "tools.db")!r})
        ask(vine, agent)
        vine.tool_record.flush()
        ask(vine, agent)
        os.kill(os.getpid(), 9)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, cwd=Path(__file__).parents[1])
    assert done.returncode == -9
    assert check_store(tmp_path / "tools.db").is_whole
    assert len(rows_in(tmp_path / "tools.db", "seq")) >= 2

"""``VineRecorder`` on real graphs: what it writes, reads back as calls, and never gets in the way."""

import asyncio
import json
import operator
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypedDict

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph

import vinelm
from vinelm.replay import read_calls
from vinelm.replay.formats.reading import TraceReading

USAGE = {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15, "input_token_details": {"cache_read": 4}}


class Fake(BaseChatModel):
    """Answers ``said``, with a tool call where tools are bound; streams word by word; fails if told so."""

    said: str = "fine thanks"
    fails: bool = False

    @property
    def _llm_type(self):
        return "fake"

    def _get_ls_params(self, stop=None, **kwargs):
        return {"ls_provider": "openai", "ls_model_name": "gpt-4o-mini", "ls_model_type": "chat"}

    def bind_tools(self, tools, **kwargs):
        declared = [{"type": "function", "function": {"name": one.name, "parameters": one.args}} for one in tools]
        return self.bind(tools=declared, **kwargs)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        if self.fails:
            raise RuntimeError("the server is down")
        calls = [{"name": "look_up", "args": {"number": "P1"}, "id": "call_1"}] if kwargs.get("tools") else []
        content = "" if calls else self.said
        message = AIMessage(content, tool_calls=calls, usage_metadata=USAGE)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        for word in self.said.split():
            yield ChatGenerationChunk(message=AIMessageChunk(f"{word} "))
        yield ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=USAGE))


class State(TypedDict):
    texts: Annotated[list[str], operator.add]


@tool
def look_up(number: str) -> str:
    """Look a parcel up."""
    return number


def graph(**models):
    """A graph whose nodes run side by side, each with the model of its name."""
    built = StateGraph(State)

    def node(model):
        def run(state):
            answer = model.invoke([SystemMessage("You are kind."), HumanMessage("How are you?")])
            return {"texts": [str(answer.content)]}

        return run

    for name, model in models.items():
        built.add_node(name, node(model))
        built.add_edge(START, name)
        built.add_edge(name, END)
    return built.compile()


def test_parallel_nodes_are_steps_of_one_request(tmp_path):
    path = tmp_path / "calls.jsonl"
    app = graph(left=Fake(said="yes"), chatbot=Fake(said="no"))
    config = {"callbacks": [vinelm.VineRecorder(path)]}
    app.invoke({"texts": []}, config=config)
    app.invoke({"texts": []}, config=config)
    calls = list(read_calls(path))
    assert sorted(call.step for call in calls) == ["chatbot", "chatbot", "left", "left"]
    requests = {call.request for call in calls}
    assert len(requests) == 2
    assert all({c.step for c in calls if c.request == one} == {"left", "chatbot"} for one in requests)
    first = calls[0]
    assert first.messages == [{"role": "system", "content": "You are kind."}, {"role": "user", "content": "How are you?"}]
    assert (first.model, first.provider) == ("gpt-4o-mini", "openai")
    assert (first.tokens_in, first.tokens_out, first.cached_tokens) == (12, 3, 4)
    assert first.answer in ({"role": "assistant", "content": "yes"}, {"role": "assistant", "content": "no"})
    assert first.seconds is not None
    assert first.started_at > 1.7e9
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_thread_of_a_graph_is_the_conversation(tmp_path):
    path = tmp_path / "calls.jsonl"
    config = {"callbacks": [vinelm.VineRecorder(path)]}
    graph(ask=Fake()).invoke({"texts": []}, config={**config, "configurable": {"thread_id": "t-1"}})
    graph(ask=Fake()).invoke({"texts": []}, config=config)
    assert [call.conversation for call in read_calls(path)] == ["t-1", ""]


def test_async_runs_are_recorded_alike(tmp_path):
    path = tmp_path / "calls.jsonl"
    app = graph(ask=Fake())

    async def many():
        config = {"callbacks": [vinelm.VineRecorder(path)]}
        await asyncio.gather(*(app.ainvoke({"texts": []}, config=config) for _ in range(8)))

    asyncio.run(many())
    calls = list(read_calls(path))
    assert len(calls) == len({call.request for call in calls}) == 8
    assert {call.step for call in calls} == {"ask"}


def test_a_streamed_answer_is_whole(tmp_path):
    path = tmp_path / "calls.jsonl"
    built = StateGraph(State)
    built.add_node(
        "talk", lambda state: {"texts": ["".join(str(c.content) for c in Fake(said="one two three").stream("count"))]}
    )
    built.add_edge(START, "talk")
    list(built.compile().stream({"texts": []}, config={"callbacks": [vinelm.VineRecorder(path)]}, stream_mode="messages"))
    (call,) = read_calls(path)
    assert call.answer == {"role": "assistant", "content": "one two three "}
    assert (call.step, call.tokens_in, call.tokens_out) == ("talk", 12, 3)


def test_tools_settings_and_tool_calls_are_kept(tmp_path):
    path = tmp_path / "calls.jsonl"
    model = Fake().bind_tools([look_up], temperature=0.2, api_key="sk-planted", tool_choice="auto")
    graph(act=model).invoke({"texts": []}, config={"callbacks": [vinelm.VineRecorder(path)]})
    (call,) = read_calls(path)
    assert call.answer["tool_calls"][0]["function"] == {"name": "look_up", "arguments": '{"number": "P1"}'}
    assert call.tools[0]["function"]["name"] == "look_up"
    assert call.settings == {"temperature": 0.2, "tool_choice": "auto"}
    assert "sk-planted" not in path.read_text()


def test_a_failed_call_is_recorded_and_still_raises(tmp_path):
    path = tmp_path / "calls.jsonl"
    with pytest.raises(RuntimeError, match="the server is down"):
        graph(ask=Fake(fails=True)).invoke({"texts": []}, config={"callbacks": [vinelm.VineRecorder(path)]})
    (call,) = read_calls(path)
    assert call.error == "RuntimeError: the server is down"
    assert call.answer is None
    assert call.step == "ask"


def test_what_cannot_be_written_is_said_once_and_breaks_nothing(tmp_path, caplog):
    recorder = vinelm.VineRecorder(tmp_path / "no folder" / "calls.jsonl")
    app = graph(ask=Fake(said="fine"))
    for _ in range(3):
        assert app.invoke({"texts": []}, config={"callbacks": [recorder]}) == {"texts": ["fine"]}
    assert [record.message for record in caplog.records] == [
        f"VineRecorder cannot write to {recorder.path} (No such file or directory): calls are missing in it"
    ]


def test_nothing_is_remembered_once_the_runs_are_over(tmp_path):
    recorder = vinelm.VineRecorder(tmp_path / "calls.jsonl")
    app = graph(ask=Fake(), fail=Fake(fails=True))
    with pytest.raises(RuntimeError):
        app.invoke({"texts": []}, config={"callbacks": [recorder]})
    graph(ask=Fake()).invoke({"texts": []}, config={"callbacks": [recorder]})
    assert (recorder._requests, recorder._begun) == ({}, {})


def test_lines_of_many_threads_and_recorders_stay_whole(tmp_path):
    path = tmp_path / "calls.jsonl"
    app = graph(ask=Fake(said="long " * 20_000))

    def run(_):
        app.invoke({"texts": []}, config={"callbacks": [vinelm.VineRecorder(path)]})

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(run, range(64)))
    reading = TraceReading()
    assert len(list(read_calls(path, reading=reading))) == 64
    assert reading.broken == 0


WRITES = """
import sys, uuid
from langchain_core.outputs import Generation, LLMResult
from vinelm import VineRecorder
recorder = VineRecorder(sys.argv[1])
for _ in range(100):
    run = uuid.uuid4()
    recorder.on_llm_start({}, ["x" * 300_000], run_id=run)
    recorder.on_llm_end(LLMResult(generations=[[Generation(text="fine")]]), run_id=run)
"""


@pytest.mark.usefixtures("warm_python")
def test_lines_of_several_processes_stay_whole(tmp_path):
    path = tmp_path / "calls.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITES, path]) for _ in range(3)]
    assert [writer.wait(120) for writer in writers] == [0, 0, 0]
    reading = TraceReading()
    calls = list(read_calls(path, reading=reading))
    assert (len(calls), reading.broken) == (300, 0)
    assert {len(call.messages[0]["content"]) for call in calls} == {300_000}


def test_a_file_that_is_there_is_appended_to(tmp_path):
    path = tmp_path / "calls.jsonl"
    for _ in range(2):
        graph(ask=Fake()).invoke({"texts": []}, config={"callbacks": [vinelm.VineRecorder(path)]})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [next(iter(line)) for line in lines] == ["vinelm_request", "vinelm_call"] * 2
    assert lines[0]["inputs"] == {"texts": []}
    assert lines[0]["request"] == lines[1]["request"] != lines[2]["request"]

"""The single agent: its steps by a scripted model, and what simulated models write for it."""

import json
import random
from types import SimpleNamespace

import pytest
from langchain_core.messages import AIMessage

pytest.importorskip("pydantic_monty", reason="the extra graph is not installed")

from scripts.graphqa_parts.graph_cot import OBSERVED_CHARS, TOOLS, make_agent_build, template, workflow
from vinelm.backends.offline.chat_model import next_step, said_chars
from vinelm.trie import Trie
from vinelm.workflows.graphqa.act import SandboxFailure
from vinelm.workflows.graphqa.graph import signal
from vinelm.workflows.graphqa.source import GraphSource, Node

PEOPLE = [Node(f"p{n}", "person", name) for n, name in enumerate(("Ada", "Bob", "Cid"))]
GRAPH = GraphSource(PEOPLE, [("p0", "knows", "p1"), ("p0", "knows", "p2")])


def call(name, **args):
    return AIMessage("I look that up.", tool_calls=[{"name": name, "args": args, "id": name, "type": "tool_call"}])


def walked(*said, source=GRAPH):
    """The final state, the prompts and the tools' calls of an agent that says these messages."""
    left, prompts, tools = list(said), [], []

    def invoke(messages):
        prompts.append(messages)
        return left.pop(0)

    model = SimpleNamespace(bind_tools=lambda given: SimpleNamespace(invoke=invoke))

    def tool(fn, *, read_only):
        return SimpleNamespace(invoke=lambda arguments: tools.append(arguments) or fn(**arguments))

    vine = SimpleNamespace(
        finish=lambda state: {},
        stage=lambda name, fn: lambda state: fn(state, model),
        route=lambda fn, *, again, end: lambda state: again if left else end,
        tool=tool,
    )
    state = make_agent_build({"": source})(vine).compile().invoke({"question": "Whom does Ada know?"})
    return state, prompts, tools


def test_it_looks_step_by_step_and_answers():
    state, prompts, tools = walked(
        call("RetrieveNode", text="Ada"),
        call("NeighbourCheck", ids=["p0"], edge_type="knows"),
        call("NodeFeature", ids=["p1", "p2"], feature="name"),
        AIMessage("Bob, Cid"),
    )
    assert (state["answer"], signal(state)) == ("Bob, Cid", "finished")
    assert [prompt[-1].text for prompt in prompts[1:]] == ["p0", '["p1", "p2"]', '["Bob", "Cid"]']
    assert "knows: person - person" in prompts[0][0].text
    assert tools == [{"text": "Ada"}]


@pytest.mark.parametrize(
    ("said", "shown", "seen"),
    [
        (call("RetrieveNode", text="Zzz"), "code error", "error: no node is called 'Zzz': the nearest names are"),
        (call("RetrieveNode", text=5), "code error", "error: 5 is no name"),
        (call("Search", text="Ada"), "code error", "error: no function is called 'Search': call one of RetrieveNode, "),
        (call("NodeDegree", ids=["p0"]), "code error", "error: NodeDegree: missing a required argument: 'edge_type'"),
        (call("NeighbourCheck", ids=[], edge_type="knows"), "empty", "[]"),
        (call("NodeDegree", ids=["p0"], edge_type="knows"), "facts", "[2]"),
    ],
)
def test_what_a_step_comes_to_is_the_signal(said, shown, seen):
    state, _, _ = walked(said)
    assert (signal(state), state["answer"]) == (shown, None)
    assert state["messages"][-1].text.startswith(seen)


@pytest.mark.parametrize("text", ["", "I look up Ada first."])
def test_a_call_that_is_broken_is_answered_and_is_no_answer(text):
    broken = {"type": "invalid_tool_call", "id": "c1", "name": "RetrieveNode", "args": '{"text": "Ad', "error": None}
    state, prompts, _ = walked(AIMessage(text, invalid_tool_calls=[broken]), AIMessage("Bob, Cid"))
    assert [message.type for message in prompts[1]] == ["system", "human", "ai", "tool"]
    assert (prompts[1][-1].tool_call_id, prompts[1][-1].text[:5]) == ("c1", "error")
    assert state["answer"] == "Bob, Cid"


def test_no_text_is_no_answer_and_long_observations_are_cut():
    state, _, _ = walked(AIMessage(" "))
    assert (signal(state), state["answer"]) == ("form", "")
    many = GraphSource([Node("a", "x", "a"), *(Node(f"n{n}", "x", f"n{n}") for n in range(2000))], [("a", "e", "n0")])
    state, _, _ = walked(call("NodeFeature", ids=[f"n{n}" for n in range(2000)], feature="name"), source=many)
    assert len(state["messages"][-1].text) < OBSERVED_CHARS + 40


def test_a_plan_that_goes_on_after_an_answer_asks_again():
    state, prompts, _ = walked(AIMessage("Bob"), AIMessage("Bob, Cid"))
    assert [message.type for message in prompts[1]] == ["system", "human", "ai", "human"]
    assert state["answer"] == "Bob, Cid"


def test_a_graph_that_fails_is_no_observation():
    broken = GraphSource(PEOPLE, [("p0", "knows", "p1")], embed=lambda texts: 1 / 0)
    with pytest.raises(SandboxFailure, match="ZeroDivisionError"):
        walked(call("RetrieveNode", text="Adda"), source=broken)


def test_its_tools_are_the_functions_of_the_graph():
    given = {tool["function"]["name"]: tool["function"]["parameters"]["required"] for tool in TOOLS}
    assert given == {
        "RetrieveNode": ["text"],
        "NodeFeature": ["ids", "feature"],
        "NodeDegree": ["ids", "edge_type"],
        "NeighbourCheck": ["ids", "edge_type"],
        "NodeInfo": ["ids"],
    }


def test_its_trie_merges_histories():
    assert Trie.from_template(template().bind(tuple("abcd"))).n_nodes == 148


@pytest.fixture(scope="module")
def bundled():
    return workflow()


def test_a_right_script_makes_the_calls_of_the_gold_program_and_ends_with_its_answer(bundled):
    writer = bundled.writer.at("agent")
    for request in bundled.requests[:25]:
        text = writer.right(request, random.Random(0))
        script = json.loads(text)
        assert script["calls"][0]["name"] == "RetrieveNode"
        assert all(isinstance(one["args"]["ids"], list) for one in script["calls"][1:] if "ids" in one["args"])
        assert bundled.score(request, {"answer": script["answer"]})
        assert said_chars(text) < len(text) / 2  # a turn is billed its own step
        assert next_step(text, [])[1][0]["args"] == script["calls"][0]["args"]


@pytest.mark.parametrize("kind", ["wrong_edge", "wrong_entity", "early", "format"])
def test_a_wrong_script_is_executed_and_mostly_wrong(bundled, kind):
    writer, rng = bundled.writer.at("agent"), random.Random(1)
    right = 0
    for request in bundled.requests[:25]:
        text = writer.wrong(request, kind, rng)
        assert text.startswith("{") == (kind != "format")
        right += bundled.score(request, {"answer": json.loads(text)["answer"] if kind != "format" else text})
    assert right <= 2

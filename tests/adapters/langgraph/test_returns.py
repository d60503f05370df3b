"""Whatever a node may return, a stage may return."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from kit.apps.echo import KINDS, MODES, Frozen, Model, Plain, Typed, control, forced, get, path_of, run, thread
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import InvalidUpdateError
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send
from pydantic import BaseModel

from vinelm.errors import WorkflowError


@dataclass
class Partial:
    a: str


class PartialModel(BaseModel):
    a: str


def graph_of(vine, fn, schema=Typed, mode="sync"):
    async def afn(state, model):
        return fn(state, model)

    graph = StateGraph(schema)
    graph.add_node("generate", vine.stage("generate", fn if mode == "sync" else afn, state=schema))
    graph.add_node("other", lambda state: {"log": ["other"]})
    graph.add_edge(START, "generate")
    return graph


RETURNS = {
    "dict": (lambda: {"a": "x", "log": ["s"]}, "x", ["s"]),
    "none": (lambda: None, "", []),
    "empty": (dict, "", []),
    "command": (lambda: Command(update={"a": "x"}), "x", []),
    "command and goto": (lambda: Command(update={"a": "x"}, goto="other"), "x", ["other"]),
    "goto alone": (lambda: Command(goto="other"), "", ["other"]),
    "command of pairs": (lambda: Command(update=[("a", "x"), ("log", ["s"])], goto="other"), "x", ["s", "other"]),
    "command of an object": (lambda: Command(update=Partial("x"), goto="other"), "x", ["other"]),
    "commands": (lambda: [Command(update={"a": "x"}), Command(update={"log": ["s"]}, goto="other")], "x", ["s", "other"]),
    "tuple": (lambda: (Command(update={"a": "x"}), Command(goto="other")), "x", ["other"]),
    "dict and command": (lambda: [{"a": "x"}, Command(goto="other")], "x", ["other"]),
    "dataclass": (lambda: Partial("x"), "x", []),
    "pydantic": (lambda: PartialModel(a="x"), "x", []),
    "send": (lambda: Command(goto=Send("other", {})), "", ["other"]),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("returned", RETURNS)
def test_the_update_and_the_entry_are_both_written(returned, schema, mode):
    make, answer, log = RETURNS[returned]
    vine = control()
    graph = graph_of(vine, lambda state, model: make(), schema, mode).compile(checkpointer=InMemorySaver())
    result = run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=forced(vine, ["m2"])))
    assert (result.get("a", ""), result.get("log", [])) == (answer, log)
    assert path_of(graph, thread()) == ["m2"]


@pytest.mark.parametrize("schema", [Plain, Frozen, Model])
def test_a_whole_state_may_come_back(schema):
    def generate(state, model):
        return schema(q=get(state, "q"), a="x")

    assert graph_of(control(), generate, schema).compile().invoke({"q": "?"})["a"] == "x"


@pytest.mark.parametrize("bad", ["text", 7, ["text"]])
def test_what_langgraph_refuses_is_refused_still(bad):
    with pytest.raises(InvalidUpdateError):
        graph_of(control(), lambda state, model: bad).compile().invoke({"q": "?"})


@pytest.mark.parametrize("out", [Command(graph=Command.PARENT, goto="x"), [Command(graph=Command.PARENT)]])
def test_a_command_to_a_parent_graph_is_refused(out):
    with pytest.raises(WorkflowError, match="must be a node of the root graph"):
        graph_of(control(), lambda state, model: out).compile().invoke({"q": "?"})


def test_edges_are_drawn_from_the_return_annotation():
    vine = control()

    def generate(state: Typed, model: Any) -> Command[Literal["other"]]:
        return Command(goto="other")

    graph = graph_of(vine, generate)
    graph.nodes.pop("generate")
    graph.add_node("generate", vine.stage("generate", generate))
    assert ("generate", "other") in {(edge.source, edge.target) for edge in graph.compile().get_graph().edges}

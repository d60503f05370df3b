"""Graph-CoT's single agent, the rival of the routed stages: it looks at the graph step by step, with one function a turn."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from vinelm.requests.protocols import Vine
from vinelm.workflows.graphqa.act import Calls
from vinelm.workflows.graphqa.graph import GraphStages, finished, retriever
from vinelm.workflows.graphqa.prompts import AGENT, AGENT_AGAIN, FUNCTIONS, OBSERVED_CHARS
from vinelm.workflows.graphqa.source import GraphSource

NO_OBJECT = "error: the arguments are no JSON object: call the function again"


class AgentState(MessagesState, total=False):
    """The workflow state: the question, its graph where there are several, and the steps as messages; see ``GraphState``."""

    question: str
    graph: str
    shown: str | None
    answer: str | None


def _schema(name: str, parameters: str, what: str) -> dict[str, Any]:
    """A function of the prompts as a model's tool."""
    kinds = {"ids": {"type": "array", "items": {"type": "string"}}}
    fields = {field: kinds.get(field, {"type": "string"}) for field in parameters.split(", ")}
    arguments = {"type": "object", "properties": fields, "required": list(fields)}
    return {"type": "function", "function": {"name": name, "description": what, "parameters": arguments}}


TOOLS = tuple(_schema(*found) for found in re.findall(r"^(\w+)\((.+?)\) -> (.+)$", FUNCTIONS, re.M))


def make_agent_build(sources: Mapping[str, GraphSource]) -> Callable[[Vine], Any]:
    """Return ``build(vine)`` of the single agent over some graphs; see :func:`~vinelm.workflows.graphqa.graph.make_build`."""
    stages = GraphStages(sources)

    def agent(state: AgentState, model: Any) -> dict[str, Any]:
        """Say what is needed and call a function, or answer. One model call; its prompt has all earlier steps."""
        before = state.get("messages", [])
        again = [HumanMessage(AGENT_AGAIN)] if before and isinstance(before[-1], AIMessage) else []
        first = [SystemMessage(f"{AGENT}\n\n{stages.source(state).schema()}"), HumanMessage(f"Question: {state['question']}")]
        return {"messages": [*again, model.bind_tools(TOOLS).invoke([*first, *before, *again])]}

    def build(vine: Vine) -> Any:
        retrieve = retriever(vine, stages)

        def run(state: AgentState) -> dict[str, Any]:
            """Call what the agent asked for; without a call, its text is the answer. A tool."""
            last: Any = state["messages"][-1]
            broken = [ToolMessage(NO_OBJECT, tool_call_id=call["id"]) for call in last.invalid_tool_calls]
            if not (last.tool_calls or broken):
                answer = str(last.text).strip()
                return {"answer": answer, "shown": "finished" if answer else "form"}
            calls = Calls(stages.source(state).functions() | {"RetrieveNode": partial(retrieve, state)})
            found = [calls.answer(call["name"], (), call["args"]) for call in last.tool_calls]
            calls.require_sound()
            is_wrong = bool(broken) or any("error" in said for said in found)
            shown = "code error" if is_wrong else "facts" if all(map(_says, found)) else "empty"
            seen = [ToolMessage(_observed(s), tool_call_id=c["id"]) for s, c in zip(found, last.tool_calls, strict=True)]
            return {"messages": [*seen, *broken], "answer": None, "shown": shown}

        graph = StateGraph(AgentState)
        graph.add_node("agent", vine.stage("agent", agent))
        graph.add_node("run", run)
        graph.add_node("finish", vine.finish)
        graph.add_edge(START, "agent")
        graph.add_edge("agent", "run")
        graph.add_conditional_edges("run", vine.route(finished, again="agent", end="finish"), ["agent", "finish"])
        graph.add_edge("finish", END)
        return graph

    return build


def _says(said: Mapping[str, Any]) -> bool:
    return said["value"] not in ([], "", None)


def _observed(said: Mapping[str, Any]) -> str:
    if "error" in said:
        return f"error: {said['error']}"
    value = said["value"]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= OBSERVED_CHARS else f"{text[:OBSERVED_CHARS]}… ({len(text)} characters)"

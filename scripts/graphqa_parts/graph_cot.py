"""Graph-CoT's single agent, the rival of `graphqa`'s stages: it looks at the graph step by step, one function a turn.

PYTHONPATH=scripts vinelm profile graphqa_parts.graph_cot:workflow --limit 20 --coverage 0.02
"""

from __future__ import annotations

import hashlib
import inspect
import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from vinelm.requests.protocols import Vine
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Loop, Stage, Template
from vinelm.workflows.graphqa.act import Calls, run_snippet
from vinelm.workflows.graphqa.graph import GraphStages, finished, retriever
from vinelm.workflows.graphqa.prompts import FUNCTIONS
from vinelm.workflows.graphqa.simulated_writer import PROSE, ProgramWriter, Task, gold_of
from vinelm.workflows.graphqa.source import GraphSource
from vinelm.workflows.graphqa.workflow import bundled, demo_graphs

AGENT = """You answer a question by looking at a graph step by step. In each turn, say in one sentence what has to be looked up
next, and call one function. Once you know the answer, call none, and write it alone: names joined by ", ", or a number."""
AGENT_AGAIN = "Look again whether that is the answer."
OBSERVED_CHARS = 4000
"""Characters of one observation that the single agent sees."""
STEPS = 10
"""How many steps it may take."""
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


class AgentWriter(ProgramWriter):
    """Gives the agent the calls that a program makes as a script, of which it makes the next one in each turn.

    A turn's script may be right where that of an earlier one was not.
    """

    def __init__(self, sources: Mapping[str, GraphSource]) -> None:
        super().__init__(sources)
        self.writers["agent"] = Task(("wrong_edge", "wrong_entity", "early", "format"), 1.0, self._steps, self._bad_steps, 0.5)

    def _steps(self, request: Request, rng: random.Random) -> str:
        return self._script(gold_of(request), request)

    def _bad_steps(self, request: Request, kind: str, rng: random.Random) -> str:
        found = None if kind == "format" else self.mutation_of(request, kind, rng)
        return PROSE if found is None else self._script(found, request)

    def _script(self, program: str, request: Request) -> str:
        """The calls that a program makes when it is executed, for an agent that makes one a turn, and what it prints."""
        calls: list[dict[str, Any]] = []

        def recorded(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(fn)
            def call(*args: Any, **options: Any) -> Any:
                given = inspect.signature(fn).bind(*args, **options).arguments
                listed = {"ids": [given["ids"]]} if isinstance(given.get("ids"), str) else {}
                calls.append({"name": name, "args": given | listed})
                return fn(*args, **options)

            return call

        functions = self.source_of(request).functions()
        printed = run_snippet(program, {name: recorded(name, fn) for name, fn in functions.items()}).printed
        return json.dumps({"calls": calls, "answer": printed or PROSE})


def template() -> Template:
    """Return the template: a loop of one stage, whose histories merge."""
    return Template((Loop((Stage("agent"),), times=STEPS, memory=2),), stop="workflow")


def workflow() -> Workflow:
    """Return the agent over the demo databases, with the questions of the bundled workflow."""
    sources = demo_graphs()
    stages = bundled()
    prompts = hashlib.sha256(f"{AGENT}\0{AGENT_AGAIN}\0{OBSERVED_CHARS}".encode()).hexdigest()
    return replace(
        stages,
        name="graphqa-cot",
        template=template(),
        build=make_agent_build(sources),
        writer=AgentWriter(sources),
        resources={**stages.resources, "prompts": prompts},
    )

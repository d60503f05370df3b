"""Generate, test, fix: a function is written, its tests run in a sandboxed child, and the failures go back to the writer."""

from __future__ import annotations

import re
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from examples.coding.sandbox import run_tests

TRIES = 3
_FENCE = re.compile(r"```(?:python)?\n(.*?)```", re.S)


class State(TypedDict, total=False):
    """``task`` says what to write, ``tests`` are expressions that are to be true of it, one a line."""

    task: str
    tests: str
    code: str
    passed: bool
    report: str
    tries: int


def write(state: State, model: Any) -> State:
    """The code, or better code. One model call."""
    prompt = f"{state['task']}\nAnswer with the module's Python code only."
    if state.get("code"):
        prompt += f"\n\nYour last attempt:\n{state['code']}\nIts tests say:\n{state['report']}"
    text = str(model.invoke(prompt).text)
    block = _FENCE.search(text)
    return {"code": (block.group(1) if block else text).strip() + "\n", "tries": state.get("tries", 0) + 1}


def test(state: State) -> State:
    """What its tests say."""
    passed, report = run_tests(state["code"], state["tests"])
    return {"passed": passed, "report": report}


def finished(state: State) -> bool:
    """The loop's own end: the tests pass, or it gives up."""
    return state["passed"] or state["tries"] >= TRIES


def build(vine: Any) -> Any:
    """The graph."""
    graph = StateGraph(State)
    graph.add_node("write", vine.stage("write", write))
    graph.add_node("test", test)
    graph.add_edge(START, "write")
    graph.add_edge("write", "test")
    graph.add_conditional_edges(
        "test",
        vine.route(finished, again="write", end=END),
    )
    return graph

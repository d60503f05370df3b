"""The graph of the workflow: one LLM stage, a tool that checks its calculation, and the loop between them."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.messages import HumanMessage, SystemMessage

from vinelm.requests.protocols import Vine
from vinelm.workflows.mathqa.arithmetic import number, value_of
from vinelm.workflows.mathqa.prompts import REFLECT, SOLVE, SYSTEM, read_solution

_SYSTEM = SystemMessage(SYSTEM)
TURNS = 6
"""The maximum number of answers to one request."""
SHOWN_CHARS = 4_000
"""The number of characters, from the end of the earlier solution, that the next prompt shows."""
REPORTS = {
    "holds": "the calculation gives the answer.",
    "choice": "the answer is one of the choices.",
    "differs": "the calculation gives {value}, which is not the answer.",
    "no check": "the lines 'Check:' and 'Answer:' are not an arithmetic expression and its value: nothing could be checked.",
    "no answer": "there is no line 'Answer:' with an answer.",
}
"""The possible results of the check, with the words for the next prompt."""


class MathState(TypedDict, total=False):
    """The workflow state, in JSON types only, so that checkpoints round-trip.

    ``choices`` has the letters of a multiple-choice question; ``text`` is the end of the model's last solution. ``calculation``
    and ``answer`` are those in this solution, or empty if it has none. ``check`` is the result of the check, a key of
    :data:`REPORTS`. ``value`` is the calculation's value; None if there is none.
    """

    question: str
    choices: str
    text: str
    calculation: str
    answer: str
    check: str
    value: str | None


def solve(state: MathState, model: Any) -> MathState:
    """Let the model answer the question, or reflect on its earlier solution and answer again, with one call.

    Returns the changed keys of the state.
    """
    if "text" in state:
        report = REPORTS[state["check"]].format(value=state["value"])
        prompt = REFLECT.format(question=state["question"], text=state["text"], report=report)
    else:
        prompt = SOLVE.format(question=state["question"])
    text = str(model.invoke([_SYSTEM, HumanMessage(prompt)]).text)
    answer, calculation = read_solution(text, state.get("choices", ""))
    return {"text": text[-SHOWN_CHARS:], "answer": answer, "calculation": calculation}


def check(state: MathState) -> MathState:
    """Compute the model's calculation, compare its value with the model's answer, and return the result as keys of the state.

    This is a tool, which does not know the label.
    """
    if not state["answer"]:
        return {"check": "no answer", "value": None}
    if state.get("choices"):
        return {"check": "choice", "value": None}
    value, answer = value_of(state["calculation"]), number(state["answer"]) or value_of(state["answer"])
    if value is None or answer is None:
        return {"check": "no check", "value": None}
    is_same = abs(value - answer) <= abs(value) / 1_000_000
    return {"check": "holds" if is_same else "differs", "value": str(value)[:100]}


def finished(state: MathState) -> bool:
    """Return whether the workflow's own check passes: the calculation gives the answer, or a choice was made."""
    return state.get("check") in ("holds", "choice")


def build(vine: Vine) -> Any:
    """Return the workflow's uncompiled ``StateGraph``; its input is ``question`` and, for multiple choice, ``choices``."""
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(MathState)
    graph.add_node("solve", vine.stage("solve", solve))
    graph.add_node("check_answer", check)
    graph.add_node("finish", vine.finish)
    graph.add_edge(START, "solve")
    graph.add_edge("solve", "check_answer")
    graph.add_conditional_edges("check_answer", vine.route(finished, again="solve", end="finish"), ["solve", "finish"])
    graph.add_edge("finish", END)
    return graph

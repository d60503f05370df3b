"""Answers an exam question, and asks another model if that may help: nine real models, with each call's dollars and seconds.

The texts of the questions do not come with the package. The application has no check: any letter passes. A second call may show
that another model gives the same letter.
"""

from __future__ import annotations

from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

from vinelm.catalog import Catalog
from vinelm.io.tables import read_table
from vinelm.requests.protocols import Vine
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Loop, Stage, Template
from vinelm.workflows.recorded.recorded_models import recorded_catalog

TABLE = Path(__file__).parent / "data" / "exams.csv.gz"
TODAY = "gpt-4"
"""The most accurate of the models, which the unprofiled application uses for every call."""
PRICES = {
    "gpt-4": ("gpt-4", 30.0, 60.0),
    "claude-3-opus": ("claude-3-opus-20240229", 15.0, 75.0),
    "mistral-large": ("mistral-large", 8.0, 24.0),
    "gemini-1.5-pro": ("gemini-1.5-pro-preview-0409", 7.0, 21.0),
    "command-r-plus": ("cohere-command-r-plus", 3.0, 15.0),
    "llama-2-70b": ("llama-2-70b-chat", 1.54, 1.77),
    "gpt-3.5-turbo": ("gpt-35-turbo", 1.5, 2.0),
    "llama-2-7b": ("llama-2-7b-chat", 0.52, 0.67),
    "gemini-1.0-pro": ("gemini-1.0-pro", 0.5, 1.5),
}
"""By name of the model, its name in the table, and its dollars per million tokens in and out, as charged in April 2024."""


class ExamState(TypedDict, total=False):
    """The state of the graph: the question's id, and the last answer."""

    question: str
    answer: str


@cache
def right_letters() -> dict[str, str]:
    """Return the letter of the right answer to each question, by the question's id."""
    return {row["question"]: row["correct"] for _, row in read_table(TABLE, ("question", "correct"))}


def catalog() -> Catalog:
    """Return the nine models, whose answers, tokens, dollars and seconds are recorded."""
    return recorded_catalog(
        TABLE,
        PRICES,
        "as charged, April 2024",
        date(2024, 4, 18),
        id_column="question",
        answer_column="answer",
        cost_column="cost_usd",
        latency_column="latency_s",
        tokens_in_column="tokens_in",
        tokens_out_column="tokens_out",
    )


def ask(state: ExamState, model: Any) -> ExamState:
    """Let the model answer the question with a letter, with one call; return the changed key of the state."""
    return {"answer": model.invoke(f"Answer question {state['question']} with a letter.").text}


def has_letter(state: ExamState) -> bool:
    """Return whether the model gave an answer; without the label, an application can check nothing else."""
    return bool(state["answer"])


def same_letter(one: str, other: str) -> bool:
    """Return whether two answers are the same letter; a missing letter is equal to nothing."""
    return bool(one) and one == other


def build(vine: Vine) -> Any:
    """Return the workflow's uncompiled ``StateGraph``; its input is ``question``."""
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(ExamState)
    graph.add_node("ask", vine.stage("ask", ask, default=TODAY))
    graph.add_node("again", vine.stage("again", ask, default=TODAY))
    graph.add_node("finish", vine.finish)
    graph.add_edge(START, "ask")
    again = vine.route(has_letter, again="again", end="finish", times=1)
    graph.add_conditional_edges("ask", again)
    graph.add_conditional_edges("again", again)
    graph.add_edge("finish", END)
    return graph


def exams() -> Workflow:
    """Return the workflow with the 600 questions of six exams as requests."""
    right = right_letters()
    return Workflow(
        name="exams",
        template=Template((Stage("ask"), Loop((Stage("again"),), times=1)), stop="workflow"),
        build=build,
        requests=[Request(question, {"question": question}) for question in right],
        score=lambda request, state: state.get("answer") == right[request.id],
        signal="status",
        agree=same_letter,
        answer=("answer",),
        models=catalog(),
    )

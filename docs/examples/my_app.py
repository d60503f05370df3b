"""A small LangGraph app, ready for VineLM: answer, check, try again."""

from pathlib import Path
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from vinelm import (
    Loop,
    Stage,
    Template,
    TextWriter,
    Workflow,
    read_dataset,
)

FIXES = 2  # the most times that an answer is fixed


class State(TypedDict, total=False):
    question: str
    answer: str
    problem: str


# an LLM stage: VineLM hands in the chat model of its choice
def solve(state: State, model):
    return {
        "answer": model.invoke(
            f"Answer with a number only. {state['question']}"
        ).text.strip()
    }


def is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()


def check(state: State):  # a tool: an ordinary node
    return {
        "problem": ""
        if is_number(state["answer"])
        else "this is not a whole number"
    }


def fix(state: State, model):
    prompt = (
        f"{state['question']}\nYou said {state['answer']!r}: "
        f"{state['problem']}. Answer with a number only."
    )
    return {"answer": model.invoke(prompt).text.strip()}


# the app's own check: it knows no labels
def finished(state: State) -> bool:
    return not state["problem"]


def build(vine):
    graph = StateGraph(State)
    graph.add_node("solve", vine.stage("solve", solve))
    graph.add_node("check", check)
    graph.add_node("fix", vine.stage("fix", fix))
    graph.add_edge(START, "solve")
    graph.add_edge("solve", "check")
    graph.add_conditional_edges(
        "check",
        vine.route(finished, again="fix", end="finish", times=FIXES),
    )
    graph.add_edge("fix", "check")
    graph.add_node("finish", vine.finish)  # may return an earlier answer
    graph.add_edge("finish", END)
    return graph


template = Template((Stage("solve"), Loop((Stage("fix"),), times=FIXES)))
dataset = read_dataset(Path(__file__).with_name("questions.jsonl"))
workflow = Workflow(
    name="my-app",
    template=template,
    build=build,
    requests=dataset.requests,
    labels=("answer",),  # never shown to the graph
    score=lambda request, state: (
        state.get("answer") == request.data["answer"]
    ),
    # what is seen of an answer without its label: the verdict of `finished`
    signal="status",
    # what is not a number agrees with nothing
    agree=lambda one, other: is_number(one) and one == other,
    answer=("answer",),  # the keys of the state that make an answer
    # only so that simulated models can stand in for real ones
    writer=TextWriter("answer"),
)

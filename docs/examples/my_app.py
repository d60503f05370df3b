"""A small LangGraph app, ready for VineLM: answer with a number, check it, try again."""

from pathlib import Path
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from vinelm import Loop, Stage, Template, TextWriter, Workflow, read_dataset

FIXES = 2  # the most times that an answer is fixed


class State(TypedDict, total=False):
    question: str
    answer: str
    problem: str


def solve(state: State, model):  # an LLM stage: VineLM hands in the chat model of its choice
    return {"answer": model.invoke(f"Answer with a number only. {state['question']}").text.strip()}


def is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()


def check(state: State):  # a tool: an ordinary node
    return {"problem": "" if is_number(state["answer"]) else "this is not a whole number"}


def fix(state: State, model):
    prompt = f"{state['question']}\nYou said {state['answer']!r}: {state['problem']}. Answer with a number only."
    return {"answer": model.invoke(prompt).text.strip()}


def finished(state: State) -> bool:  # the app's own check: it knows no labels
    return not state["problem"]


def build(vine):
    graph = StateGraph(State)
    graph.add_node("solve", vine.stage("solve", solve))
    graph.add_node("check", check)
    graph.add_node("fix", vine.stage("fix", fix))
    graph.add_edge(START, "solve")
    graph.add_edge("solve", "check")
    graph.add_conditional_edges("check", vine.route(finished, again="fix", end="finish", times=FIXES))
    graph.add_edge("fix", "check")
    graph.add_node("finish", vine.finish)  # may return an earlier answer
    graph.add_edge("finish", END)
    return graph


workflow = Workflow(
    name="my-app",
    template=Template((Stage("solve"), Loop((Stage("fix"),), times=FIXES))),
    build=build,
    requests=read_dataset(Path(__file__).with_name("questions.jsonl")).requests,
    labels=("answer",),  # never shown to the graph
    score=lambda request, state: state.get("answer") == request.data["answer"],
    signal="status",  # what is seen of an answer without labels: the verdict of `finished`
    agree=lambda one, other: is_number(one) and one == other,  # what is not a number agrees with nothing
    answer=("answer",),  # the keys of the state that make an answer
    writer=TextWriter("answer"),  # only so that simulated models can stand in for real ones
)

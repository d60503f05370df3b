"""A router that hands over by Command to one of two specialists; the template is read from the graph."""

from typing import Literal, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from trial_apps.questions import MODELS, answered, requests
from vinelm import VineLM, Workflow

vine = VineLM(MODELS)
llm = vine.chat_model()


class State(TypedDict, total=False):
    question: str
    answer: str


def router(state: State) -> Command[Literal["adder", "multiplier"]]:
    kind = llm.invoke(f"Is this a sum or product? One word. {state['question']}").text
    return Command(goto="adder" if "sum" in kind else "multiplier")


def adder(state: State):
    answer = llm.invoke(f"You add numbers. {state['question']}").text
    return {"answer": answer if "+" in state["question"] else "I only add."}


def multiplier(state: State):
    answer = llm.invoke(f"You multiply numbers. {state['question']}").text
    return {"answer": answer if "*" in state["question"] else "I only multiply."}


builder = StateGraph(State)
builder.add_node("router", router)
builder.add_node("adder", adder)
builder.add_node("multiplier", multiplier)
builder.add_edge(START, "router")
builder.add_edge("adder", END)
builder.add_edge("multiplier", END)
app = builder.compile()
workflow = Workflow(name="router", build=lambda _: app, requests=requests(), labels=("answer",), score=answered)

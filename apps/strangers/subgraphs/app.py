"""A parent graph with a subgraph as a node and one called in a node, after LangGraph's guide to subgraphs."""

from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

llm = ChatOpenAI(model="big")


class State(TypedDict, total=False):
    question: str
    calculation: str
    result: str
    answer: str


class CheckState(TypedDict, total=False):
    text: str
    final: str


def clean(state: State):
    return {"calculation": llm.invoke(f"Rephrase as a bare calculation: {state['question']}").text}


def solve(state: State):
    return {"result": llm.invoke(f"Calculate {state['calculation']}. Number only.").text.strip()}


inner = StateGraph(State)
inner.add_node("clean", clean)
inner.add_node("solve", solve)
inner.add_edge(START, "clean")
inner.add_edge("clean", "solve")
inner.add_edge("solve", END)


def polish(state: CheckState):
    return {"final": llm.invoke(f"Copy the number and nothing else. Result: {state['text']}").text.strip()}


checker = StateGraph(CheckState)
checker.add_node("polish", polish)
checker.add_edge(START, "polish")
check_graph = checker.compile()


def finish(state: State):
    return {"answer": check_graph.invoke({"text": state["result"]})["final"]}


builder = StateGraph(State)
builder.add_node("work", inner.compile())
builder.add_node("finish", finish)
builder.add_edge(START, "work")
builder.add_edge("work", "finish")
builder.add_edge("finish", END)
graph = builder.compile()

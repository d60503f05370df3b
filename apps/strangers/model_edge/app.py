"""A conditional edge that asks a model which way to go, after the adaptive RAG example of LangGraph."""

from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

llm = ChatOpenAI(model="big", temperature=0)


class State(TypedDict, total=False):
    question: str
    notes: str
    answer: str


def route_question(state: State) -> str:
    kind = llm.invoke(f"Is this a sum or product? {state['question']}").text.strip()
    return "look_up" if kind == "product" else "respond"


def look_up(state: State):
    return {"notes": "the table of products"}


def respond(state: State):
    notes = state.get("notes", "none")
    return {"answer": llm.invoke(f"Notes: {notes}\n{state['question']} Number only.").text.strip()}


builder = StateGraph(State)
builder.add_node("look_up", look_up)
builder.add_node("respond", respond)
builder.add_conditional_edges(START, route_question, ["look_up", "respond"])
builder.add_edge("look_up", "respond")
builder.add_edge("respond", END)
graph = builder.compile()

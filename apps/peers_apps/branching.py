"""A reception that hands each question over to one of two desks by `Command`."""

from typing import Literal, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph
from langgraph.types import Command

llm = ChatOpenAI(model="gpt-4-1106-preview")


class State(TypedDict, total=False):
    question: str
    answer: str


def reception(state: State) -> Command[Literal["science_desk", "commonsense_desk"]]:
    kind = llm.invoke(f"Is this a question of science or of commonsense? Say one word.\n\n{state['question']}").text
    return Command(goto="science_desk" if "science" in kind else "commonsense_desk")


def science_desk(state: State) -> Command[Literal["__end__"]]:
    reply = llm.invoke(f"You work at the science desk.\n\n{state['question']}").text
    return Command(goto="__end__", update={"answer": reply})


def commonsense_desk(state: State) -> Command[Literal["__end__"]]:
    reply = llm.invoke(f"You work at the commonsense desk.\n\n{state['question']}").text
    return Command(goto="__end__", update={"answer": reply})


builder = StateGraph(State)
builder.add_node(reception)
builder.add_node(science_desk)
builder.add_node(commonsense_desk)
builder.add_edge(START, "reception")
graph = builder.compile()

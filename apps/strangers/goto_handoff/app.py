"""Nodes that say themselves where to go by `Command(goto=...)`, after LangGraph's guide to handoffs."""

from typing import Literal

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import BaseModel

model = ChatOpenAI(model="big")


class Desk(BaseModel):
    """Who takes the question."""

    desk: Literal["sum_desk", "product_desk"]


def reception(state: MessagesState) -> Command[Literal["sum_desk", "product_desk"]]:
    chosen = model.with_structured_output(Desk).invoke([("system", "Choose the desk for the caller."), *state["messages"]])
    return Command(goto=chosen.desk)


def sum_desk(state: MessagesState) -> Command[Literal["__end__"]]:
    reply = model.invoke([("system", "You add. Number only."), *state["messages"]])
    return Command(goto=END, update={"messages": [reply]})


def product_desk(state: MessagesState) -> Command[Literal["__end__"]]:
    reply = model.invoke([("system", "You multiply. Number only."), *state["messages"]])
    return Command(goto=END, update={"messages": [reply]})


builder = StateGraph(MessagesState)
builder.add_node(reception)
builder.add_node(sum_desk)
builder.add_node(product_desk)
builder.add_edge(START, "reception")
graph = builder.compile()

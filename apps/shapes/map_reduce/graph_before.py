"""Map-reduce: one branch per subject, as many as the model finds; then the best of them."""

import operator
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from pydantic import BaseModel, Field


class Subjects(BaseModel):
    """The orders in the text."""

    subjects: list[str] = Field(description="each order as it stands in the text")


class BestOrder(BaseModel):
    """The order that is worth most."""

    id: int = Field(description="index of the best order, starting with 0")


class OverallState(TypedDict, total=False):
    topic: str
    subjects: list[str]
    values: Annotated[list[str], operator.add]
    best_selected: str


class OrderState(TypedDict):
    subject: str


def build(llm):
    def generate_topics(state: OverallState):
        found = llm.with_structured_output(Subjects).invoke(f"List the orders in this text: {state['topic']}")
        return {"subjects": found.subjects}

    def generate_value(state: OrderState):
        value = llm.invoke(f"What is this order worth? Answer with the number only. {state['subject']}").text
        return {"values": [f"{state['subject']} = {value}"]}

    def best_order(state: OverallState):
        listed = "\n".join(state["values"])
        best = llm.with_structured_output(BestOrder).invoke(f"Which of these is worth most?\n{listed}")
        return {"best_selected": state["values"][min(best.id, len(state["values"]) - 1)]}

    def continue_to_values(state: OverallState):
        return [Send("generate_value", {"subject": s}) for s in state["subjects"]]

    graph = StateGraph(OverallState)
    graph.add_node("generate_topics", generate_topics)
    graph.add_node("generate_value", generate_value)
    graph.add_node("best_order", best_order)
    graph.add_edge(START, "generate_topics")
    graph.add_conditional_edges("generate_topics", continue_to_values, ["generate_value"])
    graph.add_edge("generate_value", "best_order")
    graph.add_edge("best_order", END)
    return graph.compile()

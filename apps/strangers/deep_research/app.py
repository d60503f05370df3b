"""A brief, two researchers side by side by `Send`, and a report, after the deep research agents of the LangChain team."""

import operator
from typing import Annotated, TypedDict

from langchain.chat_models import init_chat_model
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from pydantic import BaseModel, Field

llm = init_chat_model("big", model_provider="openai")


class Sections(BaseModel):
    """What to look into."""

    sections: list[str] = Field(min_length=2, max_length=2)


class State(TypedDict, total=False):
    topic: str
    brief: str
    sections: list[str]
    notes: Annotated[list[str], operator.add]
    answer: str


class Section(TypedDict):
    number: int
    section: str


def write_brief(state: State):
    return {"brief": llm.invoke(f"Rephrase as a brief: {state['topic']}").text}


def plan(state: State):
    return {"sections": llm.with_structured_output(Sections).invoke(f"Plan the sections for: {state['brief']}").sections}


def assign(state: State):
    return [Send("research", {"number": i, "section": text}) for i, text in enumerate(state["sections"])]


def research(state: Section):
    found = llm.invoke(f"Researcher {state['number']}: {state['section']}. Number only.").text.strip()
    return {"notes": [f"researcher {state['number']} claims {found}"]}


def report(state: State):
    notes = "\n".join(state["notes"])
    return {"answer": llm.invoke(f"Notes:\n{notes}\nDecide, and give the number only: {state['brief']}").text.strip()}


builder = StateGraph(State)
for node in (write_brief, plan, research, report):
    builder.add_node(node.__name__, node)
builder.add_edge(START, "write_brief")
builder.add_edge("write_brief", "plan")
builder.add_conditional_edges("plan", assign, ["research"])
builder.add_edge("research", "report")
builder.add_edge("report", END)
graph = builder.compile()

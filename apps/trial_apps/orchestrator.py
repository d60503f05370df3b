"""A planner cuts the work into parts, workers do them side by side, one model puts them together."""

import operator
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from pydantic import BaseModel, Field

from trial_apps.questions import MODELS, answered, requests
from vinelm import Stage, Template, VineLM, Workflow

vine = VineLM(MODELS)
planner = vine.chat_model("orchestrate")
worker = vine.chat_model("work")
writer = vine.chat_model("synthesize")


class Parts(BaseModel):
    """The parts of the work."""

    parts: list[str] = Field(min_length=2, max_length=2, description="independent parts")


class State(TypedDict, total=False):
    question: str
    parts: list[str]
    done: Annotated[list[str], operator.add]
    answer: str


class Part(TypedDict):
    part: str


def orchestrate(state: State):
    plan = planner.with_structured_output(Parts).invoke(f"Cut into two parts: {state['question']}")
    return {"parts": plan.parts}


def work(state: Part):
    return {"done": [worker.invoke(f"Do this: {state['part']}").text]}


def synthesize(state: State):
    return {"answer": writer.invoke(f"Parts: {' '.join(state['done'])}. {state['question']} Number only.").text}


builder = StateGraph(State)
builder.add_node("orchestrate", orchestrate)
builder.add_node("work", work)
builder.add_node("synthesize", synthesize)
builder.add_edge(START, "orchestrate")
builder.add_conditional_edges("orchestrate", lambda s: [Send("work", {"part": part}) for part in s["parts"]], ["work"])
builder.add_edge("work", "synthesize")
builder.add_edge("synthesize", END)
app = builder.compile()

workflow = Workflow(
    name="orchestrator",
    template=Template((Stage("orchestrate"), Stage("work"), Stage("synthesize"))),
    build=lambda _: app,
    requests=requests(),
    labels=("answer",),
    score=answered,
)

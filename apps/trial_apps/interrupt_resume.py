"""A person looks at the draft before the final answer; while profiling nobody is asked."""

from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from trial_apps.questions import MODELS, answered, requests
from vinelm import Stage, Template, VineLM, Workflow

vine = VineLM(MODELS)
drafter, finisher = vine.chat_model("draft"), vine.chat_model("finish")


class State(TypedDict, total=False):
    question: str
    draft: str
    is_watched: bool
    remark: str
    answer: str


def draft(state: State):
    return {"draft": drafter.invoke(f"{state['question']} Number only.").text}


def ask_person(state: State):
    return {"remark": interrupt({"draft": state["draft"]}) if state.get("is_watched") else "fine"}


def finish(state: State):
    return {"answer": finisher.invoke(f"Draft {state['draft']}, remark {state['remark']}. {state['question']}").text}


builder = StateGraph(State)
builder.add_node("draft", draft)
builder.add_node("ask_person", ask_person)
builder.add_node("finish", finish)
builder.add_edge(START, "draft")
builder.add_edge("draft", "ask_person")
builder.add_edge("ask_person", "finish")
builder.add_edge("finish", END)
app = builder.compile(checkpointer=InMemorySaver())

workflow = Workflow(
    name="interrupt-resume",
    template=Template((Stage("draft"), Stage("finish"))),
    build=lambda _: app,
    requests=requests(),
    labels=("answer",),
    score=answered,
)
RESUMES_WITH = "fine"

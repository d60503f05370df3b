"""Two different stages in one superstep, then one that joins them; the template is read from the graph."""

from typing import TypedDict

from langgraph.graph import START, StateGraph

from trial_apps.questions import MODELS, answered, requests
from vinelm import VineLM, Workflow

vine = VineLM(MODELS)
llm = vine.chat_model()


class State(TypedDict, total=False):
    question: str
    pros: str
    cons: str
    answer: str


builder = StateGraph(State)
builder.add_node("pros", lambda s: {"pros": llm.invoke(s["question"]).text})
builder.add_node("cons", lambda s: {"cons": llm.invoke(s["question"]).text})
builder.add_node("join", lambda s: {"answer": llm.invoke(f"{s['pros']} or {s['cons']}? {s['question']}").text})
builder.add_edge(START, "pros")
builder.add_edge(START, "cons")
builder.add_edge(["pros", "cons"], "join")
app = builder.compile()
workflow = Workflow(
    name="side-by-side",
    build=lambda _: app,
    requests=requests(),
    labels=("answer",),
    score=answered,
)

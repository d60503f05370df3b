"""Plan, execute the next step, decide whether to go on."""

from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field

from trial_apps.questions import MODELS, answered, requests
from vinelm import Loop, Stage, Template, VineLM, Workflow

vine = VineLM(MODELS)
llm = vine.chat_model()


class Plan(BaseModel):
    """Steps in order."""

    steps: list[str] = Field(min_length=1, description="what to do")


class Review(BaseModel):
    """Whether the work is done."""

    is_done: bool = Field(description="the result answers the question")


class State(TypedDict, total=False):
    question: str
    steps: list[str]
    answer: str
    is_done: bool
    rounds: int


def plan(state: State):
    return {"steps": llm.with_structured_output(Plan, method="function_calling").invoke(state["question"]).steps}


def execute(state: State):
    prompt = f"{state['steps'][0]}. Before: {state.get('answer', 'nothing')}. {state['question']} Number only."
    return {"answer": llm.invoke(prompt).text, "rounds": state.get("rounds", 0) + 1}


def review(state: State):
    found = llm.with_structured_output(Review).invoke(f"{state['question']} Proposed: {state['answer']}")
    return {"is_done": found.is_done}


builder = StateGraph(State)
builder.add_node("plan", plan)
builder.add_node("execute", execute)
builder.add_node("review", review)
builder.add_edge(START, "plan")
builder.add_edge("plan", "execute")
builder.add_edge("execute", "review")
builder.add_conditional_edges("review", lambda s: END if s["is_done"] or s["rounds"] >= 2 else "execute", ["execute", END])
app = builder.compile()

workflow = Workflow(
    name="plan-execute",
    template=Template((Stage("plan"), Loop((Stage("execute"), Stage("review")), times=2))),
    build=lambda _: app,
    requests=requests(),
    labels=("answer",),
    score=answered,
)

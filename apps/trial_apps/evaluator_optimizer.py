"""One model writes, another judges with a typed verdict, until it is content or has judged twice."""

from typing import Literal, TypedDict

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field

from trial_apps.questions import MODELS, answered, requests
from vinelm import Loop, Stage, Template, VineLM, Workflow

vine = VineLM(MODELS)
llm = vine.chat_model()  # each node is a stage


class Feedback(BaseModel):
    """A verdict on an answer."""

    grade: Literal["accept", "revise"] = Field(description="whether the answer is right")
    feedback: str = Field(description="what to do better")


class State(TypedDict, total=False):
    question: str
    answer: str
    feedback: str
    grade: str
    rounds: int


writer = ChatPromptTemplate.from_template("{question} Answer with a number only. {feedback}") | llm | StrOutputParser()
judge = ChatPromptTemplate.from_template("{question} Proposed: {answer}") | llm.with_structured_output(Feedback)


def generate(state: State):
    return {"answer": writer.invoke({"question": state["question"], "feedback": state.get("feedback", "")})}


def evaluate(state: State):
    verdict = judge.invoke({"question": state["question"], "answer": state["answer"]})
    rounds = state.get("rounds", 0) + 1
    return {"grade": verdict.grade, "feedback": f"(try {rounds}) not {state['answer']}", "rounds": rounds}


def route(state: State):
    return END if state["grade"] == "accept" or state["rounds"] >= 2 else "generate"


builder = StateGraph(State)
builder.add_node("generate", generate)
builder.add_node("evaluate", evaluate)
builder.add_edge(START, "generate")
builder.add_edge("generate", "evaluate")
builder.add_conditional_edges("evaluate", route, ["generate", END])
app = builder.compile()

workflow = Workflow(
    name="evaluator-optimizer",
    template=Template((Loop((Stage("generate"), Stage("evaluate")), times=2),)),
    build=lambda _: app,
    requests=requests(),
    labels=("answer",),
    score=answered,
)

"""Answer from what was found, criticize, rewrite the question and look again: the way out is in the middle of the loop."""

from typing import TypedDict

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import END, START, StateGraph

from trial_apps.questions import MODELS, answered, requests
from vinelm import Loop, Stage, Template, VineLM, Workflow

vine = VineLM(MODELS)
llm = vine.chat_model()


class State(TypedDict, total=False):
    question: str
    search: str
    found: str
    answer: str
    verdict: str
    tries: int


ANSWER = ChatPromptTemplate.from_template("Context {tries}: {found}\n{question} Number only.") | llm | StrOutputParser()
CRITIC = ChatPromptTemplate.from_template("{question} Proposed: {answer}. Say PASS or FAIL.") | llm | StrOutputParser()
REWRITE = ChatPromptTemplate.from_template("Rephrase for a search: {question}") | llm | StrOutputParser()


def retrieve(state: State):
    return {"found": f"notes on {state.get('search', state['question'])}", "tries": state.get("tries", 0) + 1}


def answer(state: State):
    return {"answer": ANSWER.invoke(state)}


def critique(state: State):
    return {"verdict": CRITIC.invoke(state)}


def rewrite(state: State):
    return {"search": REWRITE.invoke(state)}


def build(vine):
    builder = StateGraph(State)
    for name, node in (("retrieve", retrieve), ("answer", answer), ("critique", critique), ("rewrite", rewrite)):
        builder.add_node(name, node)
    builder.add_edge(START, "retrieve")
    builder.add_edge("retrieve", "answer")
    builder.add_edge("answer", "critique")
    builder.add_conditional_edges("critique", vine.route(lambda s: s["verdict"] == "PASS", again="rewrite", end=END, times=2))
    builder.add_edge("rewrite", "retrieve")
    return builder.compile()


app = build(vine)
workflow = Workflow(
    name="rag",
    template=Template((Loop((Stage("answer"), Stage("critique"), Stage("rewrite")), times=3),)),
    build=build,
    requests=requests(),
    labels=("answer",),
    score=answered,
)

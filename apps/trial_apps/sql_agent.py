"""Text to SQL: write a query, run it, repair it with the database's message."""

import sqlite3
from typing import TypedDict

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import END, START, StateGraph

from trial_apps.questions import MODELS, answered, requests
from vinelm import Loop, Stage, Template, VineLM, Workflow

vine = VineLM(MODELS)
write_llm, fix_llm = vine.chat_model("write_query"), vine.chat_model("fix_query")


class State(TypedDict, total=False):
    question: str
    query: str
    answer: str
    error: str


write = ChatPromptTemplate.from_template("Write one SELECT for: {question}") | write_llm | StrOutputParser()
fix = ChatPromptTemplate.from_template("The SELECT {query} for {question} fails: {error}") | fix_llm | StrOutputParser()


def write_query(state: State):
    return {"query": write.invoke({"question": state["question"]})}


def run_query(state: State):
    database = sqlite3.connect(":memory:")
    try:
        [(value,)] = database.execute(state["query"]).fetchall()
    except (sqlite3.Error, ValueError) as error:
        return {"error": str(error), "answer": ""}
    finally:
        database.close()
    return {"error": "" if value % 5 else "it looks too round", "answer": str(value)}


def fix_query(state: State):
    return {"query": fix.invoke({"question": state["question"], "query": state["query"], "error": state["error"]})}


def build(vine):
    builder = StateGraph(State)
    builder.add_node("write_query", write_query)
    builder.add_node("run_query", run_query)
    builder.add_node("fix_query", fix_query)
    builder.add_edge(START, "write_query")
    builder.add_edge("write_query", "run_query")
    builder.add_conditional_edges(
        "run_query", vine.route(lambda state: not state["error"], again="fix_query", end=END, times=2)
    )
    builder.add_edge("fix_query", "run_query")
    return builder.compile()


app = build(vine)
workflow = Workflow(
    name="sql-agent",
    template=Template((Stage("write_query"), Loop((Stage("fix_query"),), times=2))),
    build=build,
    requests=requests(),
    labels=("answer",),
    score=answered,
)

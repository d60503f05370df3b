"""Retrieve, grade what was found, rewrite the question or generate, after the agentic RAG tutorial of LangGraph."""

from typing import Literal, TypedDict

from langchain.chat_models import init_chat_model
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel

answer_model = init_chat_model("openai:big")
grader_model = init_chat_model("openai:big", temperature=0)
MAX_REWRITES = 1


class State(TypedDict, total=False):
    question: str
    query: str
    documents: str
    relevant: str
    rewrites: int
    answer: str


class Grade(BaseModel):
    """Whether the documents are relevant."""

    relevant: Literal["yes", "no"]


def retrieve(state: State):
    query = state.get("query") or state["question"]
    return {"documents": f"Arithmetic, chapter {len(query) % 7 + 1}: how to work out {query}"}


def grade_documents(state: State):
    prompt = f"Documents: {state['documents']}\nQuestion: {state['question']}\nAre they relevant?"
    return {"relevant": grader_model.with_structured_output(Grade).invoke(prompt).relevant}


def is_relevant(state: State):
    enough = state["relevant"] == "yes" or state.get("rewrites", 0) >= MAX_REWRITES
    return "generate" if enough else "rewrite"


def rewrite(state: State):
    text = grader_model.invoke(f"Rephrase for a search: {state['question']}").text
    return {"query": text, "rewrites": state.get("rewrites", 0) + 1}


def generate(state: State):
    prompt = f"Context: {state['documents']}\nQuestion: {state['question']}\nReply with the number only."
    return {"answer": answer_model.invoke(prompt).text.strip()}


builder = StateGraph(State)
builder.add_node("retrieve", retrieve)
builder.add_node("grade_documents", grade_documents)
builder.add_node("rewrite", rewrite)
builder.add_node("generate", generate)
builder.add_edge(START, "retrieve")
builder.add_edge("retrieve", "grade_documents")
builder.add_conditional_edges("grade_documents", is_relevant, ["generate", "rewrite"])
builder.add_edge("rewrite", "retrieve")
builder.add_edge("generate", END)
graph = builder.compile()

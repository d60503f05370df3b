"""An assistant for e-mail: triage, a draft, a person's approval, a store, after the e-mail course of LangChain."""

from typing import Literal, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import interrupt
from pydantic import BaseModel

triage_llm = ChatOpenAI(model="big", temperature=0)
writer_llm = ChatOpenAI(model="big")
store = InMemoryStore()
store.put(("assistant", "preferences"), "tone", {"text": "short and friendly"})


class State(TypedDict, total=False):
    email: str
    decision: str
    draft: str
    answer: str


class Triage(BaseModel):
    """What to do with an e-mail."""

    decision: Literal["respond", "ignore"]


def triage(state: State):
    found = triage_llm.with_structured_output(Triage).invoke(f"What is to be done with this e-mail? {state['email']}")
    return {"decision": found.decision}


def draft(state: State, *, store: BaseStore):
    tone = store.get(("assistant", "preferences"), "tone").value["text"]
    reply = writer_llm.invoke(f"Tone: {tone}. Answer this e-mail with the number only: {state['email']}")
    return {"draft": reply.text.strip()}


def approve(state: State):
    decision = interrupt({"draft": state["draft"], "question": "Send it?"})
    return {"answer": state["draft"] if decision == "accept" else ""}


def wanted(state: State):
    return "draft" if state["decision"] == "respond" else END


builder = StateGraph(State)
builder.add_node("triage", triage)
builder.add_node("draft", draft)
builder.add_node("approve", approve)
builder.add_edge(START, "triage")
builder.add_conditional_edges("triage", wanted, ["draft", END])
builder.add_edge("draft", "approve")
builder.add_edge("approve", END)
graph = builder.compile(checkpointer=InMemorySaver(), store=store)

"""Two analysts debate for a fixed number of turns and a manager decides, after the TradingAgents framework on GitHub."""

from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

quick_llm = ChatOpenAI(model="mid")
deep_llm = ChatOpenAI(model="big")
ROUNDS = 1


class Debate(TypedDict, total=False):
    topic: str
    history: str
    turns: int
    answer: str


class Analyst:
    """One side of the debate."""

    def __init__(self, name: str, llm: ChatOpenAI) -> None:
        self.name, self.llm = name, llm

    def __call__(self, state: Debate):
        said = self.llm.invoke(f"You are the {self.name}. Work it out: {state['topic']} Number only.").text.strip()
        history = state.get("history", "") + f"\n{self.name} claims {said}"
        return {"history": history, "turns": state.get("turns", 0) + 1}


def manage(state: Debate):
    prompt = f"Debate:{state['history']}\nDecide, and give the number only: {state['topic']}"
    return {"answer": deep_llm.invoke(prompt).text.strip()}


def goes_on(state: Debate):
    return "bull" if state["turns"] < 2 * ROUNDS else "manager"


builder = StateGraph(Debate)
builder.add_node("bull", Analyst("bull", quick_llm))
builder.add_node("bear", Analyst("bear", quick_llm))
builder.add_node("manager", manage)
builder.add_edge(START, "bull")
builder.add_edge("bull", "bear")
builder.add_conditional_edges("bear", goes_on, ["bull", "manager"])
builder.add_edge("manager", END)
graph = builder.compile()

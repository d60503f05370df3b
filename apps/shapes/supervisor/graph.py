"""Supervisor: a model hands each piece of work to one of three agents, which are graphs of their own."""

from typing import Literal

from langchain.agents import create_agent
from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import BaseModel, Field
from shapes.shop import calculate
from shapes.towns import WEB, search


class Router(BaseModel):
    """Worker to route to next. If no workers needed, route to FINISH."""

    next: Literal["researcher", "calculator", "writer", "FINISH"] = Field(description="who acts next")


@tool
def look_up(query: str) -> str:
    """Search the facts about towns."""
    return "\n".join(search(query, WEB, k=1))


SYSTEM = SystemMessage(
    "You manage three workers: researcher (facts about towns), calculator (sums), writer (the final sentence). "
    "Say who acts next, or FINISH when the writer is done."
)


def build(vine):
    llm = vine.chat_model("supervisor")
    researcher = create_agent(vine.chat_model("researcher"), tools=[look_up], system_prompt="Look up facts.", name="researcher")
    calculator = create_agent(vine.chat_model("calculator"), tools=[calculate], system_prompt="Calculate.", name="calculator")
    writer = create_agent(vine.chat_model("writer"), tools=[], system_prompt="Write: <town> has <number> more.", name="writer")

    def supervisor(state: MessagesState) -> Command[Literal["researcher", "calculator", "writer", "__end__"]]:
        response = llm.with_structured_output(Router).invoke([SYSTEM, *state["messages"]])
        return Command(goto=END if response.next == "FINISH" else response.next)

    builder = StateGraph(MessagesState)
    builder.add_node("supervisor", supervisor)
    builder.add_node("researcher", researcher)
    builder.add_node("calculator", calculator)
    builder.add_node("writer", writer)
    builder.add_edge(START, "supervisor")
    builder.add_edge("researcher", "supervisor")
    builder.add_edge("calculator", "supervisor")
    builder.add_edge("writer", "supervisor")
    return builder.compile()

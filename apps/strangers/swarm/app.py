"""A swarm of two agents: the active one answers or hands over, after the README of langgraph-swarm, rebuilt with `Command`."""

from typing import Annotated, NotRequired

from langchain.agents import AgentState, create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.types import Command


class SwarmState(AgentState):
    active_agent: NotRequired[str]


def handoff_to(agent: str, name: str):
    @tool(name, description=f"Hand the conversation over to {agent}.")
    def hand_over(state: Annotated[dict, InjectedState], call_id: Annotated[str, InjectedToolCallId]):
        done = ToolMessage(f"Handed over to {agent}.", tool_call_id=call_id)
        update = {"messages": [*state["messages"], done], "active_agent": agent}
        return Command(goto=agent, graph=Command.PARENT, update=update)

    return hand_over


@tool
def sum_tool(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def product_tool(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


alice = create_agent(
    "openai:big",
    tools=[sum_tool, handoff_to("bob", "ask_bob_for_product")],
    system_prompt="You are Alice. You add numbers; products are Bob's.",
    state_schema=SwarmState,
    name="alice",
)
bob = create_agent(
    "openai:big",
    tools=[product_tool, handoff_to("alice", "ask_alice_for_sum")],
    system_prompt="You are Bob. You multiply numbers; sums are Alice's.",
    state_schema=SwarmState,
    name="bob",
)


def active_agent(state: SwarmState) -> str:
    return state.get("active_agent") or "alice"


builder = StateGraph(SwarmState)
builder.add_node("alice", alice, destinations=("bob",))
builder.add_node("bob", bob, destinations=("alice",))
builder.add_conditional_edges(START, active_agent, ["alice", "bob"])
graph = builder.compile()

"""Agents that work together, built as the packages for supervisors, swarms and deep agents build them."""

from typing import Annotated, Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware, TodoListMiddleware
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command


def hand_off(agent: str) -> Any:
    """A tool that hands the conversation to another agent."""

    @tool(f"transfer_to_{agent}", description=f"Ask {agent}")
    def transfer(call_id: Annotated[str, InjectedToolCallId]) -> Command:
        said = ToolMessage(f"over to {agent}", tool_call_id=call_id)
        return Command(graph=Command.PARENT, goto=agent, update={"messages": [said]})

    return transfer


def create_supervisor(agents: list[Any], *, model: BaseChatModel) -> StateGraph:
    """A supervisor that hands off to agents, which report back."""
    names = [agent.name for agent in agents]
    builder = StateGraph(MessagesState)
    builder.add_node("supervisor", create_agent(model, [hand_off(name) for name in names]), destinations=(*names, END))
    builder.add_edge(START, "supervisor")
    for agent in agents:
        builder.add_node(agent.name, lambda state, agent=agent: {"messages": agent.invoke(state)["messages"][-1:]})
        builder.add_edge(agent.name, "supervisor")
    return builder


def create_swarm(agents: dict[str, Any]) -> StateGraph:
    """Agents that hand off to each other."""
    builder = StateGraph(MessagesState)
    builder.add_conditional_edges(START, lambda state: next(iter(agents)), list(agents))
    for name, agent in agents.items():
        builder.add_node(name, agent, destinations=tuple(other for other in agents if other != name))
    return builder


def create_deep_agent(model: str | BaseChatModel, tools: list[Any], *, subagents: list[dict[str, Any]]) -> CompiledStateGraph:
    """An agent that plans, summarises, and gives tasks to agents of its own."""
    model = init_chat_model(model) if isinstance(model, str) else model
    inner = {one["name"]: create_agent(one.get("model", model), tools, system_prompt=one["system_prompt"]) for one in subagents}

    def task(description: str, agent: str) -> str:
        return inner[agent].invoke({"messages": description})["messages"][-1].text if agent in inner else "nobody"

    tasks = StructuredTool.from_function(task, name="task", description="Give a task to an agent")
    summaries = SummarizationMiddleware(model=model, trigger=("tokens", 100_000))
    made = create_agent(model, [*tools, tasks], middleware=[TodoListMiddleware(), summaries])
    return made.with_config({"recursion_limit": 1000})

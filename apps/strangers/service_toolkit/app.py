"""A service's agent: async nodes, a guard before the model, models by name, after the agent service toolkit on GitHub."""

from enum import StrEnum
from functools import cache

from langchain_core.messages import AIMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode


class ModelName(StrEnum):
    BEST = "big"
    QUICK = "mid"


class AgentState(MessagesState, total=False):
    safety: str


@cache
def get_model(name: str) -> ChatOpenAI:
    return ChatOpenAI(model=name, temperature=0.5, streaming=True)


@tool
def sum_tool(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def product_tool(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


TOOLS = [sum_tool, product_tool]


async def guard_input(state: AgentState):
    reply = await get_model(ModelName.QUICK).ainvoke(f"Is this request safe? Say PASS or FAIL. {state['messages'][-1].text}")
    return {"safety": reply.text.strip()}


async def acall_model(state: AgentState, config: RunnableConfig):
    name = config.get("configurable", {}).get("model", ModelName.BEST)
    model = get_model(name).bind_tools(TOOLS)
    reply = await model.ainvoke([SystemMessage("You are a helpful assistant with a calculator."), *state["messages"]])
    return {"messages": [reply]}


async def block(state: AgentState):
    return {"messages": [AIMessage("This request was blocked.")]}


def is_safe(state: AgentState):
    return "safe" if state["safety"] == "PASS" else "unsafe"


def pending_tools(state: AgentState):
    return "tools" if state["messages"][-1].tool_calls else "done"


agent = StateGraph(AgentState)
agent.add_node("guard_input", guard_input)
agent.add_node("model", acall_model)
agent.add_node("tools", ToolNode(TOOLS))
agent.add_node("block", block)
agent.add_edge(START, "guard_input")
agent.add_conditional_edges("guard_input", is_safe, {"safe": "model", "unsafe": "block"})
agent.add_edge("block", END)
agent.add_edge("tools", "model")
agent.add_conditional_edges("model", pending_tools, {"tools": "tools", "done": END})
graph = agent.compile()

"""A supervisor hands each question to one of two experts by a tool, after the README of langgraph-supervisor."""

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph

model = init_chat_model("openai:big")


@tool
def transfer_to_sum_expert() -> str:
    """Ask the expert on sums."""
    return "transferred"


@tool
def transfer_to_product_expert() -> str:
    """Ask the expert on products."""
    return "transferred"


@tool
def sum_tool(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def product_tool(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


sum_expert = create_agent(model, tools=[sum_tool], system_prompt="You add numbers.", name="sum_expert")
product_expert = create_agent(model, tools=[product_tool], system_prompt="You multiply numbers.", name="product_expert")
chooser = model.bind_tools([transfer_to_sum_expert, transfer_to_product_expert])
PROMPT = {"role": "system", "content": "You lead two experts. Hand the task over; once there is a number, repeat it."}


def supervisor(state: MessagesState):
    answer = chooser.invoke([PROMPT, *state["messages"]])
    handed = [ToolMessage(f"Handed over by {call['name']}.", tool_call_id=call["id"]) for call in answer.tool_calls]
    return {"messages": [answer, *handed]}


def next_agent(state: MessagesState):
    last = state["messages"][-1]
    if not isinstance(last, ToolMessage):
        return END
    return "sum_expert" if "sum_expert" in last.text else "product_expert"


builder = StateGraph(MessagesState)
builder.add_node("supervisor", supervisor)
builder.add_node("sum_expert", sum_expert)
builder.add_node("product_expert", product_expert)
builder.add_edge(START, "supervisor")
builder.add_conditional_edges("supervisor", next_agent, ["sum_expert", "product_expert", END])
builder.add_edge("sum_expert", "supervisor")
builder.add_edge("product_expert", "supervisor")
graph = builder.compile(name="team")

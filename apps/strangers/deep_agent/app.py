"""A planner that keeps a list of things to do and gives tasks to sub-agents, after the deepagents package, rebuilt by hand."""

from typing import Literal

from langchain.agents import create_agent
from langchain_core.tools import tool

SUB_AGENTS = [
    {"name": "sum_worker", "model": "openai:mid", "prompt": "You only add numbers. Reply with the number."},
    {"name": "product_worker", "model": "openai:big", "prompt": "You only multiply numbers. Reply with the number."},
]
workers = {one["name"]: create_agent(one["model"], tools=[], system_prompt=one["prompt"]) for one in SUB_AGENTS}


@tool
def write_todos(todos: list[str]) -> str:
    """Write down what is to be done, before it is done."""
    return f"Written down, {len(todos)} to do."


@tool
def task(description: str, worker: Literal["sum_worker", "product_worker"]) -> str:
    """Give a task to a worker, who sees nothing but its description."""
    state = workers[worker].invoke({"messages": [{"role": "user", "content": description}]})
    return state["messages"][-1].text


graph = create_agent(
    "openai:big",
    tools=[write_todos, task],
    system_prompt="Plan first, then give the work away. End with the number and nothing else.",
)

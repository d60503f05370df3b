"""An agent with a calculator and two pieces of middleware, after the middleware guide of LangChain."""

from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware, dynamic_prompt
from langchain_core.tools import tool


@tool
def calculate_sum(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def calculate_product(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@dynamic_prompt
def be_brief(request) -> str:
    return "You are a careful accountant. Use a tool once, then give the number and nothing else."


graph = create_agent(
    "openai:big",
    tools=[calculate_sum, calculate_product],
    middleware=[be_brief, ModelCallLimitMiddleware(run_limit=4, exit_behavior="end")],
)

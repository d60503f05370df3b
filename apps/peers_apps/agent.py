"""An agent with a calculator, after the first guide of LangChain."""

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model="big")


@tool
def calculate_sum(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def calculate_product(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


PROMPT = "You are a careful accountant. Use a tool once, then give the number and nothing else."
graph = create_agent(llm, [calculate_sum, calculate_product], system_prompt=PROMPT)

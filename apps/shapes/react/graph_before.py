"""ReAct: an agent with tools that goes on until it has the answer."""

from langchain.agents import create_agent
from shapes.shop import calculate, price

PROMPT = (
    "You answer what goods cost. Look up one price at a time, let the calculator do the sum, answer with the number in EUR."
)


def build(llm):
    return create_agent(llm, tools=[price, calculate], system_prompt=PROMPT)

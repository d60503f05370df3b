"""A ReAct agent with three tools that answers what goods cost."""

from __future__ import annotations

import ast
import operator
import re
from typing import Any, NotRequired

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware, ModelCallLimitMiddleware
from langchain_core.messages import AIMessage

from vinelm import VineChatModel, VineMiddleware

PRICES_EUR = {
    "lamp": 24.5,
    "desk": 189.0,
    "chair": 74.9,
    "shelf": 55.25,
    "mirror": 39.0,
    "rug": 120.8,
    "clock": 18.35,
    "sofa": 649.0,
}
RATES = {"EUR": 1.0, "USD": 1.08, "GBP": 0.85, "CHF": 0.95, "SEK": 11.4, "JPY": 162.0}
PROMPT = (
    "You answer what goods cost. Look prices and rates up, and let the calculator do the sums. "
    "Answer with the amount, two decimals, and the currency, such as 12.50 USD."
)
_OPERATORS: dict[type, Any] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def price(item: str) -> str:
    """The price of one piece, in EUR."""
    known = ", ".join(PRICES_EUR)
    return f"{PRICES_EUR[item]} EUR" if item in PRICES_EUR else f"error: no item {item!r}: there are {known}"


def exchange_rate(currency: str) -> str:
    """How much of a currency one EUR buys."""
    return str(RATES[currency]) if currency in RATES else f"error: no rate for {currency!r}: there are {', '.join(RATES)}"


def calculate(expression: str) -> str:
    """The value of a sum of numbers with + - * / and brackets."""
    try:
        return str(round(_value(ast.parse(expression, mode="eval").body), 6))
    except (SyntaxError, ValueError, ZeroDivisionError) as error:
        return f"error: {error}"


AGENT: dict[str, Any] = {"tools": [price, exchange_rate, calculate], "system_prompt": PROMPT}
_AMOUNT = re.compile(r"(-?\d+(?:\.\d+)?) ([A-Z]{3})\b")


class AnswerState(AgentState):
    """The agent's state with the amount that its last message states; None while it still calls tools."""

    amount: NotRequired[str | None]


class StatedAmount(AgentMiddleware[AnswerState]):
    """Writes the amount of the agent's answer to a key of its own."""

    state_schema = AnswerState

    def after_model(self, state: AnswerState, runtime: Any) -> dict[str, Any]:
        """Read it off the last message."""
        last = state["messages"][-1]
        answers = isinstance(last, AIMessage) and not last.tool_calls
        return {"amount": stated_amount(last.text) if answers else None}


def stated_amount(text: str) -> str | None:
    """The last amount that a text states, with two decimals, and its currency; None without one."""
    found = _AMOUNT.findall(text)
    return f"{float(found[-1][0]):.2f} {found[-1][1]}" if found else None


MIDDLEWARE: list[Any] = [StatedAmount(), ModelCallLimitMiddleware(run_limit=5)]


def build(vine: Any) -> Any:
    """The agent, compiled."""
    return create_agent(
        VineChatModel(vine=vine, stage="model"),
        **AGENT,
        middleware=[*MIDDLEWARE, VineMiddleware(vine)],
    )


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        value: float = _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
        return value
    raise ValueError("only numbers, + - * / and brackets")

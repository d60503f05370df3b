"""A scripted model that asks the shop's tools, one call at a time, until it can answer."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class ScriptedClerk(BaseChatModel):
    """Reads only what the conversation shows, as a model would, and takes ``think_s`` seconds for each step."""

    think_s: float = 0.0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Take any tools."""
        return self.bind(tools=["bound"])

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        time.sleep(self.think_s)
        return ChatResult(generations=[ChatGeneration(message=next_message(messages))])


def next_message(messages: Sequence[BaseMessage]) -> AIMessage:
    """Return the next call of a tool, or the answer.

    A question about the newest order is answered by that one, any other by all of them.
    """
    question = next(message.text for message in messages if isinstance(message, HumanMessage))
    results = [json.loads(message.text) for message in messages if isinstance(message, ToolMessage)]
    customer = next((found for found in results if "orders" in found), None)
    if customer is None:
        return (
            AIMessage("I do not know you.") if results else _call("get_customer", "customer", question.split()[-1].rstrip("."))
        )
    wanted = customer["orders"][-1:] if "newest" in question else customer["orders"]
    orders = {found["order"]: found["items"] for found in results if "items" in found}
    prices = {found["product"]: found["price"] for found in results if "price" in found}
    for order in wanted:
        if order not in orders:
            return _call("get_order", "order", order)
    items = [item for order in wanted for item in orders[order]]
    for item in items:
        if item["product"] not in prices:
            return _call("get_product", "product", item["product"])
    total = sum(item["pieces"] * prices[item["product"]] for item in items)
    return AIMessage(f"{', '.join(wanted)}: {total:.2f} EUR")


def _call(tool: str, name: str, value: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool, "args": {name: value}, "id": f"{tool} {value}"}])

"""An agent that answers customers of a shop, with three HTTP tools that only read."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

from langchain.agents import create_agent

from vinelm import VineLM, VineMiddleware


def build(vine: VineLM, model: Any, address: str) -> Any:
    """The agent, compiled; its tools ask the shop at ``address``."""

    def ask(kind: str, name: str) -> dict[str, Any]:
        try:
            with urlopen(f"{address}/{kind}/{quote(name, safe='')}", timeout=30) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except HTTPError:
            return {"error": f"nothing is known of {name!r} among the {kind}"}

    def get_customer(customer: str) -> dict[str, Any]:
        """The orders of a customer."""
        return ask("customers", customer)

    def get_order(order: str) -> dict[str, Any]:
        """The items of an order."""
        return ask("orders", order)

    def get_product(product: str) -> dict[str, Any]:
        """The name and the price of a product."""
        return ask("products", product)

    tools = [vine.tool(one, read_only=True) for one in (get_customer, get_order, get_product)]
    return create_agent(model, tools, middleware=[VineMiddleware(vine)])

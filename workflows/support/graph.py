"""The graph of the support desk: a router, three desks of which two look something up, and a shared reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, cast

from langchain_core.messages import HumanMessage, SystemMessage

from vinelm.requests.protocols import Vine
from vinelm.workflows.nl2sql.databases import Databases
from vinelm.workflows.nl2sql.graph import State as SqlState
from vinelm.workflows.nl2sql.graph import outcome_text, shown
from vinelm.workflows.nl2sql.prompts import extract_sql
from vinelm.workflows.support.articles import find_article
from vinelm.workflows.support.prompts import LOOKUP, REPLIES, ROUTE, SEARCH, SYSTEM, chosen, reply_prompt
from vinelm.workflows.support.tickets import DB_ID, DESKS

_SYSTEM = SystemMessage(SYSTEM)
LOOKUPS = 2
"""How often the billing desk may query its database for one ticket."""


class TicketState(TypedDict, total=False):
    """The workflow state, in JSON types only, so that checkpoints round-trip. ``query`` is the last result of the database."""

    ticket: str
    desk: str
    lookups: int
    sql: str
    query: dict[str, Any]
    article: str | None
    reply: str


class DeskStages:
    """The stage functions and tools over one order database."""

    def __init__(self, databases: Databases) -> None:
        self.databases = databases

    def router(self, state: TicketState, model: Any) -> TicketState:
        """Choose the desk. One model call."""
        return {"desk": chosen(_asked(model, ROUTE.format(ticket=state["ticket"])), DESKS, "other")}

    def lookup(self, state: TicketState, model: Any) -> TicketState:
        """Write a statement for the order database. One model call."""
        earlier = f"\n\nAn earlier statement:\n{state['sql']}\n{_outcome(state)}" if "sql" in state else ""
        schema = self.databases.schema_text(DB_ID)
        text = _asked(model, LOOKUP.format(schema=schema, ticket=state["ticket"], earlier=earlier))
        return {"sql": extract_sql(text), "lookups": state.get("lookups", 0) + 1}

    def query(self, state: TicketState) -> TicketState:
        """Run the statement on the order database. A tool."""
        return {"query": dict(shown(self.databases.run(DB_ID, state["sql"])))}

    def search(self, state: TicketState, model: Any) -> TicketState:
        """Write search words and find the best help article. One model call."""
        return {"article": find_article(_asked(model, SEARCH.format(ticket=state["ticket"])))}

    def reply(self, state: TicketState, model: Any) -> TicketState:
        """Choose the reply among those of the desk. One model call."""
        names = tuple(REPLIES[state["desk"]])
        text = _asked(model, reply_prompt(state["ticket"], state["desk"], found_text(state)))
        return {"reply": chosen(text, names, "none")}


def desk_of(state: TicketState) -> str:
    """Return the node of the desk that the router chose."""
    return {"billing": "lookup", "technical": "search"}.get(state["desk"], "reply")


def after_query(state: TicketState) -> str:
    """Return where a query leads: to another query if it found nothing and turns are left, else to the reply."""
    found = state["query"]["status"] == "ok" and state["query"]["row_count"] > 0
    return "reply" if found or state["lookups"] >= LOOKUPS else "lookup"


def found_text(state: TicketState) -> str:
    """Describe what the desk found, for the prompt of the reply."""
    if state["desk"] == "billing":
        return _outcome(state)
    return (state.get("article") or "no article") if state["desk"] == "technical" else "nothing to look up"


def _outcome(state: TicketState) -> str:
    return outcome_text(cast("SqlState", state["query"]))


def _asked(model: Any, prompt: str) -> str:
    return str(model.invoke([_SYSTEM, HumanMessage(prompt)]).text)


def make_build(databases: Databases) -> Callable[[Vine], Any]:
    """Return ``build(vine)``, which returns the uncompiled ``StateGraph``; its input is ``ticket``."""
    stages = DeskStages(databases)

    def build(vine: Vine) -> Any:
        from langgraph.graph import END, START, StateGraph

        graph = StateGraph(TicketState)
        for name in ("router", "lookup", "search", "reply"):
            graph.add_node(name, vine.stage(name, getattr(stages, name)))
        graph.add_node("query", stages.query)
        graph.add_edge(START, "router")
        graph.add_conditional_edges("router", desk_of, ["lookup", "search", "reply"])
        graph.add_edge("lookup", "query")
        graph.add_conditional_edges("query", after_query, ["lookup", "reply"])
        graph.add_edge("search", "reply")
        graph.add_edge("reply", END)
        return graph

    return build

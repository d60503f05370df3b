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
"""The maximum number of queries that the billing desk may make for one ticket."""


class TicketState(TypedDict, total=False):
    """The workflow state, in JSON types only, so that checkpoints round-trip.

    ``desk`` is the desk that the router chose. ``lookups`` is the number of SQL statements written so far, ``sql`` is the last
    statement, and ``query`` is its result. ``article`` is the name of the found help article (None if none was found).
    ``reply`` is the name of the chosen reply.
    """

    ticket: str
    desk: str
    lookups: int
    sql: str
    query: dict[str, Any]
    article: str | None
    reply: str


class DeskStages:
    """The stage functions and tools of the support desk, over one order database."""

    def __init__(self, databases: Databases) -> None:
        self.databases = databases

    def router(self, state: TicketState, model: Any) -> TicketState:
        """Let the model choose the desk, with one call; return the changed key of the state."""
        return {"desk": chosen(_asked(model, ROUTE.format(ticket=state["ticket"])), DESKS, "other")}

    def lookup(self, state: TicketState, model: Any) -> TicketState:
        """Let the model write a statement for the order database, with one call; return the changed keys of the state."""
        earlier = f"\n\nAn earlier statement:\n{state['sql']}\n{_outcome(state)}" if "sql" in state else ""
        schema = self.databases.schema_text(DB_ID)
        text = _asked(model, LOOKUP.format(schema=schema, ticket=state["ticket"], earlier=earlier))
        return {"sql": extract_sql(text), "lookups": state.get("lookups", 0) + 1}

    def query(self, state: TicketState) -> TicketState:
        """Run the last statement on the order database, and return its result as a key of the state.

        This is a tool, without a model call.
        """
        return {"query": dict(shown(self.databases.run(DB_ID, state["sql"])))}

    def search(self, state: TicketState, model: Any) -> TicketState:
        """Let the model write search words, with one call; return the name of the best help article as a key of the state."""
        return {"article": find_article(_asked(model, SEARCH.format(ticket=state["ticket"])))}

    def reply(self, state: TicketState, model: Any) -> TicketState:
        """Let the model choose one of the desk's replies, with one call; return it as a key of the state."""
        names = tuple(REPLIES[state["desk"]])
        text = _asked(model, reply_prompt(state["ticket"], state["desk"], found_text(state)))
        return {"reply": chosen(text, names, "none")}


def desk_of(state: TicketState) -> str:
    """Return the graph node that follows the router: the chosen desk's, or ``"reply"`` for the third desk."""
    return {"billing": "lookup", "technical": "search"}.get(state["desk"], "reply")


def after_query(state: TicketState) -> str:
    """Return the graph node after a query.

    It is ``"lookup"`` if the query found nothing and another one is allowed, else ``"reply"``.
    """
    found = state["query"]["status"] == "ok" and state["query"]["row_count"] > 0
    return "reply" if found or state["lookups"] >= LOOKUPS else "lookup"


def found_text(state: TicketState) -> str:
    """Return a text on what the desk found, for the prompt of the reply."""
    if state["desk"] == "billing":
        return _outcome(state)
    return (state.get("article") or "no article") if state["desk"] == "technical" else "nothing to look up"


def _outcome(state: TicketState) -> str:
    return outcome_text(cast("SqlState", state["query"]))


def _asked(model: Any, prompt: str) -> str:
    return str(model.invoke([_SYSTEM, HumanMessage(prompt)]).text)


def make_build(databases: Databases) -> Callable[[Vine], Any]:
    """Return the function ``build(vine)``, which returns the workflow's uncompiled ``StateGraph``. Its input is ``ticket``."""
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

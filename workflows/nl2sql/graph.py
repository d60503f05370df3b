"""The graph of the workflow: two LLM stages, a tool and the check, as functions of a state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypedDict

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from vinelm.requests.protocols import Vine
from vinelm.workflows.nl2sql.databases import Databases
from vinelm.workflows.nl2sql.prompts import GENERATE, REPAIR, SYSTEM, extract_sql
from vinelm.workflows.nl2sql.sql import SqlResult

_SYSTEM = SystemMessage(SYSTEM)
SHOWN_ROWS = 5
SHOWN_CHARS = 200


class State(TypedDict, total=False):
    """The workflow state, in JSON types only, so that checkpoints round-trip.

    ``sql`` is the last statement; ``status``, ``error`` and ``columns`` describe its result. ``rows`` has the first few of the
    result's ``row_count`` rows, for the repair prompt, with long values cut and blobs as text. ``is_truncated`` is True if the
    result was cut, because it had more rows than allowed.
    """

    question: str
    db_id: str
    sql: str
    status: str
    error: str | None
    columns: list[str]
    rows: list[list[Any]]
    row_count: int
    is_truncated: bool


class Stages:
    """The stage functions, and the tool that executes statements, for the databases of one folder."""

    def __init__(self, databases: Databases) -> None:
        self.databases = databases

    def generate(self, state: State, model: Any) -> State:
        """Let the model write a first statement for the question, with one call; return the changed keys of the state."""
        prompt = GENERATE.format(schema=self.databases.schema_text(state["db_id"]), question=state["question"])
        return _written(model, prompt)

    def repair(self, state: State, model: Any) -> State:
        """Let the model write another statement, given the last one and its outcome, with one call.

        Returns the changed keys of the state.
        """
        prompt = REPAIR.format(
            schema=self.databases.schema_text(state["db_id"]),
            question=state["question"],
            sql=state["sql"],
            outcome=outcome_text(state),
        )
        return _written(model, prompt)

    def execute(self, state: State) -> State:
        """Execute the last statement, and return the keys of the state that describe its result."""
        return shown(self.databases.run(state["db_id"], state["sql"]))


def finished(state: State) -> bool:
    """Return whether the workflow's own check passes: the statement ran without error and returned at least one row."""
    return state.get("status") == "ok" and state.get("row_count", 0) > 0


def shown(result: SqlResult) -> State:
    """Return the keys of the state that describe the result of a statement, with the first few rows; see :class:`State`."""
    return {
        "status": result.status,
        "error": result.error,
        "columns": list(result.columns),
        "rows": [[_plain(cell) for cell in row] for row in result.rows[:SHOWN_ROWS]],
        "row_count": len(result.rows),
        "is_truncated": result.is_truncated,
    }


def outcome_text(state: State) -> str:
    """Return a text that describes the outcome of the last statement, for the repair prompt."""
    if state["status"] != "ok":
        return f"It failed ({state['status']}): {state['error']}"
    if not state["row_count"]:
        return "It ran and gave no rows."
    lines = [" | ".join(state["columns"]), *(" | ".join(map(str, row)) for row in state["rows"])]
    total = f"{'more than ' if state['is_truncated'] else ''}{state['row_count']} rows"
    return f"It gave {total}, the first of them:\n" + "\n".join(lines)


def _written(model: Any, prompt: str) -> State:
    messages: list[BaseMessage] = [_SYSTEM, HumanMessage(prompt)]
    return {"sql": extract_sql(str(model.invoke(messages).text))}


def _plain(cell: Any) -> Any:
    if isinstance(cell, bytes):
        return f"<{len(cell)} bytes>"
    if isinstance(cell, str) and len(cell) > SHOWN_CHARS:
        return cell[:SHOWN_CHARS] + "…"
    return str(cell) if isinstance(cell, float) and not math.isfinite(cell) else cell


def make_build(databases: Databases) -> Callable[[Vine], Any]:
    """Return the function ``build(vine)``, which returns the workflow's uncompiled ``StateGraph``.

    The graph's input is ``question`` and ``db_id``.
    """
    stages = Stages(databases)

    def build(vine: Vine) -> Any:
        from langgraph.graph import END, START, StateGraph

        graph = StateGraph(State)
        graph.add_node("generate", vine.stage("generate", stages.generate))
        graph.add_node("execute", stages.execute)
        graph.add_node("repair", vine.stage("repair", stages.repair))
        graph.add_edge(START, "generate")
        graph.add_edge("generate", "execute")
        graph.add_edge("repair", "execute")
        graph.add_node("finish", vine.finish)
        graph.add_edge("finish", END)
        graph.add_conditional_edges("execute", vine.route(finished, again="repair", end="finish"), ["repair", "finish"])
        return graph

    return build

"""Text to SQL: write a statement, run it, and write again in sight of what came of it."""

from __future__ import annotations

from typing import Any

from langgraph.graph import END, START, StateGraph

from vinelm.workflows.nl2sql import Databases, Stages, finished
from vinelm.workflows.nl2sql import State as Nl2SqlState

TRIES = 3


class State(Nl2SqlState, total=False):
    """The statement, what came of it, and how many were written."""

    tries: int


def graph_over(databases: Databases) -> Any:
    """``build`` over these databases."""
    stages = Stages(databases)

    def write(state: State, model: Any) -> State:
        written = stages.repair(state, model) if state.get("sql") else stages.generate(state, model)
        return {"sql": written["sql"], "tries": state.get("tries", 0) + 1}

    def done(state: State) -> bool:
        return finished(state) or state["tries"] >= TRIES

    def build(model: Any) -> Any:
        graph = StateGraph(State)
        graph.add_node("write", lambda state: write(state, model))
        graph.add_node("execute", stages.execute, input_schema=State)
        graph.add_edge(START, "write")
        graph.add_edge("write", "execute")
        graph.add_conditional_edges(
            "execute",
            lambda state: END if done(state) else "write",
        )
        return graph

    return build

"""What planning adds to each invocation of a LangGraph graph, for ``bench_planner.py``."""

from __future__ import annotations

import statistics
import time
from typing import TypedDict

from planner_tries import synthetic

from vinelm.api import VineLM
from vinelm.objective import Objective


def stage_overhead(rounds: int = 60, per_round: int = 20) -> dict[str, float]:
    """What a session with two bounds, a wall clock and a load monitor adds to each invocation of a LangGraph graph that does
    nothing else: medians of processor time over alternating rounds with the bare graph, 584 paths.
    """
    from langgraph.graph import END, START, StateGraph

    annotated = synthetic(8, 3, 0)
    vine = VineLM(annotated.catalog, {"simulated": SilentBackend()}, trie=annotated, labelled=True)

    def first(state: State, model=None):
        return {"turns": 1}

    def again(state: State, model=None):
        return {"turns": state["turns"] + 1}

    def finished(state: State) -> bool:
        return state["turns"] >= 3

    def build(wrap, route):
        graph = StateGraph(State)
        graph.add_node("first", wrap("first", first))
        graph.add_node("again", wrap("again", again))
        graph.add_edge(START, "first")
        for node in ("first", "again"):
            graph.add_conditional_edges(node, route(finished, again="again", end=END), ["again", END])
        return graph.compile()

    def bare_route(fn, *, again, end):
        def route(state: State):
            return end if fn(state) else again

        return route

    def bare_stage(name, fn):
        def node(state: State):
            return fn(state)

        return node

    bare, served = build(bare_stage, bare_route), build(vine.stage, vine.route)
    objective = Objective(maximize="accuracy", max_latency_s=60.0, max_cost_usd=1.0)
    judged = {"judge": lambda state: state["turns"] >= 3}

    def run(app, context):
        before = time.process_time_ns()
        for _ in range(per_round):
            state = app.invoke({"turns": 0}, context=context() if context else None)
            assert state["turns"] == 3
        return (time.process_time_ns() - before) / per_round / 3 / 1000

    def context():
        return vine.context(policy=vine.session(objective, **judged))

    times = [(run(bare, None), run(served, context)) for _ in range(rounds)]
    bare_us = statistics.median(one for one, _ in times)
    served_us = statistics.median(other for _, other in times)
    return {"bare_stage_us": bare_us, "served_stage_us": served_us, "stage_overhead_us": served_us - bare_us}


class State(TypedDict):
    """Counts invocations."""

    turns: int


class SilentBackend:
    """Makes models that are never called."""

    is_simulated = True
    is_virtual_time = False

    def chat_model(self, model, call):
        """Nothing to call."""
        return None

"""An application that another process resumes: a stage of two calls, then one of three; every call costs $0.3.

Run as a program it resumes the thread whose checkpoint comes on stdin, and prints what it spent.
"""

import json
import sys
from dataclasses import replace
from typing import TypedDict

import numpy as np
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from kit.apps.savers import load
from vinelm import AnnotatedTrie, Loop, Objective, Request, Stage, Template, VineLM
from vinelm.backends import TextWriter
from vinelm.backends.offline.presets import simulated_catalog
from vinelm.backends.offline.simulated import SimulatedBackend
from vinelm.errors import CallRefused
from vinelm.trie.trie import Trie

OBJECTIVE = Objective(maximize="accuracy", max_cost_usd=1.0, cost_budget="per_request")
REQUEST = Request("q0", {"question": "?", "answer": "42"})
THREAD = {"configurable": {"thread_id": "t"}}


class Dime(SimulatedBackend):
    """Each call costs $0.3."""

    def answer(self, model, call, prompt_chars):
        text, usage = super().answer(model, call, prompt_chars)
        return text, replace(usage, cost_usd=0.3, failure=None)


class State(TypedDict, total=False):
    question: str
    answer: str


def solve(state: State, model):
    return {"answer": [model.invoke("?").text for _ in range(2)][-1]}


def fix(state: State, model):
    return {"answer": [model.invoke("?").text for _ in range(3)][-1]}


def application(expected_usd):
    """The graph and its VineLM, whose trie expects that an invocation costs ``expected_usd``; and the checkpointer."""
    everything = simulated_catalog()
    catalog = everything.subset(tuple(everything)[:1])
    template = Template((Stage("solve"), Loop((Stage("fix"),), times=1))).bind(tuple(catalog))
    trie = Trie.from_template(template)
    zeros, cost = np.zeros(len(trie)), np.where(trie.depth > 0, expected_usd, 0.0)
    annotated = AnnotatedTrie(trie, template, catalog, 0.2 * trie.depth, zeros, zeros, cost, zeros, zeros, zeros)
    vine = VineLM(catalog, {"simulated": Dime(TextWriter("answer"), catalog=catalog)}, trie=annotated)
    graph = StateGraph(State)
    graph.add_node("solve", vine.stage("solve", solve))
    graph.add_node("fix", vine.stage("fix", fix))
    graph.add_edge(START, "solve")
    graph.add_edge("solve", "fix")
    graph.add_edge("fix", END)
    saver = InMemorySaver()
    return graph.compile(checkpointer=saver), vine, saver


def spend(graph, vine, value, **settings):
    """Run the graph; the dollars recorded, those that the guard knows of, and whether a call was refused."""
    session, was_refused = vine.session(OBJECTIVE, request=REQUEST), False
    try:
        graph.invoke(value, THREAD, context=vine.context(OBJECTIVE, policy=session, request=REQUEST), **settings)
    except CallRefused:
        was_refused = True
    return session.spent_usd, session.guard.spent_usd, was_refused


if __name__ == "__main__":
    job = json.load(sys.stdin)
    graph, vine, saver = application(job["expected_usd"])
    load(saver, job["saved"], "t")
    print(json.dumps(spend(graph, vine, None)))

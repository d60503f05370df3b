"""A small workflow that branches, whose every outcome is known in advance.

router -> search -> look_up -> grade -> (search again | write), router -> write, router -> END. No data, no network.
"""

import hashlib
from functools import partial
from typing import TypedDict

from kit.toys.profiling import LoadedWorkflow, ToyBackend, catalog_for, cost_of, misbehave
from kit.toys.profiling import new_store as new_toy_store
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import END, Branch, Loop, Stage, Template
from vinelm.traces import ObservationStore

WORDS = {
    "router": ("search", "search", "write", "stop"),
    "search": ("found",),
    "grade": ("again", "again", "good"),
    "write": ("right", "wrong"),
}
MOST_SEARCHES = 2


class State(TypedDict, total=False):
    question: str
    said: str
    searches: int
    looked_up: int
    log: list[str]


def word_of(request_id: str, stage: str, prefix: tuple[str, ...]) -> str:
    digest = hashlib.sha256("/".join((request_id, stage, *prefix)).encode()).digest()
    return WORDS[stage][digest[0] % len(WORDS[stage])]


def stage_after(stages: tuple[str, ...], word: str) -> str | None:
    """The stage that comes after these ones, if the last one said that."""
    if stages[-1] == "router":
        return None if word == "stop" else word
    if stages[-1] == "search":
        return "grade"
    if stages[-1] == "grade":
        return "search" if word == "again" and stages.count("search") < MOST_SEARCHES else "write"
    return None


class BranchingBackend(ToyBackend):
    """Answers as :func:`word_of` says."""

    def text(self, call, cell):
        return word_of(cell[0], call.stage, call.prefix)


def said_by(stage):
    def node(state: State, model) -> State:
        return {"said": model.invoke("go on: " + state["question"]).text, "log": [*state.get("log", []), stage]}

    return node


def look_up(state: State) -> State:
    return {"looked_up": state.get("looked_up", 0) + 1, "searches": state.get("searches", 0) + 1}


def routed(state: State) -> str:
    return "__end__" if state["said"] == "stop" else state["said"]


def graded(state: State) -> str:
    return "search" if state["said"] == "again" and state["searches"] < MOST_SEARCHES else "write"


def score(request, state) -> bool:
    assert state.get("searches", 0) == state["log"].count("search")
    return state["said"] == "right"


def build(vine):
    from langgraph.graph import END as STOP
    from langgraph.graph import START, StateGraph

    graph = StateGraph(State)
    for stage in WORDS:
        graph.add_node(stage, vine.stage(stage, said_by(stage)))
    graph.add_node("look_up", look_up)
    graph.add_edge(START, "router")
    graph.add_conditional_edges("router", routed, ["search", "write", STOP])
    graph.add_edge("search", "look_up")
    graph.add_edge("look_up", "grade")
    graph.add_conditional_edges("grade", graded, ["search", "write"])
    graph.add_edge("write", STOP)
    return graph


def template_of(models, stop="workflow") -> Template:
    stages = {name: Stage(name, models, answerable=name in ("router", "write")) for name in WORDS}
    searching = Loop((stages["search"], stages["grade"]), MOST_SEARCHES, early_exit=True)
    return Template((stages["router"], Branch({"search": (searching,), "write": (), "stop": END}), stages["write"]), stop)


def branching(n_requests=4, n_models=2, stop="workflow", **changes) -> Workflow:
    fields = {
        "name": "branching",
        "template": template_of(tuple(f"m{i}" for i in range(n_models)), stop),
        "build": build,
        "requests": [Request(f"q{i}", {"question": f"number {i}", "label": i}) for i in range(n_requests)],
        "score": score,
        "labels": ("label",),
    }
    return Workflow(**(fields | changes))


def reachable(workflow: Workflow):
    """Every cell that a request gets to, with what its row must say, in the order of an exhaustive profile."""
    models = workflow.template.models

    def below(request_id, prefix, stages):
        for model in models:
            cell = (*prefix, model)
            word = word_of(request_id, stages[-1], cell)
            after = stage_after(stages, word)
            answers = stages[-1] in ("router", "write")
            yield {
                "request_id": request_id, "prefix": cell, "stage": stages[-1], "arm": after, "stopped": after is None,
                "success": answers and word == "right", "cost_usd": cost_of(request_id, cell),
                "latency_s": float(len(cell)), "failure": None,
            }  # fmt: skip
            if after is not None:
                yield from below(request_id, cell, (*stages, after))

    for request in workflow.requests:
        yield from below(request.id, (), ("router",))


def new_store(path, workflow, backend=None) -> ObservationStore:
    return new_toy_store(path, workflow, backend or BranchingBackend())


def load(mischief=None, **settings) -> LoadedWorkflow:
    """The toy by name. ``mischief`` maps "request/model/model" to what happens in its unit, see ``misbehave``."""
    workflow = branching(**settings)
    backend = BranchingBackend(before=partial(misbehave, mischief or {}))
    return LoadedWorkflow(workflow, catalog_for(workflow), {"test": backend})

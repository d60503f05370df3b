"""A workflow that may ask of which kind a request is, and then has a stage for each kind: every reply is known in advance."""

import json
from dataclasses import dataclass, replace
from typing import TypedDict

from kit.catalogs import make_catalog
from kit.toys.profiling import ToyBackend
from kit.toys.verified import share
from vinelm.requests.workflow import Request, Workflow

RIGHT = {"m0": {"code": 0.95, "prose": 0.2}, "m1": {"code": 0.2, "prose": 0.95}, "m2": {"code": 0.8, "prose": 0.8}}
"""How often each model is right about each kind."""
USD = {"m0": 0.001, "m1": 0.001, "m2": 0.004}


class State(TypedDict, total=False):
    question: str
    kind: str
    answer: str


def kind_of(request_id: str) -> str:
    return "code" if share("kind", request_id) < 0.5 else "prose"


def is_right(request_id: str, model: str) -> bool:
    return share("right", request_id, model) < RIGHT[model][kind_of(request_id)]


@dataclass
class ClassifiedBackend(ToyBackend):
    """Says the right kind of 95 % of requests, at ``label_usd`` a label; ``reply`` replaces what it says."""

    label_usd: float = 0.0001
    reply: str | None = None

    def answer(self, model, call, prompt_chars):
        text, usage = super().answer(model, call, prompt_chars)
        usd = self.label_usd if call.stage == "sort" else USD[model.name]
        return text, replace(usage, cost_usd=usd, latency_s=1.0)

    def text(self, call, cell):
        request, prefix = cell
        if call.stage != "sort":
            return "right" if is_right(request, prefix[-1]) else f"wrong {prefix[-1]}"
        is_told = share("told", request) < 0.95
        kind = kind_of(request) if is_told else {"code": "prose", "prose": "code"}[kind_of(request)]
        return self.reply or json.dumps({"kind": kind})


def solve(state: State, model) -> State:
    return {"answer": model.invoke(state["question"]).text}


def by_kind(state: State) -> str:
    return state.get("kind", "other")


def score(request, state) -> bool:
    return state["answer"] == "right"


def build(vine):
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(State)
    graph.add_node("sort", vine.classify("sort", labels=["code", "prose"], prompt="{question}", state=State))
    graph.add_edge(START, "sort")
    places = {kind: f"solve {kind}" for kind in ("code", "prose", "other")}
    graph.add_conditional_edges("sort", vine.route(by_kind, to=places), list(places.values()))
    for name in places.values():
        graph.add_node(name, vine.stage(name, solve))
        graph.add_edge(name, END)
    return graph


def classified(n_requests=4, **changes) -> Workflow:
    """The workflow; its template is read off its graph."""
    fields = {
        "name": "classified",
        "build": build,
        "requests": [Request(f"q{i}", {"question": f"number {i}", "label": i}) for i in range(n_requests)],
        "score": score,
        "labels": ("label",),
    }
    return Workflow(**(fields | changes))


def catalog():
    return make_catalog(3, provider="test", max_tokens=100)

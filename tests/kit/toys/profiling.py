"""A small workflow whose every outcome is known in advance: generate, check, repair. No data, no network, milliseconds."""

import ctypes
import datetime
import hashlib
import os
import signal
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict

from vinelm.backends import OfflineChatModel
from vinelm.backends.offline.chat_model import request_of
from vinelm.catalog import Catalog, Model, Price
from vinelm.errors import CallError
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Usage
from vinelm.template import Loop, Stage, Template
from vinelm.traces import ObservationStore

ANSWERS = ("right", "odd", "plausible", "broken", "broken")
"""right and odd answers are right; the check accepts right and plausible ones."""
PROMPT = "question {question}, answer, please"


class State(TypedDict, total=False):
    question: str
    answer: str
    log: list[str]
    checked: int


def answer_of(request_id: str, prefix: tuple[str, ...]) -> str:
    digest = hashlib.sha256("/".join((request_id, *prefix)).encode()).digest()
    return ANSWERS[digest[0] % len(ANSWERS)]


def cost_of(request_id: str, prefix: tuple[str, ...]) -> float:
    return (1 + len(request_id) + len(prefix) * 3 + int(prefix[-1][1:])) / 1e4


def expected(request_id: str, prefix: tuple[str, ...]) -> dict:
    """What the row of that cell must say."""
    answer = answer_of(request_id, prefix)
    return {
        "request_id": request_id,
        "prefix": prefix,
        "stage": "generate" if len(prefix) == 1 else "repair",
        "success": answer in ("right", "odd"),
        "stopped": answer in ("right", "plausible"),
        "cost_usd": cost_of(request_id, prefix),
        "latency_s": float(len(prefix)),
        "tokens_in": 10 * len(prefix),
        "tokens_out": 7,
        "calls": 1,
    }


@dataclass
class ToyBackend:
    """Answers as :func:`answer_of` says; ``before`` is called with (request id, prefix) before every call."""

    before: object = None
    is_simulated = True
    is_virtual_time = True

    def __post_init__(self):
        self.calls = []

    def chat_model(self, model, call):
        return OfflineChatModel.bound(self, model, call)

    def answer(self, model, call, prompt_chars):
        request = request_of(call, "test")
        cell = (request.id, call.prefix)
        self.calls.append(cell)
        usage = Usage(
            model=model.name, cost_usd=cost_of(*cell), latency_s=float(len(call.prefix)), tokens_in=10 * len(call.prefix),
            tokens_out=7, ttft_s=0.1,
        )  # fmt: skip
        kind = self.before(*cell) if self.before else None
        return ("", replace(usage, failure=kind)) if kind else (self.text(call, cell), usage)

    def text(self, call, cell):
        return answer_of(*cell)


def generate(state: State, model) -> State:
    return {"answer": model.invoke(PROMPT.format(question=state["question"])).text, "log": ["generate"]}


def repair(state: State, model) -> State:
    if not state["checked"]:
        raise CallError("repair before any check")
    return {"answer": model.invoke("again: " + state["question"]).text, "log": [*state["log"], "repair"]}


def check(state: State) -> State:
    return {"checked": state.get("checked", 0) + 1}


def finished(state: State) -> bool:
    return state["answer"] in ("right", "plausible")


def score(request, state) -> bool:
    """Right answers, if the state is what every invocation so far left there."""
    assert state["checked"] == len(state["log"])
    return state["answer"] in ("right", "odd")


def only_right(request, state) -> bool:
    """Another scorer."""
    return state["answer"] == "right"


def build(vine, route=None):
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", generate))
    graph.add_node("repair", vine.stage("repair", repair))
    graph.add_node("check", check)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "check")
    graph.add_edge("repair", "check")
    graph.add_conditional_edges("check", route or vine.route(finished, again="repair", end=END), ["repair", END])
    return graph


def one_stage(node):
    """The build function of a graph that is one stage."""

    def build(vine):
        from langgraph.graph import END, START, StateGraph

        graph = StateGraph(State)
        graph.add_node("generate", vine.stage("generate", node))
        graph.add_edge(START, "generate")
        graph.add_edge("generate", END)
        return graph

    return build


def plain_edge(state: State) -> str:
    """Without ``vine.route``, and with the application's own loop limit."""
    return "__end__" if finished(state) or state["checked"] >= 3 else "repair"


def toy(n_requests=4, n_models=2, depth=3, stop="workflow", **changes) -> Workflow:
    models = tuple(f"m{i}" for i in range(n_models))
    fields = {
        "name": "toy",
        "template": Template((Stage("generate", models), Loop((Stage("repair", models),), depth - 1)), stop),
        "build": build,
        "requests": [Request(f"q{i}", {"question": f"number {i}", "label": i}) for i in range(n_requests)],
        "score": score,
        "labels": ("label",),
    }
    return Workflow(**(fields | changes))


def catalog_for(workflow: Workflow) -> Catalog:
    price = Price(input=1.0, output=4.0, source="a test", as_of=datetime.date(2026, 1, 1))
    fields = {"provider": "test", "model_id": "test", "engine": "east", "max_tokens": 100, "price": price}
    return Catalog(Model(name=name, **fields) for name in workflow.template.models)


def new_store(path, workflow, backend=None) -> ObservationStore:
    backends = {"test": backend or ToyBackend()}
    return ObservationStore.open_or_create(path, store_identity(workflow, catalog_for(workflow), backends))


def reachable(workflow: Workflow):
    """Every cell that the stop rule lets a request get to, in the order of an exhaustive profile."""
    stop = workflow.template.stop

    def below(request_id, prefix):
        for model in workflow.template.models:
            cell = (*prefix, model)
            yield request_id, cell
            row = expected(request_id, cell)
            ended = row["success"] if stop == "oracle" else row["stopped"]
            if not ended and len(cell) < workflow.template.depth:
                yield from below(request_id, cell)

    for request in workflow.requests:
        yield from below(request.id, ())


@dataclass(frozen=True)
class LoadedWorkflow:
    """What a child gets from :class:`vinelm.profiler.WorkflowSource`."""

    workflow: Workflow
    catalog: Catalog
    backends: dict


def load(mischief=None, **settings) -> LoadedWorkflow:
    """The toy by name. ``mischief`` maps "request/model/model" to what happens in its unit, see :func:`misbehave`."""
    workflow = toy(**settings)
    return LoadedWorkflow(workflow, catalog_for(workflow), {"test": ToyBackend(before=partial(misbehave, mischief or {}))})


def long_or_short(state) -> str:
    return "long" if len(state["answer"]) > 5 else "short"


def load_showing() -> LoadedWorkflow:
    """The toy by name, with a signal and answers."""
    return load(signal=long_or_short, answer=("answer",))


def misbehave(mischief, request_id, prefix):
    what = mischief.get("/".join((request_id, *prefix)))
    if what == "os._exit":
        os.write(2, b"about to leave\n")
        os._exit(3)
    if what == "abort":
        os.abort()
    if what == "segfault":
        ctypes.string_at(0)
    if what == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if what == "memory":
        bytearray(4 * 2**30)
    if what == "orphan":  # a grandchild that holds every descriptor open
        if os.fork() == 0:
            time.sleep(600)
        os._exit(9)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "secret":
        os.write(2, f"key={os.environ['TOY_API_KEY']} asked number 2\n".encode())
        os._exit(1)
    if what == "print":
        print("data on stdout", flush=True)
    if isinstance(what, (int, float)):
        time.sleep(what)

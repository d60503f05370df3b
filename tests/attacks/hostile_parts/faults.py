"""Faults in VineLM itself: every function of ours that a served request enters raises, one by one; no application may fail.

The functions are found by running the requests under Python's profiler hook, so a new one is attacked without being named
here. Each raises at its first, second and third call, once or from then on, in a run with a loop: synchronous, asynchronous
and streamed, without a cap and under a cap per request, with a model that fails (so that another one answers), with observers
and a load monitor. Counted are applications that failed, answers that took more calls than the loop allows, and faults that
no trace tells of. Under a cap a call may be refused instead: money that cannot be counted is not spent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from vinelm import Loop, Objective, Stage, VineLM
from vinelm.controller import InFlightLoadMonitor
from vinelm.errors import CallError, CallRefused
from vinelm.signals import Signals

from .injection import Captured, entered, failing
from .stub_models import StubBackend, Watcher, annotated_trie

THE_CALL = (
    "vinelm.backends.",
    "vinelm.adapters.calls.fallback_model",
    "vinelm.adapters.calls.delegating_model",
    "vinelm.adapters.calls.tool_binding",
    "vinelm.catalog.",
    "vinelm.errors",
    "vinelm.objective",
    "vinelm.rows.observation",
)
"""Modules of the model's call itself, and of what the caller makes before the run: what fails there is a failed call."""
BOUNDARIES = frozenset(
    (
        "RunFinder.invoke",
        "RunFinder.ainvoke",
        "RunFinder._begun",
        "at_once",
        "RequestAccount.authorize",
        "RequestAccount.aauthorize",
        "RequestAccount._undoing",
        "GraphRun.note_failure",
        "GraphRun.noting",
        "own_state",
        "InvocationScope.__enter__",
        "InvocationScope.__exit__",
        "InvocationScope.__aenter__",
        "InvocationScope.__aexit__",
        "InvocationScope.settle",
        "InvocationScope.asettle",
        "InvocationScope.done",
        "InvocationScope.failed",
        "InvocationScope.note_failure",
        "InvocationScope.noting",
        "InvocationScope._record",
        "InvocationScope._tell_end",
        "InvocationScope._observed",
        "InvocationScope.fall_back",
        "RouteEdge.arguments",
        "RouteEdge.decide",
        "Destinations.read",
        "_written",
        "app_repeats",
        "GraphRun._degrade",
        "GraphRun._default_after",
        "GraphRun._announce",
        "DefaultRuns.any_default",
        "name_model",
        "answered",
    )
)
"""The places where the application's own code, or LangGraph, enters ours, and the guard itself: around them there is nothing of
ours to catch."""
OF_OTHERS = (
    "PathChannel.",
    "ContextOwner.",
    "ChannelSession.",
    "GraphInterface.context",
    "_run_context",
    "note_cap",
    "ObservedRequest.ended",
    "Structured.parsed",
    "Structured._arguments",
)
"""Methods that LangGraph calls, those that the application calls before the run, the finalizer of a run, which Python calls
whenever it collects garbage, and whose failure it contains itself, and the reading of a structured answer, which LangChain runs
after the call as it runs a provider's own parser.
"""
STAND_INS = ("BoundGuard.", "BoundPermit.", "AccountPermit.", "SteadyClock.", "SteadyWallClock.")
"""What takes over where a guard or a clock fails; they call nothing of ours that could fail but what they stand in for."""
LAST_RESORT = frozenset(
    (
        "GraphRun.__init__",
        "InvocationScope.__init__",
        "InvocationScope._begin",
        "Policy.__init__",
        "DefaultRuns.asked",
        "steady",
    )
)
"""Without these no stage can run on its default model either: they fail once, not for good."""
UNTOLD = (
    "ObserverGroup.",
    "ObservedRequest.",
    "GraphRun.shown",
    "InvocationScope._told_of",
    "InFlightLoadMonitor.",
    "SessionLoad.",
    "_OwnCalls.",
    "load_array",
    "_parted",
    "_listens",
    "_safely",
    "WallClock.",
    "RunFinder.path_of",
    "RunRegistry.known",
    "channel_of",
    "_write_name",
    "_is_read",
)
"""What is passed over without a word: what a tracer shows, observers and reports of load change no answer, a clock is
replaced by another; an edge that cannot find its run has no trace to write to and logs a warning."""
CALLS, DEPTH = (1, 2, 3), 3
MODES = ("sync", "async", "stream")
OBJECTIVES = {
    "no cap": Objective(maximize="accuracy", max_latency_s=1000.0),
    "cap": Objective(maximize="accuracy", max_cost_usd=1.0, cost_budget="per_request"),
}


SIGNALS = {"signals": Signals(signal=lambda state: len(state["text"]) > 1, answer=("text",))}


class State(TypedDict, total=False):
    """The application's state."""

    answers: int
    text: str


class Application:
    """``answer`` and up to two ``repair``: the workflow is finished after three answers, so every loop runs to its bound."""

    def __init__(self, down: frozenset[str] = frozenset(), **settings: Any) -> None:
        annotated = annotated_trie(Stage("answer"), Loop((Stage("repair"),), times=DEPTH - 1))
        self.backend = StubBackend(down)
        settings = {"load": InFlightLoadMonitor(), **SIGNALS, **settings}
        self.vine = VineLM(annotated.catalog, {"stub": self.backend}, trie=annotated, **settings)
        self.vine.observe(Watcher())
        self.vine.observe(object())  # type: ignore[arg-type]  # one without a method
        self.graph = {mode: self._built(mode) for mode in MODES}

    def _built(self, mode: str) -> Any:
        def node(state: State, model: Any) -> State:
            return {"text": model.invoke("?").content, "answers": state.get("answers", 0) + 1}

        async def anode(state: State, model: Any) -> State:
            return {"text": (await model.ainvoke("?")).content, "answers": state.get("answers", 0) + 1}

        def finished(state: State) -> bool:
            return state["answers"] >= DEPTH

        graph = StateGraph(State)
        for name in ("answer", "repair"):
            graph.add_node(name, self.vine.stage(name, anode if mode == "async" else node, state=State))
            graph.add_conditional_edges(name, self.vine.route(finished, again="repair", end="finish"))
        graph.add_node("finish", self.vine.finish)
        graph.add_edge(START, "answer")
        graph.add_edge("finish", END)
        return graph.compile(checkpointer=InMemorySaver())

    def serve(self, mode: str, objective: str, thread: str) -> State:
        """Serve one request."""
        context = self.vine.context(OBJECTIVES[objective])
        config: Any = {"configurable": {"thread_id": thread, "tenant": "acme"}}
        graph = self.graph[mode]
        if mode == "async":
            found: State = asyncio.run(graph.ainvoke({}, config, context=context))
        elif mode == "stream":
            found = [state for kind, state in graph.stream({}, config, context=context, stream_mode=["messages", "values"])][-1]
        else:
            found = graph.invoke({}, config, context=context)
        return found


def is_target(module: str, name: str) -> bool:
    """Whether a fault there is ours to survive."""
    if "<" in name or module.startswith(THE_CALL):
        return False
    return name not in BOUNDARIES and not name.startswith((*OF_OTHERS, *STAND_INS))


def run(
    progress: Callable[[str], object], *, calls: Sequence[int] = CALLS, modes: Sequence[str] = MODES, every: int = 1
) -> Mapping[str, Any]:
    """Inject every fault and return the counts. Makes no call to any server.

    Args:
        progress: called with one line for each function attacked.
        calls: the numbers of the call that raises, from 1.
        modes: how requests are served.
        every: attacks each ``every``-th function only.

    Returns:
        ``functions``, ``injected`` (faults that were raised in a request), ``app_failures``, ``too_many_calls``, ``untold`` and
        ``told_prompt`` (each with the places), ``refused`` (calls refused under a cap), and ``boundaries``.
    """
    applications = {"up": Application(), "down": Application(frozenset(("good",)))}
    targets: set[tuple[str, str]] = set()
    for app in applications.values():
        for mode in MODES:
            for objective in OBJECTIVES:
                targets |= entered(lambda app=app, mode=mode, objective=objective: app.serve(mode, objective, "warm"))
    found: dict[str, Any] = {"functions": 0, "injected": 0, "refused": 0, "boundaries": sorted(BOUNDARIES)}
    found |= {key: [] for key in ("app_failures", "too_many_calls", "untold", "told_prompt")}
    for module, name in sorted(target for target in targets if is_target(*target))[::every]:
        found["functions"] += 1
        progress(f"{module}.{name}")
        for at in calls:
            for is_lasting in (False,) if name in LAST_RESORT else (False, True):
                _attack(applications, modes, (module, name, at, is_lasting), found)
    return found


def _attack(
    applications: Mapping[str, Application], modes: Sequence[str], fault: tuple[str, str, int, bool], found: dict[str, Any]
) -> None:
    for kind, app in applications.items():
        for mode in modes:
            for objective in OBJECTIVES:
                where = f"{fault[1]} call {fault[2]}{'+' if fault[3] else ''}, models {kind}, {mode}, {objective}"
                captured, failure, answers = Captured(), None, 0
                with captured.installed(), failing(*fault) as faults:
                    try:
                        answers = app.serve(mode, objective, where)["answers"]
                    except CallRefused:
                        found["refused"] += objective == "cap" and faults[0] > 0
                    except CallError as error:
                        failure = None if kind == "down" else error  # the fallback itself is what failed: the call's own error
                    except Exception as error:
                        failure = error
                if not faults[0] and failure is None:
                    continue
                found["injected"] += 1
                if failure is not None:
                    found["app_failures"].append(f"{where}: {type(failure).__name__}")
                if answers > DEPTH:
                    found["too_many_calls"].append(where)
                notes = captured.notes()
                if "InjectedFault" not in notes and not fault[1].startswith(UNTOLD):
                    found["untold"].append(where)
                if "a prompt and a key" in notes:
                    found["told_prompt"].append(where)

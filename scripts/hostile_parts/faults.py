"""Faults in VineLM itself: every function of ours that a served request enters raises, one by one; no application may fail.

The functions are found by running the requests under Python's profiler hook, so a new one is attacked without being named
here. Each raises at its first, second and third call, once or from then on, in a run with a loop: synchronous, asynchronous
and streamed, without a cap and under a cap per request, with a model that fails (so that another one answers), with observers
and a load monitor. Counted are applications that failed, answers that took more calls than the loop allows, and faults that
no trace tells of. Under a cap a call may be refused instead: money that cannot be counted is not spent.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from vinelm import AnnotatedTrie, Catalog, Loop, Objective, Stage, Template, Trie, VineLM
from vinelm.adapters.langgraph import GraphRun
from vinelm.catalog import Model, Price
from vinelm.controller import InFlightLoadMonitor
from vinelm.errors import CallError, CallRefused
from vinelm.observation import Usage
from vinelm.protocols import CallContext

HOUSE = Path(__file__).resolve().parents[2]
OURS = tuple(f"{HOUSE / top}/" for top in ("vinelm", "controller"))
THE_CALL = (
    "vinelm.backends.",
    "vinelm.adapters.calls.fallback_model",
    "vinelm.adapters.calls.tool_binding",
    "vinelm.catalog.",
    "vinelm.errors",
    "vinelm.objective",
    "vinelm.observation",
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
        "InvocationScope.__enter__",
        "InvocationScope.__exit__",
        "InvocationScope.__aenter__",
        "InvocationScope.__aexit__",
        "InvocationScope.settle",
        "InvocationScope.asettle",
        "InvocationScope.done",
        "InvocationScope.failed",
        "InvocationScope.note_failure",
        "InvocationScope._record",
        "InvocationScope._tell_end",
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
    )
)
"""The places where the application's own code, or LangGraph, enters ours: around them there is nothing of ours to catch."""
OF_OTHERS = ("PathChannel.", "ContextOwner.", "ChannelSession.", "VineLM.context", "GraphAdapter.context", "_run_context")
"""Methods that LangGraph calls, and those that the application calls before the run."""
STAND_INS = ("BoundGuard.", "BoundPermit.", "AccountPermit.", "SteadyClock.", "SteadyWallClock.")
"""What takes over where a guard or a clock fails; they call nothing of ours that could fail but what they stand in for."""
LAST_RESORT = frozenset(
    ("GraphRun.__init__", "InvocationScope.__init__", "InvocationScope._begin", "RecordingPolicy.__init__", "steady")
)
"""Without these no stage can run on its default model either: they fail once, not for good."""
UNTOLD = (
    "ObserverGroup.",
    "InFlightLoadMonitor.",
    "SessionLoad.",
    "_OwnCalls.",
    "load_array",
    "own_state",
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


SIGNALS: dict[str, Any] = {"signal": lambda state: len(state["text"]) > 1, "answer": ("text",)}


class InjectedFault(Exception):
    """The fault."""


class State(TypedDict, total=False):
    """The application's state."""

    answers: int
    text: str


class Stub(BaseChatModel):
    """Answers with its name, for a tenth of a cent; asks the guard first. A model that is down fails."""

    name_: str
    call: Any
    is_down: bool = False

    @property
    def _llm_type(self) -> str:
        return "stub"

    def _spend(self) -> None:
        call: CallContext = self.call
        permit = None if call.guard is None else call.guard.authorize(0.01)
        usage = Usage(model=self.name_, cost_usd=0.001, latency_s=0.01)
        call.on_usage(usage)
        if permit is not None:
            permit.settle(usage)
        if self.is_down:
            raise CallError(f"{self.name_} is down", kind="server")

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        self._spend()
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.name_))])

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        self._spend()
        yield ChatGenerationChunk(message=AIMessageChunk(content=self.name_))


class StubBackend:
    """Counts the calls' models; ``down`` names those that fail."""

    is_simulated, is_virtual_time = True, False

    def __init__(self, down: frozenset[str]) -> None:
        self.down = down

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """Return the chat model."""
        return Stub(name_=model.name, call=call, is_down=model.name in self.down)


class Watcher:
    """An observer that is whole."""

    def decided(self, decided: Any) -> None:
        """Take it."""

    def began(self, stage: str, prefix: tuple[str, ...], model: Any) -> None:
        """Take it."""

    def ended(self, token: Any, invocation: Any) -> None:
        """Take it."""


class Application:
    """``answer`` and up to two ``repair``: the workflow is finished after three answers, so every loop runs to its bound."""

    def __init__(self, down: frozenset[str] = frozenset()) -> None:
        price = Price(input=1.0, output=1.0, source="made up", as_of="2026-01-01")
        names = ("good", "fair", "poor")
        catalog = Catalog(
            [Model(name=name, provider="stub", model_id=name, price=price, engine=name, max_tokens=8) for name in names]
        )
        template = Template((Stage("answer"), Loop((Stage("repair"),), times=DEPTH - 1))).bind(names)
        trie = Trie.from_template(template)
        zeros = np.zeros(len(trie))
        quality = np.array([0.0, *(0.3 - 0.1 * trie.model[node] for node in range(1, len(trie)))]) * (trie.depth > 0)
        right = quality / np.maximum(trie.depth, 1)
        annotated = AnnotatedTrie(trie, template, catalog, right, zeros, zeros, zeros, zeros, zeros, zeros)
        self.vine = VineLM(catalog, {"stub": StubBackend(down)}, trie=annotated, load=InFlightLoadMonitor(), **SIGNALS)
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
        context, config = self.vine.context(OBJECTIVES[objective]), {"configurable": {"thread_id": thread}}
        graph = self.graph[mode]
        if mode == "async":
            found: State = asyncio.run(graph.ainvoke({}, config, context=context))
        elif mode == "stream":
            found = [state for kind, state in graph.stream({}, config, context=context, stream_mode=["messages", "values"])][-1]
        else:
            found = graph.invoke({}, config, context=context)
        return found


# -- which functions, and how they fail ------------------------------------------------------------------------------


def entered(serve: Callable[[], object]) -> set[tuple[str, str]]:
    """Module and qualified name of our functions that ``serve`` enters, in any thread."""
    found: set[tuple[str, str]] = set()

    def hook(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            found.add((frame.f_globals["__name__"], frame.f_code.co_qualname))

    threading.setprofile(hook)
    sys.setprofile(hook)
    try:
        serve()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return found


def is_target(module: str, name: str) -> bool:
    """Whether a fault there is ours to survive."""
    if "<" in name or module.startswith(THE_CALL):
        return False
    return name not in BOUNDARIES and not name.startswith((*OF_OTHERS, *STAND_INS))


@contextmanager
def failing(module: str, name: str, at: int, is_lasting: bool) -> Iterator[list[int]]:
    """Let that function raise at its call number ``at``, or from then on; yields a list with the number of faults."""
    owner: Any = sys.modules[module]
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    original = vars(owner)[last]
    calls, faults = [0], [0]

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == at or (is_lasting and calls[0] > at):
                faults[0] += 1
                raise InjectedFault("a prompt and a key")
            return function(*args, **kwargs)

        return faulty

    if isinstance(original, property):
        replaced: Any = property(wrapped(original.fget))  # type: ignore[arg-type]
    elif isinstance(original, (classmethod, staticmethod)):
        replaced = type(original)(wrapped(original.__func__))
    else:
        replaced = wrapped(original)
    places = [(owner, last)]
    if not path:  # other modules have imported it by name
        held = [one for key, one in sys.modules.items() if key.startswith("vinelm") and one is not owner]
        places += [(one, key) for one in held for key, value in list(vars(one).items()) if value is original]
    for place, key in places:
        setattr(place, key, replaced)
    try:
        yield faults
    finally:
        for place, key in places:
            setattr(place, key, original)


class Captured:
    """The runs that were made while it is installed, to read their traces afterwards."""

    def __init__(self) -> None:
        self.runs: list[GraphRun] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Keep every run that is made inside the block."""
        init, runs = GraphRun.__init__, self.runs

        def kept(run: GraphRun, *args: Any, **kwargs: Any) -> None:
            init(run, *args, **kwargs)
            runs.append(run)

        GraphRun.__init__ = kept  # type: ignore[method-assign]
        try:
            yield
        finally:
            GraphRun.__init__ = init  # type: ignore[method-assign]

    def notes(self) -> str:
        """Everything that the traces tell."""
        return " | ".join(str(step.get("note", "")) for run in self.runs for step in run.policy.trace())


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


if __name__ == "__main__":
    import json

    report = run(lambda line: None)
    print(json.dumps(report, indent=1))

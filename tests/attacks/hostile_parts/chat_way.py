"""Chat models as stages: in nodes, in every form of a call, in a subgraph, and outside of a graph."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from vinelm import Loop, Stage, VineLM
from vinelm.controller import InFlightLoadMonitor

from .stub_models import StubBackend, Watcher, annotated_trie
from .way import OBJECTIVES

TURNS = 3


def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


class ChatState(TypedDict, total=False):
    """The application's state."""

    turns: int


def streamed(model: Any) -> object:
    """Call it for a stream."""
    return list(model.stream("?"))


async def astreamed(model: Any) -> object:
    """The same for a coroutine."""
    return [chunk async for chunk in model.astream("?")]


FORMS: Mapping[str, Callable[[Any], Any]] = {
    "invoke": lambda model: model.invoke("?"),
    "stream": streamed,
    "tools": lambda model: model.bind_tools([add]).invoke("?"),
    "structured": lambda model: model.with_structured_output({"title": "Answer", "type": "object"}).invoke("?"),
    "ainvoke": lambda model: model.ainvoke("?"),
    "astream": astreamed,
}
ASYNC = ("ainvoke", "astream")


class ChatWay:
    """A loop of one node that calls a chat model in one of the forms."""

    cases = tuple(f"{form}, {cap}" for form in (*FORMS, "inner", "alone") for cap in ("no cap", "cap"))
    most_calls = TURNS
    is_capped = False
    boundaries = frozenset(
        (
            "VineChatModel.invoke",
            "VineChatModel.ainvoke",
            "VineChatModel.generate",
            "VineChatModel.agenerate",
            "VineChatModel.stream",
            "VineChatModel.astream",
            "VineChatModel.model_name",
            "VineChatModel._get_invocation_params",
            "VineChatModel._begin",
            "VineChatModel._abegin",
            "_Begun.__init__",
            "_Begun.__enter__",
            "_Begun.__exit__",
            "_Begun.__aenter__",
            "_Begun.__aexit__",
            "_Begun.names",
            "_with",
            "_taken",
            "ChatCall.close",
            "VineChatModel._llm_type",
            "VineChatModel._identifying_params",
            "VineChatModel._get_ls_params",
            "VineChatModel._attempt",
            "VineChatModel._aattempt",
            "VineChatModel._place",
            "_Call.__init__",
            "_Call.__exit__",
            "_Call.__aexit__",
            "_Call._ends",
            "_Call.saw",
            "ChatCall.__init__",
            "ChatCall.begin",
            "ChatCall.abegin",
            "ChatCall._begun",
            "node_of",
            "GraphInterface.request",
            "GraphAdapter.within",
        )
    )

    def __init__(self, **settings: Any) -> None:
        annotated = annotated_trie(Loop((Stage("answer"),), times=TURNS))
        self.backend, self.load = StubBackend(), InFlightLoadMonitor()
        self.vine = VineLM(annotated.catalog, {"stub": self.backend}, trie=annotated, load=self.load, **settings)
        self.vine.observe(Watcher())
        self._model = self.vine.chat_model("answer")
        self._graphs = {form: self._graph(form) for form in (*FORMS, "inner")}

    def _graph(self, form: str) -> Any:
        call = FORMS[form if form in FORMS else "invoke"]

        def node(state: ChatState) -> ChatState:
            call(self._model)
            return {"turns": state.get("turns", 0) + 1}

        async def anode(state: ChatState) -> ChatState:
            await call(self._model)
            return {"turns": state.get("turns", 0) + 1}

        inside: Any = anode if form in ASYNC else node
        if form == "inner":
            inner = StateGraph(ChatState)
            inner.add_node("within", node)
            inner.add_edge(START, "within")
            inside = inner.compile()
        graph = StateGraph(ChatState)
        graph.add_node("answer", inside)
        graph.add_edge(START, "answer")
        graph.add_conditional_edges("answer", self.vine.route(lambda state: state["turns"] >= TURNS, again="answer", end=END))
        return graph.compile(checkpointer=InMemorySaver())

    def serve(self, case: str, thread: str) -> object:
        """Serve one request."""
        form, objective = case.split(", ")
        if form == "alone":
            with self.vine.request(OBJECTIVES[objective]):
                return [self._model.invoke("?") for _ in range(TURNS)]
        context, config = self.vine.context(OBJECTIVES[objective]), {"configurable": {"thread_id": thread, "tenant": "acme"}}
        if form in ASYNC:
            return asyncio.run(self._graphs[form].ainvoke({}, config, context=context))
        return self._graphs[form].invoke({}, config, context=context)

    def behind(self) -> Mapping[str, float]:
        """What requests have left behind."""
        return {"calls in flight": sum(own.in_flight for own in self.load._own.values())}

    def close(self) -> None:
        """End what runs in the background."""
        self.vine.close()

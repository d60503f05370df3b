"""An agent of ``create_agent`` with the middleware."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from vinelm import Loop, Stage, VineLM, VineMiddleware
from vinelm.controller import InFlightLoadMonitor

from .chat_way import add
from .stub_models import TURNS, Stub, StubBackend, Watcher, annotated_trie
from .way import OBJECTIVES


class AgentWay:
    """An agent that calls a tool twice."""

    cases = tuple(f"{mode}, {cap}" for mode in ("sync", "async", "stream") for cap in ("no cap", "cap"))
    most_calls = TURNS
    is_capped = False
    boundaries = frozenset(
        f"VineMiddleware.{name}" for name in ("wrap_model_call", "awrap_model_call", "_found", "_place", "_written")
    ) | {"_on", "_continued"}

    def __init__(self) -> None:
        from langchain.agents import create_agent

        annotated = annotated_trie(Loop((Stage("model"),), times=TURNS))
        self.backend, self.load = StubBackend(), InFlightLoadMonitor()
        self.vine = VineLM(annotated.catalog, {"stub": self.backend}, trie=annotated, load=self.load)
        self.vine.observe(Watcher())
        bare: Any = Stub(name_="bare", call=None, backend=None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._agent = create_agent(bare, [add], middleware=[VineMiddleware(self.vine)], checkpointer=InMemorySaver())

    def serve(self, case: str, thread: str) -> object:
        """Serve one request."""
        mode, objective = case.split(", ")
        asked: Any = {"messages": [HumanMessage("1 + 1?")]}
        context: Any = self.vine.context(OBJECTIVES[objective])
        config: Any = {"configurable": {"thread_id": thread}}
        if mode == "async":
            return asyncio.run(self._agent.ainvoke(asked, config, context=context))
        if mode == "stream":
            return list(self._agent.stream(asked, config, context=context, stream_mode="messages"))
        return self._agent.invoke(asked, config, context=context)

    def behind(self) -> Mapping[str, float]:
        """What requests have left behind."""
        return {"calls in flight": sum(own.in_flight for own in self.load._own.values())}

    def close(self) -> None:
        """End what runs in the background."""
        self.vine.close()

"""An application with a cap of $1 for each request, whose stages pay $0.3 a call and then end as the test says.

Run as a program, it serves or resumes the thread in a file, is killed in its first stage, and notes what it paid.
"""

import asyncio
import json
import os
import signal
import sys
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import numpy as np
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from vinelm import AnnotatedTrie, Objective, Request, Stage, Template, VineLM
from vinelm.backends import TextWriter
from vinelm.backends.offline.simulated import SimulatedBackend, simulated_catalog
from vinelm.errors import CallRefused
from vinelm.trie.trie import Trie

CAP_USD, CALL_USD = 1.0, 0.3
OBJECTIVE = Objective(maximize="accuracy", max_cost_usd=CAP_USD, cost_budget="per_request")
REQUEST = Request("q0", {"question": "?", "answer": "42"})
THREAD = {"configurable": {"thread_id": "t"}}
GRAPHS = ("stages", "chat models", "subgraph")
CONTEXT_ENDS = ("interrupt", "fail")


class Failure(Exception):
    """The application's own."""


class State(TypedDict, total=False):
    question: str
    answer: str
    edits: int


class Application:
    """One request on one thread."""

    def __init__(self, graph, *, request_id=None, is_async=False):
        self.kind, self.request_id, self.is_async = graph, request_id, is_async
        self.ends, self.calls_per_stage, self.paid_usd = [], 2, 0.0
        self.on_paid = lambda: None
        self.saver = InMemorySaver()
        self._build()

    def _build(self):
        app = self

        class Priced(SimulatedBackend):
            def answer(self, model, call, prompt_chars):
                text, usage = super().answer(model, call, prompt_chars)
                return text, replace(usage, cost_usd=CALL_USD, failure=None)

        everything = simulated_catalog()
        catalog = everything.subset(tuple(everything)[:1])
        template = Template((Stage("solve"), Stage("fix"))).bind(tuple(catalog))
        trie = Trie.from_template(template)
        zeros, cost = np.zeros(len(trie)), np.where(trie.depth > 0, 0.0, 0.0)
        annotated = AnnotatedTrie(trie, template, catalog, 0.2 * trie.depth, zeros, zeros, cost, zeros, zeros, zeros)
        self.vine = VineLM(catalog, {"simulated": Priced(TextWriter("answer"), catalog=catalog)}, trie=annotated)

        def call(model):
            for _ in range(app.calls_per_stage):
                model.invoke("?")
                app.paid_usd += CALL_USD
                app.on_paid()

        async def acall(model):
            for _ in range(app.calls_per_stage):
                await model.ainvoke("?")
                app.paid_usd += CALL_USD

        def end():
            kind = app.ends.pop(0) if app.ends else "ok"
            if kind == "interrupt":
                interrupt("may I?")
            if kind == "fail":
                raise Failure
            return kind

        def stage(state: State, model):
            call(model)
            end()
            return {"answer": "42"}

        async def astage(state: State, model):
            await acall(model)
            if end() == "cancel":
                await asyncio.sleep(60)
            return {"answer": "42"}

        def plain(name):
            model = self.vine.chat_model(name)

            def node(state: State):
                return stage(state, model)

            async def anode(state: State):
                return await astage(state, model)

            return anode if self.is_async else node

        staged = astage if self.is_async else stage
        graph = StateGraph(State)
        for name in ("solve", "fix"):
            graph.add_node(name, plain(name) if self.kind == "chat models" else self.vine.stage(name, staged))
        graph.add_edge(START, "solve")
        graph.add_edge("solve", "fix")
        graph.add_edge("fix", END)
        if self.kind == "subgraph":
            inner, graph = graph.compile(), StateGraph(State)
            graph.add_node("inner", inner)
            graph.add_edge(START, "inner")
            graph.add_edge("inner", END)
        self.graph = graph.compile(checkpointer=self.saver)

    def context(self):
        self.session = self.vine.session(OBJECTIVE, request=REQUEST)
        return self.vine.context(OBJECTIVE, policy=self.session, request=REQUEST, request_id=self.request_id)

    def start(self):
        with suppress(Failure, CallRefused):
            self.graph.invoke({"question": "?"}, THREAD, context=self.context())

    def resume(self):
        with suppress(Failure, CallRefused):
            self.graph.invoke(self._next(), THREAD, context=self.context())

    def _next(self):
        waits = any(task.interrupts for task in self.graph.get_state(THREAD).tasks)
        return Command(resume="yes") if waits else None

    async def astart(self):
        await self._awaited({"question": "?"})

    async def aresume(self):
        await self._awaited(self._next())

    async def _awaited(self, value):
        with suppress(Failure, CallRefused, asyncio.TimeoutError):
            await asyncio.wait_for(self.graph.ainvoke(value, THREAD, context=self.context()), 1.0)

    def abandon(self):
        stream = self.graph.stream({"question": "?"}, THREAD, context=self.context())
        next(stream)
        stream.close()

    def edit(self):
        self.graph.update_state(THREAD, {"edits": 1}, as_node=None if self.kind == "stages" else "__start__")

    def reload(self):
        """Go on with what another process would read."""
        saver = InMemorySaver()
        restore(saver, snapshot(self.saver))
        self.saver = saver
        self._build()


def snapshot(saver):
    """Everything that a saver in memory holds, as JSON."""

    def packed(pair):
        return [pair[0], b64encode(pair[1]).decode()]

    return {
        "storage": [
            [thread, ns, key, packed(one), packed(meta), parent]
            for thread, spaces in saver.storage.items()
            for ns, kept in spaces.items()
            for key, (one, meta, parent) in kept.items()
        ],
        "writes": [
            [list(where), [list(place), task, channel, packed(value), path]]
            for where, some in saver.writes.items()
            for place, (task, channel, value, path) in some.items()
        ],
        "blobs": [[list(where), packed(value)] for where, value in saver.blobs.items()],
    }


def restore(saver, kept):
    """The inverse of :func:`snapshot`."""

    def unpacked(pair):
        return pair[0], b64decode(pair[1])

    for thread, ns, key, one, meta, parent in kept["storage"]:
        saver.storage[thread][ns][key] = unpacked(one), unpacked(meta), parent
    for where, (place, task, channel, value, path) in kept["writes"]:
        saver.writes[tuple(where)][tuple(place)] = task, channel, unpacked(value), path
    for where, value in kept["blobs"]:
        saver.blobs[tuple(where)] = unpacked(value)


def main():
    file, paid = Path(sys.argv[1]), Path(sys.argv[2])
    app = Application("stages")
    is_new = not file.exists()
    if not is_new:
        restore(app.saver, json.loads(file.read_text()))

    def die():
        with paid.open("a") as log:
            log.write(f"{CALL_USD}\n")
        file.write_text(json.dumps(snapshot(app.saver)))  # as a saver on disk has it at this moment
        if app.paid_usd > 0.5:
            os.kill(os.getpid(), signal.SIGKILL)

    app.on_paid = die
    app.start() if is_new else app.resume()


if __name__ == "__main__":
    main()

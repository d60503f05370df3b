"""Stages that pay and do not finish: random histories of requests under a cap of $1, of which none may pay more.

A stage calls its model up to four times, for $0.1 and at most $0.3 each, and then asks a human, raises, is cancelled, ends with
its process, or finishes. The request is resumed in the same process or in another one (nothing but the checkpointer is left),
after an edit of its state, or from an older checkpoint; then comes the next input of the thread. A stage that did not finish is
never passed over, either.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from vinelm import AnnotatedTrie, Catalog, Loop, Objective, Stage, Template, VineLM
from vinelm.catalog import Model, Price
from vinelm.money.guard_pair import aauthorized
from vinelm.requests.protocols import CallContext
from vinelm.rows.observation import Usage
from vinelm.trie.trie import Trie

CAP_USD, COST_USD, UPPER_USD = 1.0, 0.1, 0.3
OBJECTIVE = Objective(maximize="accuracy", max_cost_usd=CAP_USD, cost_budget="per_request")
THREAD: Any = {"configurable": {"thread_id": "t"}}
HISTORIES, STEPS = 400, 14
ENDS = ("ask", "raise", "cancel", "die", "finish")


class _Death(Exception):
    """The process ends here: what it would have written afterwards is not written."""


class _Saver(InMemorySaver):
    """Refuses everything once its process is dead; what it holds is handed to the next process."""

    is_dead = False

    def put(self, *arguments: Any) -> Any:
        """See the base class."""
        if self.is_dead:
            raise _Death
        return super().put(*arguments)

    def put_writes(self, *arguments: Any) -> None:
        """See the base class."""
        if self.is_dead:
            raise _Death
        super().put_writes(*arguments)


class State(TypedDict, total=False):
    """The number of the request, and its answer."""

    request: int
    answer: str


class _Model(BaseChatModel):
    call: Any
    process: Any

    @property
    def _llm_type(self) -> str:
        return "paid"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        call: CallContext = self.call
        permit = None if call.guard is None else await aauthorized(call.guard, UPPER_USD)
        self.process.paid[int(messages[-1].content)] += 1
        if self.process.dies:
            self.process.saver.is_dead = True
            raise _Death
        usage = Usage(model="m", cost_usd=COST_USD, latency_s=0.0)
        if permit is not None:
            permit.settle(usage)
        call.on_usage(usage)
        return ChatResult(generations=[ChatGeneration(message=AIMessage("42"))])


class _Process:
    """The application in a process: its graph over the checkpointer's contents; ``paid`` counts calls by request."""

    is_simulated, is_virtual_time = True, False

    def __init__(
        self, rng: random.Random, paid: Counter[int], before: InMemorySaver | None, kind: str, passed_over: list[Any]
    ) -> None:
        self.passed_over = passed_over
        self.rng, self.paid, self.saver, self.dies = rng, paid, _Saver(), False
        if before is not None:
            self.saver.storage, self.saver.writes, self.saver.blobs = before.storage, before.writes, before.blobs
        price = Price(input=1.0, output=1.0, source="made up", as_of="2026-01-01")
        catalog = Catalog([Model(name="m", provider="paid", model_id="m", price=price, engine="e", max_tokens=8)])
        template = Template((Stage("solve"), Loop((Stage("fix"),), times=1))).bind(("m",))
        trie = Trie.from_template(template)
        zeros = 0.0 * trie.depth
        annotated = AnnotatedTrie(trie, template, catalog, 0.2 * trie.depth, zeros, zeros, zeros, zeros, zeros, zeros)
        self.vine = VineLM(catalog, {"paid": self}, trie=annotated)
        graph = StateGraph(State)
        for name in ("solve", "fix"):
            if kind == "chat models":
                graph.add_node(name, self._chat_node(name))
            else:
                graph.add_node(name, self.vine.stage(name, self._stage(name), state=State))
        graph.add_edge(START, "solve")
        graph.add_edge("solve", "fix")
        graph.add_edge("fix", END)
        self.graph = graph.compile(checkpointer=self.saver)

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """Return the chat model."""
        return _Model(call=call, process=self)

    def _chat_node(self, name: str) -> Callable[..., Any]:
        model = self.vine.chat_model(name)

        async def node(state: State) -> State:
            return await self._work(name, state, model)

        return node

    def _stage(self, name: str) -> Callable[..., Any]:
        async def stage(state: State, model: Any) -> State:
            return await self._work(name, state, model)

        return stage

    async def _work(self, name: str, state: State, model: Any) -> State:
        end, calls = self.rng.choice(ENDS), self.rng.randint(0, 4)
        for _ in range(calls):
            await model.ainvoke(str(state["request"]))
        if end == "die":
            self.dies = True
            await model.ainvoke(str(state["request"]))
        elif end == "ask":
            while True:
                interrupt("may I?")
        elif end == "raise":
            raise RuntimeError("a tool failed")
        elif end == "cancel":
            raise asyncio.CancelledError
        return {"answer": answer_of(state["request"], name)}

    async def run(self, value: Any, config: Any = THREAD) -> None:
        """Run the graph, whatever comes of it."""
        with suppress(Exception, asyncio.CancelledError):
            await self.graph.ainvoke(value, config, context=self.vine.context(OBJECTIVE))
        state = self.graph.get_state(THREAD)
        if state.values and not state.next and state.values.get("answer") != answer_of(state.values["request"], "fix"):
            self.passed_over.append(state.values)


def answer_of(request: int, stage: str) -> str:
    """What a stage leaves in the state when it finishes."""
    return f"{request}, {stage}"


async def _history(rng: random.Random, kind: str, passed_over: list[Any]) -> Counter[int]:
    """The calls that each request of one thread has paid for; ``passed_over`` gets the states behind unfinished stages."""
    paid: Counter[int] = Counter()
    process, number = _Process(rng, paid, None, kind, passed_over), 0
    for _ in range(STEPS):
        step = rng.choice(("input", "resume", "resume", "go on", "elsewhere", "edit", "older"))
        if process.saver.is_dead or step == "elsewhere":
            process = _Process(rng, paid, process.saver, kind, passed_over)
        if step == "input" or number == 0:
            number += 1
            await process.run({"request": number})
        elif step == "resume":
            await process.run(Command(resume="yes"))
        elif step == "go on":
            await process.run(None)
        elif step == "edit" and process.graph.get_state(THREAD).next:
            await process.graph.aupdate_state(THREAD, {"answer": "edited"}, as_node=rng.choice((None, "solve")))
        elif step == "older":
            states = [state for state in process.graph.get_state_history(THREAD) if state.next]
            if states:
                await process.run(None, rng.choice(states).config)
    return paid


def run(progress: Callable[..., object], *, histories: int = HISTORIES) -> Mapping[str, Any]:
    """Play the histories; ``through`` names those in which a request paid more than its cap. Makes no call to any server."""
    found: dict[str, Any] = {"attempts": 0, "calls_paid": 0, "through": []}
    for kind in ("stages", "chat models"):
        for seed in range(histories):
            passed_over: list[Any] = []
            paid = asyncio.run(_history(random.Random(seed), kind, passed_over))
            found["attempts"] += 1
            found["calls_paid"] += paid.total()
            most = max(paid.values(), default=0) * COST_USD
            if most > CAP_USD + 1e-9:
                found["through"].append(f"{kind}, history {seed}: a request paid ${most:.2f} of ${CAP_USD:g}")
            if passed_over:
                found["through"].append(f"{kind}, history {seed}: a stage that did not finish was passed over")
        progress(f"{kind}: {histories} histories")
    return found


__all__ = ["run"]

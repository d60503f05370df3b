"""An application that pays in all the ways that leave a stage unfinished. Every call costs $0.1 and may cost up to $0.3 of $1.

Each execution of a stage follows a plan, a list of what it does in order: "call", "ask" (a human), "raise", "wait", "die" (the
process). Dollars that were really paid are appended to a file, under the number of the request in the state.
Run as a program it does what the JSON on stdin says, in a process of its own.
"""

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from kit.apps.savers import FileSaver
from vinelm import AnnotatedTrie, Loop, Objective, Price, Stage, Template, VineLM
from vinelm.catalog import Catalog, Model
from vinelm.errors import CallRefused
from vinelm.money.guard_pair import aauthorized
from vinelm.rows.observation import Usage
from vinelm.trie.trie import Trie

CAP, UPPER, COST = 1.0, 0.3, 0.1
OBJECTIVE = Objective(maximize="accuracy", max_cost_usd=CAP, cost_budget="per_request")
THREAD = {"configurable": {"thread_id": "t"}}


class Payer(BaseChatModel):
    """Asks the guard, pays, and tells."""

    call: Any
    app: Any

    @property
    def _llm_type(self) -> str:
        return "payer"

    def _paid(self, permit, messages):
        name = str(messages[-1].content)
        self.app.pay(name.removesuffix("!"))
        if name.endswith("!") and self.app.dies_really:
            self._wait_for_a_checkpoint()
            os._exit(9)
        if name.endswith("!"):
            self.app.saver.is_dead = True
            raise SystemExit(9)
        usage = Usage(model="m", cost_usd=COST, latency_s=0.01)
        if permit is not None:
            permit.settle(usage)
        self.call.on_usage(usage)
        return ChatResult(generations=[ChatGeneration(message=AIMessage("42"))])

    def _wait_for_a_checkpoint(self):
        """LangGraph saves it in another thread: before that there would be nothing to resume."""
        until = time.monotonic() + 10.0
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            return  # it would wait for this one
        while self.app.saver.get_tuple(THREAD) is None and time.monotonic() < until:
            time.sleep(0.01)

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        guard = self.call.guard
        return self._paid(None if guard is None else guard.authorize(UPPER), messages)

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        guard = self.call.guard
        return self._paid(None if guard is None else await aauthorized(guard, UPPER), messages)


class Backend:
    is_simulated, is_virtual_time = True, False

    def __init__(self, app):
        self.app = app

    def chat_model(self, model, call):
        return Payer(call=call, app=self.app)


class Till:
    """What the fake models are paid."""

    dies_really = False

    def __init__(self):
        self.paid = []

    def pay(self, name):
        self.paid.append(name)


def vine_of(till, **settings):
    """A VineLM of one model, which is paid into the till."""
    price = Price(input=1.0, output=1.0, source="made up", as_of="2026-01-01")
    catalog = Catalog([Model(name="m", provider="payer", model_id="m", price=price, engine="e", max_tokens=8)])
    return VineLM(catalog, {"payer": Backend(till)}, **settings)


class State(TypedDict, total=False):
    request: str
    answer: str


class PayingApp:
    """solve, then fix, then fix; as wrapped stages or nodes that hold a chat model, synchronous or not.

    Where ``dies_really`` is False, the end of the process only means that nothing is written any more.
    ``served`` is the request whose stage ran last.
    ``plans`` are followed by the executions of stages, in order, and then each makes one call.
    """

    dies_really, served = True, ""

    def __init__(self, folder, *, kind="stage", is_async=False, saver=None, retry=None, on_error="default", **settings):
        self.paid = Path(folder) / "paid"
        self.saver = FileSaver(Path(folder) / "saver") if saver is None else saver
        self.plans, self.kind, self.is_async, self.retry = [], kind, is_async, retry
        price = Price(input=1.0, output=1.0, source="made up", as_of="2026-01-01")
        catalog = Catalog([Model(name="m", provider="payer", model_id="m", price=price, engine="e", max_tokens=8)])
        template = Template((Stage("solve"), Loop((Stage("fix"),), times=2))).bind(("m",))
        trie = Trie.from_template(template)
        zeros = np.zeros(len(trie))
        annotated = AnnotatedTrie(trie, template, catalog, 0.2 * trie.depth, zeros, zeros, zeros, zeros, zeros, zeros)
        self.vine = VineLM(catalog, {"payer": Backend(self)}, trie=annotated, on_error=on_error, **settings)
        self.graph = self._built()

    def _built(self):
        graph = StateGraph(State)
        graph.add_node("look", lambda state: {})  # a tool before the first stage
        for name, stage in (("solve", "solve"), ("fix", "fix"), ("again", "fix")):
            graph.add_node(name, self._node(stage), retry_policy=self.retry)
        for one, other in zip((START, "look", "solve", "fix", "again"), ("look", "solve", "fix", "again", END), strict=True):
            graph.add_edge(one, other)
        return graph.compile(checkpointer=self.saver)

    def _node(self, stage):
        chat = self.vine.chat_model(stage) if self.kind == "chat" else None

        def run(state: State, model=chat):
            self.served = state["request"]
            for action in self._plan():
                if action in {"call", "die"}:
                    model.invoke(state["request"] + "!" * (action == "die"))
                else:
                    self._other(action)
            return {"answer": "42"}

        async def arun(state: State, model=chat):
            self.served = state["request"]
            for action in self._plan():
                if action in {"call", "die"}:
                    await model.ainvoke(state["request"] + "!" * (action == "die"))
                elif action == "blocking call":
                    model.invoke(state["request"])
                elif action == "wait":
                    await asyncio.sleep(60)
                else:
                    self._other(action)
            return {"answer": "42"}

        chosen = arun if self.is_async else run
        if self.kind == "chat":

            def node(state: State):
                return run(state)

            async def anode(state: State):
                return await arun(state)

            return anode if self.is_async else node
        return self.vine.stage(stage, chosen, state=State)

    def _plan(self):
        return self.plans.pop(0) if self.plans else ["call"]

    @staticmethod
    def _other(action):
        if action == "ask":
            interrupt("may I?")
        elif action == "raise":
            raise RuntimeError("a tool failed")
        else:
            raise AssertionError(action)

    def pay(self, request):
        with self.paid.open("a") as file:
            file.write(f"{request} {COST}\n")

    def paid_usd(self, request="q"):
        """What the request has really cost, in all processes."""
        lines = self.paid.read_text().split("\n") if self.paid.exists() else []
        return round(sum(float(line.split()[1]) for line in lines if line.startswith(f"{request} ")), 6)

    def run(self, value, *plans, config=THREAD, context=None, **settings):
        """Run the graph; returns "done", "asks", "failed" or "refused"."""
        self.plans = list(plans)
        context = self.vine.context(OBJECTIVE) if context is None else context
        try:
            if self.is_async:
                found = asyncio.run(self.graph.ainvoke(value, config, context=context, **settings))
            else:
                found = self.graph.invoke(value, config, context=context, **settings)
        except CallRefused:
            return "refused"
        except RuntimeError:
            return "failed"
        except (SystemExit, OSError):
            return "dead"
        return "asks" if "__interrupt__" in (found or {}) else "done"


def value_of(told):
    return Command(resume="yes") if told == "resume" else told


if __name__ == "__main__":
    job = json.load(sys.stdin)
    app = PayingApp(job["folder"], kind=job.get("kind", "stage"), is_async=job.get("is_async", False))
    print(json.dumps([app.run(value_of(value), *plans) for value, plans in job["runs"]]))

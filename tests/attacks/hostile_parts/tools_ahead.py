"""Agents of many users over one `VineLM`, at once: whose tool runs ahead, before whom, and where it knows its caller.

Each service is drawn at random: how an agent is built, how its tool knows the user, and what the application does with calls
before the tool gets them. A user who is told another one's orders, a call that was refused and ran all the same, an answer that
differs from the same service without `speculate=`, and a request that does not end are what gets through.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, after_model, wrap_tool_call
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from vinelm import Catalog, Speculation, VineLM, VineMiddleware

USERS = 8
LIMIT_S = 60.0
BUILDS = ("agent", "nodes", "by hand")
KNOWS = ("closure", "context", "named late", "thread", "field")
CHECKS = ("none", "none", "approve", "deny", "rewrite", "interrupt node", "interrupt before", "after model", "guard node")
WAITS = ("none", "none", "lock", "exit")
NOBODY = "nobody"
USER: contextvars.ContextVar[str] = contextvars.ContextVar("hostile_user", default=NOBODY)
LOCAL = threading.local()
PRICE = {"input": 0.0, "output": 0.0, "source": "scripted", "as_of": "2026-11-28"}


class Scripted(BaseChatModel):
    """Asks for the orders once, then answers."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Itself: the script is the same whatever is bound."""
        return self.bind(tools=["bound"])

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        asked = any(isinstance(one, ToolMessage) for one in messages)
        calls = [] if asked else [{"name": "orders", "args": {"year": 1}, "id": "c1", "type": "tool_call"}]
        message = AIMessage("done" if asked else "", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


class Guess:
    """Guesses right, always."""

    def candidates(self, history: Any) -> list[tuple[str, dict[str, int], float]]:
        """Return the call that comes."""
        return [("orders", {"year": 1}, 1.0)]


@wrap_tool_call
def deny(request: Any, handler: Any) -> ToolMessage:
    """Let no call through."""
    return ToolMessage("denied", tool_call_id=request.tool_call["id"])


@wrap_tool_call
def rewrite(request: Any, handler: Any) -> Any:
    """Ask for another year."""
    return handler(request.override(tool_call={**request.tool_call, "args": {"year": 2}}))


def _rewritten(state: Any) -> dict[str, Any]:
    last = state["messages"][-1]
    calls = [{**one, "args": {"year": 2}} for one in last.tool_calls]
    return {"messages": [last.model_copy(update={"tool_calls": calls})]}


@after_model
def change(state: Any, runtime: Any) -> dict[str, Any]:
    """Ask for another year, too."""
    return _rewritten(state)


def _asking(state: Any) -> dict[str, Any]:
    interrupt("sure?")
    return {}


class Service:
    """One service, and what ran in it: (user of the tool, year), in any order."""

    def __init__(self, draw: random.Random, speculates: bool) -> None:
        self.how = {
            "build": draw.choice(BUILDS),
            "knows": draw.choice(KNOWS),
            "check": draw.choice(CHECKS),
            "waits": draw.choice(WAITS),
            "mode": draw.choice(("sync", "async")),
        }
        self.speculate = Speculation(join_s=0.2) if speculates else None
        self.chat, self.ran = Scripted(), list[tuple[str, int]]()
        self.vine = VineLM(Catalog.from_chat_models({"m": self.chat}, prices={"m": PRICE}))
        self.vine.adapter.tools.candidates = Guess()
        self.lock = threading.RLock()

    def tool(self, user: str) -> Any:
        """The user's own tool. Each kind is a function of its own: one that names a lock or a `threading.local` is known."""
        ran, lock = self.ran, self.lock

        def told(mine: str, year: int) -> str:
            ran.append((mine, year))
            return f"orders of {mine} in {year}"

        def closed(year: int) -> str:
            return told(user, year)

        def by_context(year: int) -> str:
            return told(USER.get(), year)

        def by_thread(year: int) -> str:
            return told(getattr(LOCAL, "user", NOBODY), year)

        def exits(year: int) -> str:
            if threading.current_thread().name == "vinelm-read-ahead":
                raise SystemExit("ahead")
            return told(user, year)

        def locked(year: int) -> str:
            with lock:
                return told(user, year)

        by_knows = {"closure": closed, "field": closed, "thread": by_thread}
        code = {"exit": exits, "lock": locked}.get(self.how["waits"], by_knows.get(self.how["knows"], by_context))
        code.__name__, code.__doc__ = "orders", "Return the orders of a year."
        made = self.vine.tool(code, read_only=True)
        if self.how["knows"] == "field" and self.how["waits"] == "none":  # a copy for the user, with a function of his
            made = made.model_copy(update={"func": lambda year: told(f"{user} himself", year)})
        return made

    def graph(self, user: str) -> Any:
        """The user's own agent, or graph."""
        orders, check, saver = self.tool(user), self.how["check"], InMemorySaver()
        stops = {"interrupt_before": ["tools"]} if check == "interrupt before" else {}
        if self.how["build"] == "agent":
            others = {"approve": HumanInTheLoopMiddleware(interrupt_on={"orders": True}), "deny": deny, "rewrite": rewrite}
            others["after model"] = change
            chosen = [others[check]] if check in others else []
            return create_agent(
                self.chat, [orders], middleware=[*chosen, VineMiddleware(self.vine)], checkpointer=saver, **stops
            )

        # Nodes that hold this object would reach all of its methods, and so what asks a person in some other service.
        lock, is_named_late = self.lock, self.how["knows"] == "named late"

        def think(state: MessagesState, model: Any) -> dict[str, Any]:
            with lock:
                return {"messages": [model.bind_tools([orders]).invoke(state["messages"])]}

        def do(state: MessagesState) -> dict[str, Any]:
            if is_named_late:
                USER.set(user)
            with lock:
                return {"messages": [orders.invoke(state["messages"][-1].tool_calls[0])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", self.vine.stage("model", think))
        wrap = {"deny": deny, "rewrite": rewrite}.get(check)
        node = (
            do
            if self.how["build"] == "by hand"
            else ToolNode([orders], **({} if wrap is None else {"wrap_tool_call": wrap.wrap_tool_call}))
        )
        graph.add_node("tools", node)
        between = {"approve": _asking, "interrupt node": _asking, "after model": _rewritten, "guard node": _rewritten}.get(
            check
        )
        graph.add_edge(START, "model")
        if between is None:
            graph.add_conditional_edges("model", tools_condition)
        else:
            graph.add_node("between", between)
            graph.add_conditional_edges("model", tools_condition, {"tools": "between", "__end__": "__end__"})
            graph.add_edge("between", "tools")
        graph.add_edge("tools", "model")
        return graph.compile(checkpointer=saver, **stops)

    def answer(self, user: str) -> str:
        """What the user is told, and whether the graph waits for a person."""
        if self.how["knows"] == "context":
            USER.set(user)
        LOCAL.user = user
        graph, config = self.graph(user), {"configurable": {"thread_id": "1"}}
        inputs, context = {"messages": [HumanMessage("mine?")]}, self.vine.context(speculate=self.speculate)
        try:
            if self.how["mode"] == "sync":
                out = graph.invoke(inputs, config, context=context)
            else:
                out = asyncio.run(graph.ainvoke(inputs, config, context=context))
        except Exception as error:
            return type(error).__name__
        found = [one.text for one in out["messages"] if isinstance(one, ToolMessage)]
        return f"{found} {'waits' if '__interrupt__' in out else ''}"

    def serve(self) -> dict[str, str]:
        """All users at once; one whose request does not end has no answer."""
        found: dict[str, str] = {}
        begins = threading.Barrier(USERS)

        def one(user: str) -> None:
            begins.wait(LIMIT_S)
            try:
                found[user] = self.answer(user)
            except BaseException as error:  # a thread of its own
                found[user] = f"failed: {error!r}"

        threads = [
            threading.Thread(target=contextvars.Context().run, args=(one, f"u{number}"), daemon=True) for number in range(USERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        return found


def run(told: Callable[..., None], services: int = 60, seed: int = 0) -> dict[str, Any]:
    """Serve each drawn service with and without calls ahead; returns the counts and what got through."""
    through: list[str] = []
    counts: Counter[str] = Counter()
    for number in range(services):
        plain, ahead = (Service(random.Random(f"{seed}/{number}"), one) for one in (False, True))
        wanted, found = plain.serve(), ahead.serve()
        if len(wanted) < USERS or any(one.startswith("failed") for one in wanted.values()):
            raise RuntimeError(f"{plain.how}: the service itself does not work: {wanted}")
        if found != wanted:
            differs = sorted(user for user in wanted if found.get(user) != wanted[user])
            through.append(f"{ahead.how}: {[(user, wanted[user], found.get(user)) for user in differs[:2]]}")
        extra = set(ahead.ran) - set(plain.ran)
        if ahead.how["knows"] == "named late":  # a call before the user is named is nobody's, and answers nothing
            extra = {one for one in extra if one[0] != NOBODY}
        if extra:
            through.append(f"{ahead.how}: ran for {sorted(extra)[:2]}, which nobody allowed")
        counts.update(ahead.vine.tool_counts)
        told(number + 1, services)
    return {"attempts": services * USERS, "through": through, "counts": dict(counts)}

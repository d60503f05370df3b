"""Creates a run's store of prefetched reads (early calls of read-only tools), and starts to prefetch when a model is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import copy_context
from functools import partial
from threading import Lock
from typing import Any
from weakref import finalize, ref

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.runtime import Runtime

from vinelm.adapters.langgraph.path.graph_values import graph_values
from vinelm.adapters.langgraph.runs.graph_run import GraphRun
from vinelm.adapters.langgraph.runs.run_context import AMBIENT
from vinelm.adapters.langgraph.runs.settings import AdapterSettings
from vinelm.adapters.tools.declaring import declared_in
from vinelm.adapters.tools.message_history import messages_in
from vinelm.adapters.tools.read_ahead import Ahead, ReadAhead
from vinelm.adapters.tools.run_end import end_with_graph
from vinelm.adapters.tools.tool_box import DeclaredTool
from vinelm.errors import WorkflowError
from vinelm.requests.names import label_of, scoped
from vinelm.requests.protocols import CallGuard
from vinelm.tools.speculation import ToolCandidate

_LOCK = Lock()
"""Held while a run's store of prefetched reads is created, since the calls of a fan-out begin at once."""


def reads_of(run: GraphRun, settings: AdapterSettings) -> ReadAhead | None:
    """Return the prefetched reads of the run, created on first use and dropped with the run.

    Returns None in a profile. Also returns None if the application neither declares tools nor records calls.
    """
    box = settings.tools
    is_heard = bool(box.declared) or box.recorder is not None
    if run.reads is None and is_heard and run.context.chat_host is None:
        known = ref(run)

        def guard() -> CallGuard | None:
            found = known()
            return None if found is None else found.guard

        with _LOCK:
            if run.reads is None:
                run.reads = ReadAhead(
                    box,
                    guard,
                    run.clock,
                    started_at=run.policy.started_at,
                    request_id=run.context.request_id or "",
                    speculation=run.context.speculate or box.speculation,
                    session=_session_of(run, settings),
                )
                finalize(run, run.reads.end).atexit = False  # at the latest
                end_with_graph(run.reads)
    return run.reads


def _session_of(run: GraphRun, settings: AdapterSettings) -> str | None:
    """Return the name of the session under which the run's tool calls are recorded; None if the run has no name.

    The name is the labelled request's id if there is one, otherwise made from the thread's name or the ``request_id``. Callers
    may choose these two, so the name also states which of them was used, and the tenant.
    """
    context = run.context
    if context.request is not None:
        return context.request.id
    tenant = label_of(settings.tenant, context.configurable)
    conversation = label_of(settings.conversation_id, context.configurable)
    if conversation:
        return scoped(conversation, tenant, "")
    return None if context.request_id is None else scoped(context.request_id, tenant, "request")


def start_reads(
    settings: AdapterSettings,
    run: GraphRun,
    called: tuple[str, tuple[str, ...]],
    config: RunnableConfig | None,
    runtime: Runtime[Any] | None,
    *,
    offered: Sequence[Any] | None = None,
) -> Ahead | None:
    """While a model is called, prefetch the calls of read-only tools that the model may ask for.

    Args:
        settings: the adapter's settings.
        run: the run.
        called: the stage, and the models of the request's invocations, ending with this call's model.
        config: LangGraph's config of the node; None outside of a graph.
        runtime: LangGraph's runtime of the node; None outside of a graph.
        offered: the tools offered to the model; None if they are unknown.

    Returns:
        An object that prefetches further tool calls while the model writes its answer; None if nothing is prefetched.
    """
    ahead = None
    with run.noting("a read ahead", called[1][:-1], called[0], may_raise=settings.on_error == "raise"):
        reads = reads_of(run, settings)
        if reads is None:
            return None
        if reads.speculation is not None:
            ahead = Ahead(reads, _tools_here(settings, reads, config, offered), copy_context())
        guesses = ahead is not None and settings.tools.guesses
        if not (guesses or reads.keeps_words):
            return ahead
        state = {} if config is None else graph_values(config, None, fresh=False)
        messages = messages_in(state)
        reads.said(messages or ())
        if ahead is None or not guesses:
            return ahead
        forget_where_retried(reads, runtime)
        choose = partial(run.policy.speculated, *called)
        fixed = _fixed(ahead.tools, run, called[1], state) if state else ()
        reads.speculate(messages, choose, ahead.tools, fixed, ahead.context)
    return ahead


def _tools_here(
    settings: AdapterSettings,
    reads: ReadAhead,
    config: RunnableConfig | None,
    offered: Sequence[Any] | None,
) -> Mapping[str, DeclaredTool]:
    """Return the tools that may be prefetched at the node of ``config``, by name; outside of a graph, the request's tools.

    ``config`` is None outside of a graph. ``offered`` are the tools that are offered to the called model; None if they are
    unknown.
    """
    box = settings.tools
    if config is not None:
        found = box.held_at(config)
        is_open = offered is None  # no model is offered what the graph itself calls
        return {name: one for name, one in found.items() if is_open or one.fixed or _is_offered(name, one, offered or ())}
    if AMBIENT.get() is None:  # a call that is a separate request: no tool is called in it
        return {}
    given = [one for of in offered or () if (one := declared_in(box, of)) is not None]
    known = {**reads.called, **{one.says.name: one for one in given}}
    return box.outside({name: one for name, one in known.items() if one is not None})


def _is_offered(name: str, tool: DeclaredTool, offered: Sequence[Any]) -> bool:
    """Return whether the model that is offered the tools ``offered`` may call the tool ``name``.

    If tools with this name are offered, ``tool`` must be one of them. Otherwise the result is True if some offered tool is only
    a schema, which may stand for ``tool``.
    """
    objects = [one for one in offered if isinstance(one, BaseTool)]
    of_name = [one for one in objects if one.name == name]
    return any(one is tool.tool() for one in of_name) if of_name else len(objects) < len(offered)


def _fixed(
    tools: Mapping[str, DeclaredTool], run: GraphRun, prefix: tuple[str, ...], state: Mapping[str, Any]
) -> list[ToolCandidate]:
    """Return the tool calls that nodes of the graph may make right after an invocation, as far as ``ahead=`` declares them.

    Each call is returned with the probability, according to the plan, that the request reaches the node which makes the call.
    ``prefix`` has the models of the path up to the invocation. The calls' arguments are computed from ``state``, the state
    before the invocation.
    """
    found = []
    for name, tool in tools.items():
        chance = None if tool.fixed is None else run.policy.comes_next(prefix, tool.fixed.before)
        arguments: Any = tool.fixed.arguments(state) if chance and tool.fixed is not None else None
        if arguments is not None and not isinstance(arguments, Mapping):
            kind = type(arguments).__name__
            raise WorkflowError(f"tool {name!r}: ahead= returned a {kind}: return its arguments by name, or None")
        if arguments is not None:
            found.append(ToolCandidate(name, arguments, min(1.0, chance or 0.0)))
    return found


def forget_where_retried(reads: ReadAhead, runtime: Runtime[Any] | None) -> None:
    """Drop the prefetched reads of a node's earlier attempts if LangGraph runs the node again."""
    place = None if runtime is None else runtime.execution_info
    if place is not None and place.node_attempt > 1:
        reads.retried((place.task_id, place.node_attempt))

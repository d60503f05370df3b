"""The reads that a run starts ahead: its memory of them, and where a model's call lets them start."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from threading import Lock
from typing import Any
from weakref import finalize, ref

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from vinelm.adapters.langgraph.path.graph_values import graph_values
from vinelm.adapters.langgraph.runs.graph_run import GraphRun
from vinelm.adapters.langgraph.runs.settings import AdapterSettings
from vinelm.adapters.tools.message_history import messages_in
from vinelm.adapters.tools.read_ahead import ReadAhead
from vinelm.adapters.tools.run_end import end_with_graph
from vinelm.adapters.tools.tool_box import ToolBox
from vinelm.errors import WorkflowError
from vinelm.requests.names import label_of, scoped
from vinelm.requests.protocols import CallGuard
from vinelm.tools.speculation import Candidate

_LOCK = Lock()
"""Held while a run is given its memory: calls of a fan-out begin at once."""


def reads_of(run: GraphRun, settings: AdapterSettings) -> ReadAhead | None:
    """Return what was read ahead in the run, made on first use and forgotten with the run; None in a profiled one."""
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
    """The name under which the run's calls are recorded: of a labelled request, of its thread, of the request.

    Callers may choose them: one that is of another kind, or of another tenant, is another name.
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
) -> None:
    """Start the reads that the model, which is called now, may ask for.

    Args:
        settings: of the adapter.
        run: the run.
        called: the stage, and the models of the request's invocations up to its own.
        config: LangGraph's, of the node; None outside of a graph.
        runtime: the same.
    """
    try:
        reads = reads_of(run, settings)
        if reads is None:
            return
        guesses = reads.speculation is not None and settings.tools.guesses
        if not (guesses or reads.keeps_words):
            return
        state = {} if config is None else graph_values(config, None, fresh=False)
        messages = messages_in(state)
        reads.said(messages or ())
        if not guesses:
            return
        forget_where_retried(reads, runtime)
        choose = partial(run.policy.speculated, *called)
        reads.speculate(messages, choose, _fixed(settings.tools, run, called[1], state) if state else ())
    except Exception as error:
        if settings.on_error == "raise":
            raise
        run.note_failure("a read ahead", error, called[1][:-1], called[0])


def _fixed(box: ToolBox, run: GraphRun, prefix: tuple[str, ...], state: Mapping[str, Any]) -> list[Candidate]:
    """The calls of fixed tool nodes that may come right after this invocation, as likely as the plan says."""
    found = []
    for name, tool in box.declared.items():
        chance = None if tool.fixed is None else run.policy.comes_next(prefix, tool.fixed.before)
        arguments: Any = tool.fixed.arguments(state) if chance and tool.fixed is not None else None
        if arguments is not None and not isinstance(arguments, Mapping):
            kind = type(arguments).__name__
            raise WorkflowError(f"tool {name!r}: ahead= returned a {kind}: return its arguments by name, or None")
        if arguments is not None:
            found.append(Candidate(name, arguments, min(1.0, chance or 0.0)))
    return found


def forget_where_retried(reads: ReadAhead, runtime: Runtime[Any] | None) -> None:
    """Let a node that LangGraph runs again begin with nothing read ahead."""
    place = None if runtime is None else runtime.execution_info
    if place is not None and place.node_attempt > 1:
        reads.retried((place.task_id, place.node_attempt))

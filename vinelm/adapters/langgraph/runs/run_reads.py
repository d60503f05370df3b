"""The reads that a run starts ahead: its memory of them, and where a model's call lets them start."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Lock
from typing import Any
from weakref import finalize, ref

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from vinelm.adapters.langgraph.path.graph_values import graph_values
from vinelm.adapters.langgraph.runs.graph_run import GraphRun
from vinelm.adapters.langgraph.runs.settings import AdapterSettings
from vinelm.adapters.tools.message_history import history_of, messages_in
from vinelm.adapters.tools.read_ahead import ReadAhead
from vinelm.adapters.tools.tool_box import ToolBox
from vinelm.requests.protocols import CallGuard

_LOCK = Lock()
"""Held while a run is given its memory: calls of a fan-out begin at once."""


def reads_of(run: GraphRun, box: ToolBox) -> ReadAhead | None:
    """Return what was read ahead in the run, made on first use and forgotten with the run; None in a profiled one."""
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
                    session=_session_of(run),
                )
                finalize(run, run.reads.end).atexit = False
    return run.reads


def _session_of(run: GraphRun) -> str | None:
    """The name under which the run's calls are recorded: of a labelled request, of its thread, of the request."""
    context = run.context
    thread = None if context.configurable is None else context.configurable.get("thread_id")
    if context.request is not None:
        return context.request.id
    return context.request_id if thread is None else str(thread)


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
        reads = reads_of(run, settings.tools)
        if reads is None:
            return
        reads.said(lambda: _conversation(config))
        if reads.speculation is None or settings.tools.candidates is None:
            return
        messages = _conversation(config)
        history = list(reads.history) if messages is None else history_of(messages)
        forget_where_retried(reads, runtime)
        reads.speculate(history, partial(run.policy.speculated, *called))
    except Exception as error:
        if settings.on_error == "raise":
            raise
        run.note_failure("a read ahead", error, called[1][:-1], called[0])


def _conversation(config: RunnableConfig | None) -> Sequence[BaseMessage] | None:
    """The conversation in the state of the node; None where it has none."""
    return None if config is None else messages_in(graph_values(config, None, fresh=False))


def forget_where_retried(reads: ReadAhead, runtime: Runtime[Any] | None) -> None:
    """Let a node that LangGraph runs again begin with nothing read ahead."""
    place = None if runtime is None else runtime.execution_info
    if place is not None and place.node_attempt > 1:
        reads.retried((place.task_id, place.node_attempt))

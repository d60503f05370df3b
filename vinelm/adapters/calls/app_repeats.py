"""Detects whether the application repeats failed calls itself. If so, its retries come before VineLM's fallback."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from langgraph.config import get_config

_REPEATERS = frozenset(
    (
        "langchain_core.runnables.fallbacks",
        "langchain_core.runnables.retry",
        "langchain.agents.middleware.model_fallback",
        "langchain.agents.middleware.model_retry",
    )
)
"""Modules of LangChain's own repeaters: ``with_fallbacks``, ``with_retry`` and the two middlewares."""
_NODE = "langgraph.pregel."
"""Prefix of the modules that run a node: frames further out on the call stack belong to the graph's caller, not to the node."""


def app_repeats(error: Exception) -> bool:
    """Return whether the application's ``retry_policy``, ``with_fallbacks``, ``with_retry`` or middleware will repeat the call.

    Call this function after a failure, from the code that made the call: it looks for retry code on the call stack. A node's
    ``retry_policy`` counts only while it would repeat this error. VineLM falls back to another model only after the last
    attempt of the ``retry_policy``. Otherwise every attempt would fall back, which would multiply the number of calls.
    """
    return _is_inside_repeater() or _is_retried_node(error)


def _is_inside_repeater() -> bool:
    for module in _calling_modules():
        if module in _REPEATERS:
            return True
        if module.startswith(_NODE):
            return False
    return False


def _calling_modules() -> Iterator[str]:
    """Yield the names of the modules on the call stack, innermost first, then of the tasks that await the current task."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        yield frame.f_globals.get("__name__", "")
        frame = frame.f_back
    try:
        task, tasks = asyncio.current_task(), asyncio.all_tasks()
    except RuntimeError:  # no event loop
        return
    while task is not None:
        task = next((other for other in tasks if _waits_for(other, task)), None)
        yield from reversed(_modules_of(task))


def _waits_for(other: Any, task: asyncio.Task[Any]) -> bool:
    """Return whether the task ``other`` awaits ``task``, directly or through ``asyncio.gather``."""
    awaited = getattr(other, "_fut_waiter", None)
    return awaited is not None and (awaited is task or task in getattr(awaited, "_children", ()))


def _modules_of(task: asyncio.Task[Any] | None) -> list[str]:
    """Return the module names of the nested coroutines that a waiting task runs, outermost first."""
    found, coroutine = [], None if task is None else task.get_coro()
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        if frame is not None:
            found.append(frame.f_globals.get("__name__", ""))
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return found


def _is_retried_node(error: Exception) -> bool:
    """Return whether the retry policy of the running LangGraph node would repeat the node after ``error``.

    The policy is read from the node's task, which LangGraph stores in its config under an internal key.
    """
    try:
        configurable: Any = get_config().get("configurable", {})
        call = configurable.get("__pregel_call")
        task = call.args[0]()
        policies = task.retry_policy or call.keywords.get("retry_policy") or ()
        attempt = configurable["__pregel_runtime"].execution_info.node_attempt
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError):
        return False
    for policy in policies if isinstance(policies, Sequence) else (policies,):
        if _repeats(policy.retry_on, error):
            return bool(attempt < policy.max_attempts)
    return False


def _repeats(retry_on: Any, error: Exception) -> bool:
    if isinstance(retry_on, Sequence):
        return isinstance(error, tuple(retry_on))
    if isinstance(retry_on, type) and issubclass(retry_on, Exception):
        return isinstance(error, retry_on)
    return bool(retry_on(error))

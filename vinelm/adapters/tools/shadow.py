"""Runs one prefetched read (an early call of a read-only tool) on a thread or as a task, isolated from the graph's runtime."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import Context, ContextVar
from dataclasses import dataclass
from functools import partial
from threading import BoundedSemaphore, Thread
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForToolRun, CallbackManagerForToolRun
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool
from langgraph.types import Command

from vinelm.errors import WorkflowError
from vinelm.foreign_code import answered
from vinelm.money.guard_pair import aauthorized
from vinelm.requests.protocols import CallGuard
from vinelm.rows.observation import Usage

IS_AHEAD: ContextVar[bool] = ContextVar("vinelm_is_ahead", default=False)
"""True inside a call that was started before the application asked for it."""
MOST_THREADS = 64
"""How many prefetches may run on threads, for all requests of the process; a hanging call keeps its thread."""
_THREADS = BoundedSemaphore(MOST_THREADS)


@dataclass(frozen=True, slots=True)
class ToolCode:
    """A tool as it was before VineLM declared it, and the arguments that LangChain adds to its calls.

    Attributes:
        tool: the tool as it was before VineLM declared it.
        config_names: the tool's parameters that take LangChain's config.
        takes_manager: whether the tool takes a ``run_manager``.
        is_async, is_sync: whether the tool implements an asynchronous and a synchronous call.
    """

    tool: BaseTool
    config_names: tuple[str, ...]
    takes_manager: bool
    is_async: bool
    is_sync: bool

    def injected(self, config: RunnableConfig, *, is_async: bool) -> dict[str, Any]:
        """Return the arguments that a prefetch passes instead of LangChain's own: the config, and a callback manager without
        handlers.
        """
        kind = AsyncCallbackManagerForToolRun if is_async else CallbackManagerForToolRun
        given: dict[str, Any] = dict.fromkeys(self.config_names, config)
        return {**given, "run_manager": kind.get_noop_manager()} if self.takes_manager else given

    def arguments_of(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the tool itself among ``given``, without the config and the callback manager that LangChain
        adds.
        """
        return {name: one for name, one in given.items() if name != "run_manager" and name not in self.config_names}


class Shadow:
    """The execution of one prefetched read, on a thread or as a task.

    Attributes:
        result: a future of the read's result or exception.

    Args:
        loop: the event loop on which the read runs as a task; None if it runs on a thread.
    """

    __slots__ = ("_task", "loop", "result")

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.result: Future[Any] = Future()
        self.loop = loop
        self._task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """Stop the call if possible: a task is cancelled; on a thread it runs to its end, and its result is not used."""
        if self._task is not None and self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed, and its tasks with it
                self.loop.call_soon_threadsafe(self._task.cancel)

    @property
    def has_failed(self) -> bool:
        """Whether the read has ended without a result."""
        return self.result.done() and (self.result.cancelled() or self.result.exception() is not None)


def launch(
    code: ToolCode,
    tool: BaseTool,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    usd: float,
    guard: CallGuard | None,
    context: Context,
) -> Shadow | None:
    """Start a call of a tool as a prefetched read, on a thread or as a task.

    The call sees the context variables in ``context`` and the ``configurable`` in them, but no callbacks and nothing of
    LangGraph. Code that uses the stream writer, the store or an interrupt therefore fails, and the application's own call then
    runs normally.

    Args:
        code: how the tool is called, and the arguments that LangChain adds.
        tool: the tool without VineLM's declaration, whose code runs.
        args: the call's positional arguments.
        kwargs: the call's keyword arguments.
        usd: the cost of the call in dollars.
        guard: authorizes the cost; None means no limit.
        context: the context variables of the node whose model is called.

    Returns:
        The running read; None if no thread is free or the tool cannot be called this way.
    """
    loop = _running_loop() if code.is_async else None
    if loop is None and not (code.is_sync and _THREADS.acquire(blocking=False)):
        return None
    around: Mapping[str, Any] | None = context.get(var_child_runnable_config)
    config, context = _own_config(around or {}), context.copy()
    context.run(IS_AHEAD.set, True)
    context.run(var_child_runnable_config.set, config)
    shadow = Shadow(loop)
    given = {**kwargs, **code.injected(config, is_async=loop is not None)}
    work = _Work(shadow.result, partial(tool._run if loop is None else tool._arun, *args, **given), usd, guard)
    if loop is not None:
        task = shadow._task = loop.create_task(work.arun(), context=context)
        task.add_done_callback(lambda _: _give_up(shadow.result))  # a cancelled task does not report itself
        return shadow
    try:
        # A daemon: a call that hangs must not keep the process alive.
        Thread(target=context.run, args=(work.run,), name="vinelm-read-ahead", daemon=True).start()
    except BaseException:
        _THREADS.release()
        raise
    return shadow


def _give_up(result: Future[Any]) -> None:
    """Cancel a future that is not done, and wake the threads that wait for it, which cancelling alone does not."""
    if not result.done() and result.cancel():
        result.set_running_or_notify_cancel()


@dataclass(frozen=True, slots=True)
class _Work:
    """The work of a thread or task: makes one paid call and stores its result or exception in a future."""

    result: Future[Any]
    call: Callable[[], Any]
    usd: float
    guard: CallGuard | None

    def run(self) -> None:
        """Make the call in the current thread, and store its result or exception."""
        try:
            with paid(self.guard, self.usd):
                found = self.call()
            _require_plain(found)
        except BaseException as error:  # kept: whoever joins makes the call again
            self.result.set_exception(error)
        else:
            self.result.set_result(found)
        finally:
            _THREADS.release()

    async def arun(self) -> None:
        """Make the call in the current task, and store its result or exception."""
        try:
            async with apaid(self.guard, self.usd):
                found = await self.call()
            _require_plain(found)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # ``SystemExit`` of a task would end the event loop, although nobody asked for it
            self.result.set_exception(error)
        else:
            self.result.set_result(found)


@contextmanager
def paid(guard: CallGuard | None, usd: float) -> Iterator[None]:
    """Pay the declared cost of a call, which is made in the block. The cost is paid even if the block raises.

    Raises:
        CallRefused: the guard does not allow the cost; the block is then not run.
    """
    if guard is None or not usd:
        yield
        return
    permit = guard.authorize(usd)
    try:
        yield
    finally:
        permit.settle(_price(usd))


@asynccontextmanager
async def apaid(guard: CallGuard | None, usd: float) -> AsyncIterator[None]:
    """Pay the declared cost of a call, like :func:`paid`, without blocking the event loop."""
    if guard is None or not usd:
        yield
        return
    permit = await aauthorized(guard, usd)
    try:
        yield
    finally:
        permit.settle(_price(usd))


def _price(usd: float) -> Usage:
    return Usage(model="", cost_usd=usd, latency_s=0.0)


def _require_plain(found: Any) -> None:
    """Raise :class:`WorkflowError` if a tool's result is a ``Command``, since a read must not control the graph."""
    if isinstance(found, Command) or (isinstance(found, list | tuple) and any(isinstance(one, Command) for one in found)):
        raise WorkflowError("a read-only tool returned a Command")


def _own_config(config: Mapping[str, Any]) -> RunnableConfig:
    """Return the config without LangGraph's own keys and without callbacks, which must not see prefetches."""
    given: Mapping[str, Any] = config.get("configurable") or {}
    visible = {key: one for key, one in given.items() if not key.startswith(("__", "checkpoint_"))}
    return {
        "configurable": visible,
        "metadata": dict(config.get("metadata") or {}),
        "tags": list(config.get("tags") or ()),
        "callbacks": [],
    }


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def can_wait(shadow: Shadow) -> bool:
    """Return whether this thread may block until the read ends; the thread of the read's event loop may not."""
    return shadow.result.done() or shadow.loop is None or shadow.loop is not _running_loop()


async def settled(result: Future[Any], limit_s: float) -> bool:
    """Wait until the future has a result or an exception, for at most ``limit_s`` seconds; return whether it has.

    The event loop is not blocked; cancelling the caller does not cancel the future.
    """
    if result.done():
        return True
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def wake(_: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(ended.set)

    result.add_done_callback(wake)
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await ended.wait()
    return result.done()


# -- contexts ----------------------------------------------------------------------------------------------------

OURS: set[ContextVar[Any]] = {IS_AHEAD, var_child_runnable_config}
"""Context variables that differ between a prefetch and the call itself, and that no tool's result depends on."""
_TRACERS = (
    "langsmith._internal._context",
    "langsmith.run_trees",
    "langchain_core.tracers.context",
    "langgraph.pregel._tools",
    "sentry_sdk.scope",
    "ddtrace._trace.provider",
)
"""Modules whose context variables say where in a trace the code is running."""


def is_same_context(begun: Context, now: Context) -> bool:
    """Return whether a call has the same context as its prefetch: the application's context variables and LangChain's config.

    Values are compared by ``==``; values that cannot be compared count as different. In OpenTelemetry's context, only the span
    may differ.
    """
    passed_over = OURS | _tracing()
    if not _is_same_config(begun.get(var_child_runnable_config), now.get(var_child_runnable_config)):
        return False
    return all(
        var in passed_over or _is_same(begun.get(var, _UNSET), now.get(var, _UNSET)) for var in {**dict(begun), **dict(now)}
    )


def _is_same_config(begun: RunnableConfig | None, now: RunnableConfig | None) -> bool:
    """Return whether two configs have the same ``configurable`` and application metadata."""
    one, other = _told(begun or {}), _told(now or {})
    return one.keys() == other.keys() and all(_is_same(value, other[key]) for key, value in one.items())


_OF_PLACE = ("langgraph_", "checkpoint_", "__", "ls_", "lc_", "lc:")
"""Prefixes of metadata keys that say where in a graph or trace the code is running."""


def _told(config: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    own = _own_config(config)
    told = {("configurable", key): one for key, one in own["configurable"].items()}
    return told | {("metadata", key): one for key, one in own["metadata"].items() if not key.startswith(_OF_PLACE)}


_UNSET = object()


def _tracing() -> set[ContextVar[Any]]:
    modules = (vars(sys.modules[name]) for name in _TRACERS if name in sys.modules)
    return {one for known in modules for one in known.values() if isinstance(one, ContextVar)}


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if any(type(value).__module__.startswith("opentelemetry.") for value in (one, other)):
        one, other = _baggage(one), _baggage(other)
    return answered(lambda: type(one) is type(other) and bool(one == other), otherwise=False)  # such as an array's


def _baggage(value: Any) -> Any:
    """Return OpenTelemetry's context ``value`` without the current span; an empty dict if the context variable is not set.

    The results for two contexts can be compared.
    """
    carried = {} if value is _UNSET else value
    return (
        {key: one for key, one in carried.items() if not key.startswith("current-span")} if isinstance(carried, dict) else value
    )

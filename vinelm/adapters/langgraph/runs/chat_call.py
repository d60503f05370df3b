"""Turns a call of a chat model into an invocation of a stage, in a node or in a request without a graph."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, Unpack

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime, get_runtime

from vinelm.adapters.langgraph.accounts.at_once import at_once
from vinelm.adapters.langgraph.path.path_channel import WITHIN, is_inner, models_of
from vinelm.adapters.langgraph.path.within_node import ThreadPaths, path_here, write_path
from vinelm.adapters.langgraph.runs.invocation import InvocationScope
from vinelm.adapters.langgraph.runs.profiled import PROFILED
from vinelm.adapters.langgraph.runs.run_context import AMBIENT, CARRY_IT, carried_by, is_carried, require_request
from vinelm.adapters.langgraph.runs.run_finder import InvokeOptions
from vinelm.adapters.tools.shadow import IS_AHEAD
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, VineLMError, WorkflowError
from vinelm.foreign_code import answered
from vinelm.policies import OnError
from vinelm.template import Template


class ServesCalls(Protocol):
    """The part of the adapter's interface that a chat call uses.

    :class:`~vinelm.adapters.langgraph.adapter.GraphAdapter` implements it.
    """

    on_error: OnError
    has_contexts: bool
    has_caps: bool
    thread_paths: ThreadPaths
    template: Template | None
    invoke: Callable[..., InvocationScope]
    ainvoke: Callable[..., Coroutine[Any, Any, InvocationScope]]
    call: Callable[..., InvocationScope]
    acall: Callable[..., Coroutine[Any, Any, InvocationScope]]
    default_scope: Callable[..., InvocationScope]

    @property
    def catalog(self) -> Catalog:
        """The models that stages may run on."""

    def note_call(self, name: str, default: str | None) -> None:
        """Record that a chat model with this default model calls a stage."""


class ChatCall:
    """A chat model's invocation in progress; it also writes the invocation's entry into the request's path.

    In a node of the root graph, the path is in the graph's channel, and the entry is written with the node's update. Elsewhere
    (in a subgraph, in ``with vine.request(...)``, or outside of both) the run keeps the path in memory.

    Attributes:
        scope: the invocation in progress.

    Args:
        scope: the invocation in progress.
        config: LangGraph's config of the node whose update includes the path's entry; None if the run keeps the path.
    """

    __slots__ = ("_adapter", "_config", "scope")

    def __init__(self, adapter: ServesCalls, scope: InvocationScope, config: RunnableConfig | None) -> None:
        self._adapter, self.scope, self._config = adapter, scope, config

    @classmethod
    def begin(cls, adapter: ServesCalls, stage: str | None, **options: Unpack[InvokeOptions]) -> ChatCall:
        """Begin an invocation of a chat model and return it.

        Args:
            adapter: the adapter that made the chat model; the adapter of the run's context takes precedence.
            stage: name of the stage; None takes the name of the node.
            options: see :class:`~vinelm.adapters.langgraph.runs.run_finder.InvokeOptions`.

        Raises:
            WorkflowError: the call does not belong to a run that may make it.
            ConfigError: the stage has no name.
        """
        return at_once(cls._begun(adapter, stage, options, is_async=False))

    @classmethod
    async def abegin(cls, adapter: ServesCalls, stage: str | None, **options: Unpack[InvokeOptions]) -> ChatCall:
        """Begin an invocation, like :meth:`begin`, without blocking the event loop.

        Only reading the request's payments from the checkpointer may wait.
        """
        return await cls._begun(adapter, stage, options, is_async=True)

    @classmethod
    async def _begun(cls, adapter: ServesCalls, stage: str | None, options: InvokeOptions, *, is_async: bool) -> ChatCall:
        """Begin the invocation and return it. If VineLM itself fails, the invocation uses the default model. Waits only if
        ``is_async`` is true.
        """
        config: RunnableConfig | None = None
        runtime: Runtime[Any] | None = None
        try:
            config, runtime = _node()
            return await cls._opened(adapter, stage, config, runtime, options, is_async=is_async)
        except (VineLMError, GraphBubbleUp):  # the caller's, or LangGraph's
            raise
        except Exception as error:  # the boundary of a call outside of a stage
            with suppress(Exception):  # outside of a graph; and nothing is behind this boundary
                config, runtime = (config, runtime) if runtime else (get_config(), get_runtime())
                adapter = carried_by(runtime.context).owner.adapter or adapter
            return cls(
                adapter,
                adapter.default_scope(error, stage or "", (), None, config, runtime, options.get("objective")),
                None,
            )

    @classmethod
    async def _opened(
        cls,
        adapter: ServesCalls,
        stage: str | None,
        config: RunnableConfig | None,
        runtime: Runtime[Any] | None,
        options: InvokeOptions,
        *,
        is_async: bool,
    ) -> ChatCall:
        context = carried_by(None if runtime is None else runtime.context)
        host, adapter = context.chat_host, context.owner.adapter or adapter
        if IS_AHEAD.get():
            raise WorkflowError("a read-only tool called a model before the application asked for the tool")
        if PROFILED and runtime is None and AMBIENT.get() is None:
            raise WorkflowError(
                "a chat model was called in a thread or a graph of the application's own while it was being profiled: "
                "its calls would be in no row, so make them in a node of the workflow's graph"
            )
        if runtime is None:  # check before asking for its name, which would not help
            require_request(context, adapter, "a model call")
        node = "" if config is None else _node_of(config)
        name = stage or _stage_of(node, config or {}, adapter.template)
        if not name:
            more = "" if is_carried() else f"; in a thread that a node has started, {CARRY_IT}"
            raise ConfigError(
                f"a chat model without a stage was called outside of a graph: give vine.chat_model(...) a name{more}"
            )
        default = options.get("default")
        adapter.note_call(name, default)
        how: InvokeOptions = {
            "objective": options.get("objective"),
            "limits": options.get("limits"),
            "falls_back": options.get("falls_back", True),
            "tools": options.get("tools"),
            "default": default,
            "own": options.get("own"),
        }
        is_per_node = adapter.template is not None and name in adapter.template.per_node
        if config is not None and runtime is not None and not is_per_node and cls._is_in_root_graph(config, runtime, adapter):
            if host is not None:
                value, is_repeated = path_here(config)
                host.admit(name, models_of(value), node=node, is_repeated=is_repeated)
            how["own_writes"] = True
            begun = adapter.ainvoke if is_async else adapter.invoke
            scope = begun(name, None, config, runtime, **how)
            return cls(adapter, scope if isinstance(scope, InvocationScope) else await scope, config)
        try:
            if host is not None:
                host.admit_inner(name, node=node)
            called = (adapter.acall if is_async else adapter.call)(name, config, runtime, **how)
            return cls(adapter, called if isinstance(called, InvocationScope) else await called, None)
        except BaseException:
            # The end of the run may cancel its other calls, which are paid and must be recorded.
            if is_async and host is not None and host.halted is not None:
                await host.calls_end()
            raise

    @staticmethod
    def _is_in_root_graph(config: RunnableConfig, runtime: Runtime[Any], adapter: ServesCalls) -> bool:
        if runtime.control is None or is_inner(runtime):
            return False
        if adapter.on_error == "raise":
            return adapter.thread_paths.channel(config) is not None
        # LangGraph's internals: without them the run keeps the path in memory.
        return answered(lambda: adapter.thread_paths.channel(config) is not None, False)

    def close(self, error: BaseException | None) -> None:
        """Record how the invocation ended, and write its entry into the path if it succeeded."""
        if error is not None and not isinstance(error, GeneratorExit):  # the caller of a stream has seen enough
            self.scope.failed(error)
            return
        self.scope.done()
        with self.scope.noting("the path", may_raise=self._adapter.on_error == "raise"):
            self.done()

    def __enter__(self) -> ChatCall:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self.close(error)
        finally:
            self.scope.settle()

    async def __aenter__(self) -> ChatCall:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self.close(error)
        finally:
            await self.scope.asettle()

    def done(self) -> None:
        """Write the entry of a successful invocation into the path, if the path is stored in the graph's channel."""
        if self._config is not None:
            write_path(self._config, self.scope.update(), is_unplanned=self.scope.is_unplanned)


@contextmanager
def node_of(config: RunnableConfig | None) -> Iterator[None]:
    """Inside the block, attribute model calls to the node that ``config`` belongs to.

    Needed in a node that is a chain: after the chain's first step, LangGraph's context variable is not set.
    """
    given = (config or {}).get("configurable", {})
    if "__pregel_read" not in given or var_child_runnable_config.get() is not None:
        yield
        return
    token = var_child_runnable_config.set(config)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def halted_here() -> BaseException | None:
    """Return the exception with which the profiler ended the surrounding run at a chat model's call; None if it did not.

    Never raises.
    """

    def halted() -> BaseException | None:
        _, runtime = _node()
        host = carried_by(None if runtime is None else runtime.context).chat_host
        return None if host is None else host.halted

    return answered(halted, None)  # whoever asks is about to raise an error of the application


def _node_of(config: RunnableConfig) -> str:
    """Return the name of the node around a call.

    It is read from the checkpoint namespace if ``chain.invoke(x, {"metadata": ..})`` has replaced the config's metadata.
    """
    named = config.get("metadata", {}).get("langgraph_node")
    place = str(config.get("configurable", {}).get("checkpoint_ns") or "")
    return str(named or place.rpartition("|")[2].partition(":")[0])


def _stage_of(node: str, config: RunnableConfig, template: Template | None) -> str:
    """Return the name of the stage that a node belongs to: usually the node's name.

    There are two exceptions for a node inside a subgraph. If the template declares the surrounding node of the outermost graph
    ``per_node``, that node's name is returned. Otherwise, if the template has a stage whose name lists the surrounding nodes
    and the node (``helper/model``), this name is returned.
    """
    namespace = str(config.get("configurable", {}).get("checkpoint_ns") or "")
    around = [part.partition(":")[0] for part in namespace.split("|")]
    if template is not None and around[0] in template.per_node:
        return around[0]
    whole = WITHIN.join(around)
    is_apart = whole != node and template is not None and any(stage.name == whole for stage in template.stages)
    return whole if is_apart else node


def _node() -> tuple[RunnableConfig | None, Runtime[Any] | None]:
    """Return LangGraph's config and runtime of the surrounding node; None outside of a graph."""
    try:
        return get_config(), get_runtime()
    except (RuntimeError, KeyError):
        return None, None

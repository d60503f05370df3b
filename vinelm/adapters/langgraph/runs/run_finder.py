"""Which run a node, an edge or a chat model belongs to, and where in its path it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime

from vinelm.adapters.langgraph.accounts.at_once import at_once
from vinelm.adapters.langgraph.path.path_channel import (
    ChannelSession,
    Note,
    PathChannel,
    PathValue,
    channel_of,
    is_new_request,
    models_of,
    read_path,
    stage_names,
)
from vinelm.adapters.langgraph.path.places import is_inner, where_of
from vinelm.adapters.langgraph.path.within_node import path_here
from vinelm.adapters.langgraph.runs.default_runs import DefaultRuns, current_runtime, told_configurable
from vinelm.adapters.langgraph.runs.graph_run import GraphRun, RunPath
from vinelm.adapters.langgraph.runs.invocation import InvocationScope
from vinelm.adapters.langgraph.runs.run_accounts import open_account, with_account
from vinelm.adapters.langgraph.runs.run_context import AMBIENT, RunContext, carried_by
from vinelm.adapters.langgraph.runs.run_registry import RunRegistry
from vinelm.adapters.langgraph.runs.settings import AdapterSettings
from vinelm.adapters.langgraph.runs.streaming import streams_tokens
from vinelm.errors import VineLMError, WorkflowError
from vinelm.objective import Objective


class InvokeOptions(TypedDict, total=False):
    """How an invocation begins.

    ``continues``: the path is known to go on, whatever the template says; ``run_is_request``: the same for a path that this
    very run has written; ``limits``: fields of the catalog entry to replace, such as ``max_tokens``; ``own_writes``: the
    invocation follows those that the node has written itself, since a chat model may be called repeatedly; ``falls_back``:
    False where the caller repeats failed calls itself; ``objective``: of a new run whose context has none.
    """

    continues: bool
    run_is_request: bool
    limits: Mapping[str, Any] | None
    own_writes: bool
    falls_back: bool
    objective: Objective | None


class RunFinder:
    """Finds the run of every invocation and edge; a run that is new gets its policy. Thread-safe.

    Attributes:
        settings: see Args.

    Args:
        settings: of the adapter.
        runs: the runs in progress.
        defaults: what stands in where VineLM itself fails.
    """

    def __init__(self, settings: AdapterSettings, runs: RunRegistry, defaults: DefaultRuns) -> None:
        self.settings, self._runs, self._defaults = settings, runs, defaults

    def invoke(
        self,
        stage: str,
        carried: PathValue | None,
        config: RunnableConfig,
        runtime: Runtime[Any],
        **options: Unpack[InvokeOptions],
    ) -> InvocationScope:
        """Begin the invocation of a stage that a node runs, in the root graph or inside a subgraph.

        Args:
            stage: name of the stage.
            carried: the path as the node's state has it; None if it has none.
            config: what LangGraph gave the node.
            runtime: the same.
            options: see :class:`InvokeOptions`.

        Raises:
            WorkflowError: the node runs outside of a graph's run.
        """
        return at_once(self._begun(stage, carried, config, runtime, options, is_async=False))

    async def ainvoke(
        self,
        stage: str,
        carried: PathValue | None,
        config: RunnableConfig,
        runtime: Runtime[Any],
        **options: Unpack[InvokeOptions],
    ) -> InvocationScope:
        """Like :meth:`invoke`, without blocking the event loop while the checkpointer is asked what the request has paid."""
        return await self._begun(stage, carried, config, runtime, options, is_async=True)

    async def _begun(
        self,
        stage: str,
        carried: PathValue | None,
        config: RunnableConfig,
        runtime: Runtime[Any],
        options: InvokeOptions,
        *,
        is_async: bool,
    ) -> InvocationScope:
        """The invocation; it never waits unless ``is_async``."""
        run: GraphRun | None = None
        prefix: tuple[str, ...] = ()
        stages: tuple[str, ...] = ()
        limits, falls_back, objective = options.get("limits"), options.get("falls_back", True), options.get("objective")
        try:
            if is_inner(runtime):
                run = self._inner_run(stage, config, runtime)
                prefix = run.path or ()
                if _is_unopened(run):
                    await open_account(run, config, is_inner=True, is_async=is_async)
                return self._kept_scope(run, stage, config, limits, falls_back=falls_back, is_inner=True)
            channel = channel_of(config)
            opening = None if channel is None else channel.opening
            run = self._runs.known(opening, runtime.control) or self._new_run(opening, runtime, config, objective)
            if run.keeps_path:
                prefix = run.path or ()
                if _is_unopened(run):
                    await open_account(run, config, is_inner=True, is_async=is_async)
                return self._kept_scope(run, stage, config, limits, falls_back=falls_back)
            value, is_repeated = self._value(channel, carried, config, own_writes=options.get("own_writes", False))
            step: Any = config.get("metadata", {}).get("langgraph_step", len(models_of(value)))
            if is_repeated:
                step = (step, len(models_of(value)))
            if value is not None:
                prefix, stages = models_of(value), stage_names(value)
                if self._begins(run, stage, value, options):
                    prefix = stages = ()
                elif run.path is None:
                    run.resumed(value)
            if _is_unopened(run):
                await open_account(run, config, value, continues=bool(prefix), is_async=is_async)
            notes = self._notes(run, prefix, value, None if is_repeated else config)
            path = run.decide(step, stage, prefix, stages)
            return self._scope(run, stage, path, limits, falls_back=falls_back, notes=notes)
        except (VineLMError, GraphBubbleUp):  # the caller's, or LangGraph's
            raise
        except Exception as error:
            return self._defaults.default_scope(error, stage, prefix, run, config, runtime, objective)

    def call(
        self, stage: str, config: RunnableConfig | None, runtime: Runtime[Any] | None, **options: Unpack[InvokeOptions]
    ) -> InvocationScope:
        """Begin the invocation of a chat model whose place in the path no channel of the root graph carries.

        Its run is that of the graph around it, that of the surrounding ``with vine.request(...)``, or a new one.

        Args:
            stage: name of the stage.
            config: LangGraph's, of the node around the call; None outside of a graph.
            runtime: the same.
            options: ``objective`` (where neither the graph nor the with-block names one), ``limits`` and ``falls_back`` of
                :class:`InvokeOptions`.
        """
        return at_once(self._called(stage, config, runtime, options, is_async=False))

    async def acall(
        self, stage: str, config: RunnableConfig | None, runtime: Runtime[Any] | None, **options: Unpack[InvokeOptions]
    ) -> InvocationScope:
        """Like :meth:`call`, without blocking the event loop while the checkpointer is asked what the request has paid."""
        return await self._called(stage, config, runtime, options, is_async=True)

    async def _called(
        self,
        stage: str,
        config: RunnableConfig | None,
        runtime: Runtime[Any] | None,
        options: InvokeOptions,
        *,
        is_async: bool,
    ) -> InvocationScope:
        """The invocation; it never waits unless ``is_async``."""
        run: GraphRun | None = None
        prefix: tuple[str, ...] = ()
        limits, falls_back, objective = options.get("limits"), options.get("falls_back", True), options.get("objective")
        try:
            run = self._run_here(config, runtime, objective)
            prefix = run.path or ()
            if config is not None and _is_unopened(run):
                await open_account(run, config, is_inner=True, is_async=is_async)
            return self._scope(run, stage, run.enter(where_of(config), stage), limits, falls_back=falls_back)
        except (VineLMError, GraphBubbleUp):
            raise
        except Exception as error:
            return self._defaults.default_scope(error, stage, prefix, run, config, runtime, objective)

    @staticmethod
    def _value(
        channel: PathChannel | None, carried: PathValue | None, config: RunnableConfig, *, own_writes: bool
    ) -> tuple[PathValue | None, bool]:
        """The path before the invocation, and whether this execution of the node has written a part of it itself."""
        if own_writes:
            return path_here(config)
        if channel is not None:
            return (channel.get() if channel.path else None), False
        return (carried if carried is not None else read_path(config, fresh=False)), False

    @staticmethod
    def _begins(run: GraphRun, stage: str, value: PathValue, options: InvokeOptions) -> bool:
        """Whether the invocation is the first of a request, not the next of the stored path."""
        is_same_run = run.knows(models_of(value))
        if options.get("continues") or (options.get("run_is_request") and is_same_run):
            return False
        return is_new_request(value, stage, run.policy.template, run.context.request_id, is_same_run=is_same_run)

    @staticmethod
    def _notes(
        run: GraphRun, prefix: tuple[str, ...], value: PathValue | None, config: RunnableConfig | None
    ) -> Sequence[Note]:
        """Tell the policy what the invocations of ``prefix`` have shown; returns what of that the stored path lacks.

        Without ``config`` the state does not show the last of them: the node that made it has not ended.
        """
        if run.outcomes is None:
            return ()
        if not prefix:
            run.outcomes.forget()
            return ()
        if config is None:
            run.outcomes.tell(prefix)
        else:
            run.outcomes.tell_at(config, prefix, fresh=False)
        return run.outcomes.notes(value)

    def _inner_run(self, stage: str, config: RunnableConfig, runtime: Runtime[Any]) -> GraphRun:
        """The run of a stage inside a subgraph."""
        context = self._context_of(runtime, None, config)
        if context.chat_host is not None:
            context.chat_host.admit_inner(stage, node=where_of(config).task.partition(":")[0])
        return with_account(self._runs.inner(runtime.control, context), config)

    def _kept_scope(
        self,
        run: GraphRun,
        stage: str,
        config: RunnableConfig,
        limits: Mapping[str, Any] | None,
        *,
        falls_back: bool,
        is_inner: bool = False,
    ) -> InvocationScope:
        """The invocation of a run that keeps its path itself."""
        where = where_of(config)
        if run.outcomes is not None and run.path is not None and not is_inner and run.is_past(where):
            run.outcomes.tell_at(config, run.path, fresh=False)  # a subgraph sees a part of the state only
        return self._scope(run, stage, run.enter(where, stage), limits, falls_back=falls_back)

    def _scope(
        self,
        run: GraphRun,
        stage: str,
        path: tuple[str, ...],
        limits: Mapping[str, Any] | None,
        *,
        falls_back: bool,
        notes: Sequence[Note] = (),
    ) -> InvocationScope:
        settings, request_id = self.settings, run.context.request_id
        return InvocationScope(
            settings.models, settings.observers, run, stage, path,
            limits=limits, request_id=request_id, falls_back=falls_back, notes=notes,
        )  # fmt: skip

    def path_of(self, config: RunnableConfig) -> RunPath | None:
        """Return the run that an edge belongs to and its path.

        None where no run is in progress (``update_state``), or before the first call of a chat model, which brings the channel.
        """
        channel = channel_of(config)
        opening = None if channel is None else channel.opening
        runtime = current_runtime() if channel is None else None
        run = self._runs.known(opening, None if runtime is None else runtime.control)
        if run is not None and run.path is not None:
            return RunPath(run, run.path, run.stages)
        runtime = current_runtime()  # resumed behind the stage
        if runtime is None or runtime.control is None:
            return None
        run = run or self._runs.known(opening, runtime.control)
        if run is not None and run.path is not None:  # begun inside a subgraph
            return RunPath(run, run.path, run.stages)
        try:
            value = read_path(config, fresh=True)
        except WorkflowError:
            if channel is not None:
                raise
            return None
        if value is None or value["closed"]:
            return None
        run = run or self._new_run(opening, runtime, config)
        run.resumed(value)
        return RunPath(run, models_of(value), stage_names(value))

    def _run_here(self, config: RunnableConfig | None, runtime: Runtime[Any] | None, objective: Objective | None) -> GraphRun:
        context = carried_by(None if runtime is None else runtime.context)
        channel = None if config is None else channel_of(config)
        opening = None if channel is None else channel.opening
        key: Any = None if runtime is None else runtime.control
        if key is None and AMBIENT.get() is context:
            key = context
        if context.objective is None and objective is not None:
            context = replace(context, objective=objective)
        if runtime is not None and runtime.control is not None and is_inner(runtime):
            return with_account(self._runs.inner(runtime.control, self._filled(context, None, config)), config)
        context = self._filled(context, opening, config)
        if key is None:
            return self._runs.alone(context)
        return with_account(self._runs.of(opening, key, context), config)

    def _new_run(
        self,
        opening: ChannelSession | None,
        runtime: Runtime[Any],
        config: RunnableConfig,
        objective: Objective | None = None,
    ) -> GraphRun:
        context = self._context_of(runtime, opening, config)
        if context.objective is None and objective is not None:
            context = replace(context, objective=objective)
        return with_account(self._runs.of(opening, runtime.control, context), config)

    def _context_of(self, runtime: Runtime[Any], opening: ChannelSession | None, config: RunnableConfig) -> RunContext:
        if runtime.control is None:
            raise WorkflowError("a stage ran outside a graph's run: invoke the compiled graph")
        return self._filled(carried_by(runtime.context), opening, config)

    def _filled(self, context: RunContext, opening: ChannelSession | None, config: RunnableConfig | None) -> RunContext:
        """The context with what only the run itself knows: its arrival, and whether it may return an earlier answer."""
        if context.started_at is None and opening is not None and not self.settings.models.is_virtual_time:
            context = replace(context, started_at=opening.at_s)
        if config is not None and self.settings.returns_earlier and not streams_tokens(config):
            context = replace(context, returns_earlier=True)
        if config is not None and self.settings.tells_config:
            context = replace(context, configurable=told_configurable(config))
        return context


def _is_unopened(run: GraphRun) -> bool:
    """Whether it is to be read what earlier runs of the request have paid."""
    return run.request_account is not None and not run.request_account.is_open


__all__ = ["RunFinder"]

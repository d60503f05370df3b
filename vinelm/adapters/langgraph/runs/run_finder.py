"""Keeps the runs in progress, and finds the run and the path position of a node, edge, chat model or tool.

How a call finds its request: the first matching case below. It determines the call's cap, plan and account:

1. *ahead*: a prefetched read-only tool, which may not call a model (:mod:`vinelm.adapters.tools.shadow`).
2. *in a node*: the context variables contain LangGraph's config: in the node's own thread, its tasks, ``asyncio.to_thread``,
   LangChain's executors, ``copy_context().run``; or the config was given to the call. The run is found by LangGraph's channels
   and control objects, its settings in LangGraph's context. A graph that began without settings uses the settings of case 3 or
   5.
3. *in a block*: the context variables contain a ``with vine.request(...)``.
4. *profiled*: a profile runs in this process, and the call is in no node or block: refused, since its price could not be
   recorded.
5. *no request, context carried*: this is the main thread, or its context variables descend from the main thread's. They show
   no request, so the call is a separate request, on default models. A task that began before the request and works for it,
   such as a queue reader, looks the same: if requests have caps, the log warns of this once.
6. *no request, bare thread*: ``Thread``, ``ThreadPoolExecutor`` and ``run_in_executor`` carry no context. Neither the thread
   nor the code that started it shows which request it works for, since pool threads take any later work. If the application
   has set a cap on a request or on a tenant's day, the call is *refused* with a line that explains how to carry the context.
   Otherwise it is a separate request, which the log notes once.

A run that has begun is not checked again: if it began before there was a cap, its request has no cap.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, TypedDict, Unpack
from weakref import WeakValueDictionary

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime, get_runtime

from vinelm.adapters.langgraph.accounts.at_once import at_once
from vinelm.adapters.langgraph.accounts.saver_rows import SaverRows
from vinelm.adapters.langgraph.accounts.thread_accounts import Beginning, ThreadAccounts
from vinelm.adapters.langgraph.path.graph_values import graph_values
from vinelm.adapters.langgraph.path.inner_trails import InnerTrails
from vinelm.adapters.langgraph.path.path_channel import (
    ChannelSession,
    Note,
    PathValue,
    account_of,
    channel_of,
    is_inner,
    is_new_request,
    path_of,
    read_path,
)
from vinelm.adapters.langgraph.path.places import where_of
from vinelm.adapters.langgraph.path.within_node import path_here
from vinelm.adapters.langgraph.runs.default_runs import DefaultRuns, told_configurable
from vinelm.adapters.langgraph.runs.graph_run import GraphRun, RunPath
from vinelm.adapters.langgraph.runs.invocation import InvocationScope
from vinelm.adapters.langgraph.runs.run_context import (
    AMBIENT,
    CARRY_IT,
    RunContext,
    carried_by,
    is_carried,
    is_in_fork_of,
    require_request,
    streams_tokens,
)
from vinelm.adapters.langgraph.runs.run_reads import start_reads
from vinelm.adapters.langgraph.runs.settings import AdapterSettings
from vinelm.errors import CallRefused, InfeasibleError, VineLMError, WorkflowError
from vinelm.money.spend_guard import IN_FORK
from vinelm.objective import Objective
from vinelm.policies.policy import Policy
from vinelm.signals.kind import kind_of

_LOG = logging.getLogger(__name__)
_CHECKPOINTER, _DURABILITY = "__pregel_checkpointer", "__pregel_durability"  # LangGraph's, in a task's config


class RunRegistry:
    """Finds the run that a node or an edge belongs to. Thread-safe.

    A run is kept as long as LangGraph keeps its channels. Some runs have unknown channels: runs of a graph whose only stages
    are chat models, and runs in a ``with vine.request(...)``. Of these runs, the ``bound`` most recently used ones are kept; if
    an older one continues, it gets a new policy.

    Args:
        new_policy: returns the policy of a new run; called once per run.
        default: returns a stage's default model; None if internal failures are raised.
        bound: the maximum number of runs to keep, at least 1.
    """

    def __init__(
        self,
        settings: AdapterSettings,
        new_policy: Callable[[RunContext], Policy],
        default: Callable[[str], str] | None = None,
        bound: int = 4096,
    ) -> None:
        self._settings, self._new_policy, self._default, self._bound = settings, new_policy, default, bound
        self._kept: OrderedDict[int, GraphRun] = OrderedDict()
        # Each run holds its control object, so that the id cannot be reused.
        self._by_control: WeakValueDictionary[int, GraphRun] = WeakValueDictionary()
        self._lock = Lock()

    def __len__(self) -> int:
        """Return the number of runs kept here."""
        return len(self._kept)

    def known(self, opening: ChannelSession | None, control: Any) -> GraphRun | None:
        """Return the run of a graph, given its channels or LangGraph's object for the run; None if no such run has begun.

        Args:
            opening: the channels that LangGraph opened for the run; None if unknown.
            control: LangGraph's object for the run; used if the channels do not identify the run. The run is then registered
                for the channels.
        """
        if opening is None:
            return self._kept.get(id(control))
        run: GraphRun | None = opening.owned.get(self)
        if run is None:
            run = self._by_control.get(id(control))
            if run is None or run.is_rooted:  # from an earlier invoke, to which the application gave the same control
                return None
            opening.owned[self] = run  # begun by a stage inside a subgraph
            run.is_rooted = True
        return run

    def begun(self, opening: ChannelSession | None, control: Any) -> GraphRun | None:
        """Return the run with the channels ``opening`` or LangGraph's object ``control``; None if no such run has begun.

        Unlike :meth:`known`, this registers nothing. It also finds the run of a node inside a subgraph, whose channels do not
        identify the run.
        """
        run: GraphRun | None = None if opening is None else opening.owned.get(self)
        return run or self._by_control.get(id(control)) or self._kept.get(id(control))

    def of(self, opening: ChannelSession | None, control: Any, context: RunContext) -> GraphRun:
        """Return the run of a graph, found like :meth:`known`; if there is none, create it with the settings ``context``."""
        with self._lock:
            # With the lock held: the branches of a fan-out begin at once, and have to find one run.
            run = self.known(opening, control)
            if run is None:
                run = self._new(control, context)
                if run.guard is not None:  # also counts a cap that came as JSON
                    self._settings.has_caps = True
                self._by_control[id(control)] = run
                if opening is not None:
                    opening.owned[self] = run
                    run.is_rooted = True
                    run.show_request()  # for other runs it is unknown when they end
                    return run
                self._kept[id(control)] = run
                while len(self._kept) > self._bound:
                    # Drop the run that was used longest ago: its request is most probably over.
                    self._kept.popitem(last=False)
            elif opening is None:
                self._kept.move_to_end(id(control))
            return run

    def inner(self, control: Any, context: RunContext) -> GraphRun:
        """Return the run of a stage inside a subgraph: the run of the root graph with LangGraph's object ``control``.

        If there is no such run, or if it belongs to another request than ``context``, the run is looked up or created by
        :meth:`of`.
        """
        run = self._by_control.get(id(control))
        if run is not None and _is_same_request(run.context, context):
            return run
        return self.of(None, control, context)

    def alone(self, context: RunContext) -> GraphRun:
        """Return a new run for ``context`` that is not registered, so that later lookups do not find it."""
        return self._new(None, context)

    def _new(self, control: Any, context: RunContext) -> GraphRun:
        settings = self._settings
        run = GraphRun(
            control,
            self._new_policy(context),
            context,
            settings.observers,
            self._default,
            signals=settings.signals,
            account_of=None if settings.account_of is None else partial(settings.account_of, context),
            conversation_id=settings.conversation_id,
        )
        if run.guard is not None and is_in_fork_of(control):  # each such process would count from nothing
            raise CallRefused(IN_FORK)
        return run

    def forget(self, control: Any) -> None:
        """Drop the finished run whose LangGraph object is ``control``, if it is kept here."""
        with self._lock:
            run = self._kept.pop(id(control), None)
        if run is not None and run.reads is not None:
            run.reads.end()


class InvokeOptions(TypedDict, total=False):
    """The options with which an invocation of a stage begins.

    Attributes:
        continues: whether the invocation belongs to the request whose path is stored, even if a new request would begin here
            by the template.
        run_is_request: whether all invocations of one run belong to one request, even if a new request would begin here by the
            template.
        limits: fields of the catalog entry to replace, such as ``max_tokens``.
        own_writes: whether the path includes the entries that this execution of the node has added so far, since a node may
            call a chat model repeatedly.
        falls_back: False if the caller repeats failed calls itself.
        objective: the objective of a new run whose context has none.
        tools: the tools offered to the model, as the application passed them.
        default: the model that runs without a plan, as declared by the wrapped node, chat model or middleware that makes the
            call; None if none is declared.
        own: the application's own chat model through which the call is made
            (:class:`~vinelm.adapters.langchain.own_model.OwnModel`).
    """

    continues: bool
    run_is_request: bool
    limits: Mapping[str, Any] | None
    own_writes: bool
    falls_back: bool
    objective: Objective | None
    tools: Sequence[Any] | None
    default: str | None
    own: Any


@dataclass(slots=True)
class Place:
    """What is known of an invocation of a stage before it begins: its arguments, its run and the path so far; filled in step by
    step.

    Attributes:
        stage, config, runtime, options: the arguments of :meth:`RunFinder.invoke`.
        run: the run that the invocation belongs to; None before it is found.
        prefix, stages: models and stages of the path before the invocation.
        value: the request's path as stored in the graph's channel; None without a stored path, or if the run keeps it in
            memory.
        step: identifies the superstep in the run; None if the run keeps its path in memory.
        shows: whether the node's state contains the result of the previous invocation. False if that was a call in the same
            node.
    """

    stage: str
    config: RunnableConfig | None
    runtime: Runtime[Any] | None
    options: InvokeOptions
    run: GraphRun | None = None
    prefix: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    value: PathValue | None = None
    step: Any = None
    shows: bool = True


class RunFinder:
    """Finds the run of every invocation and edge, and gives each new run its policy. Thread-safe.

    Attributes:
        runs: the runs in progress.
        trails: for each thread, the invocations that its last run made inside subgraphs.

    Args:
        settings: the adapter's settings.
        new_policy: returns the policy of a new run whose context has none; None, or a result of None, means default models.
        defaults: makes the runs on default models if nothing is planned, or if VineLM itself fails.
    """

    def __init__(
        self, settings: AdapterSettings, new_policy: Callable[[RunContext], Policy | None] | None, defaults: DefaultRuns
    ) -> None:
        self.settings, self._new_policy, self._defaults = settings, new_policy, defaults
        self.trails, self._trail_lock = InnerTrails(), Lock()
        self._has_told = False
        self.runs = RunRegistry(settings, self._policy_of, None if settings.on_error == "raise" else defaults.any_default)

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
            carried: the path in the node's state; None if the state has none.
            config: LangGraph's config of the node.
            runtime: LangGraph's runtime of the node.
            options: see :class:`InvokeOptions`.

        Raises:
            WorkflowError: the node runs outside of a graph's run.
        """
        return at_once(self._begun(Place(stage, config, runtime, options, value=carried), self._find_node, is_async=False))

    async def ainvoke(
        self,
        stage: str,
        carried: PathValue | None,
        config: RunnableConfig,
        runtime: Runtime[Any],
        **options: Unpack[InvokeOptions],
    ) -> InvocationScope:
        """Begin the invocation of a stage, like :meth:`invoke`, without blocking the event loop.

        Only reading the request's payments from the checkpointer may wait.
        """
        return await self._begun(Place(stage, config, runtime, options, value=carried), self._find_node, is_async=True)

    def call(
        self, stage: str, config: RunnableConfig | None, runtime: Runtime[Any] | None, **options: Unpack[InvokeOptions]
    ) -> InvocationScope:
        """Begin the invocation of a chat model that is called inside a subgraph or outside of a graph.

        The invocation's run is that of the surrounding graph or of the surrounding ``with vine.request(...)``, or a new run.
        This run keeps its path in memory, not in the graph's state.

        Args:
            stage: name of the stage.
            config: LangGraph's config of the node around the call; None outside of a graph.
            runtime: LangGraph's runtime of that node; None outside of a graph.
            options: ``objective`` (if neither the graph nor the with-block has one), ``limits`` and ``falls_back`` of
                :class:`InvokeOptions`.
        """
        return at_once(self._begun(Place(stage, config, runtime, options), self._find_call, is_async=False))

    async def acall(
        self, stage: str, config: RunnableConfig | None, runtime: Runtime[Any] | None, **options: Unpack[InvokeOptions]
    ) -> InvocationScope:
        """Begin the invocation of a chat model, like :meth:`call`, without blocking the event loop.

        Only reading the request's payments from the checkpointer may wait.
        """
        return await self._begun(Place(stage, config, runtime, options), self._find_call, is_async=True)

    # -- one invocation ------------------------------------------------------------------------------------------

    async def _begun(self, place: Place, find: Callable[[Place], GraphRun], *, is_async: bool) -> InvocationScope:
        """Find the run with ``find``, which also fills in ``place``, and begin the invocation.

        If VineLM itself fails, the invocation uses the default model. With ``is_async`` the coroutine may wait for the
        checkpointer; otherwise it never waits.
        """
        try:
            run = find(place)
            account = run.request_account
            if account is not None and not account.is_open and place.config is not None:
                await run.open_account(self._beginning(place, place.config), is_async=is_async)
            return self._scope(run, place)
        except (VineLMError, GraphBubbleUp):  # the caller's, or LangGraph's
            raise
        except Exception as error:  # the boundary of a call
            return self._default_scope(place, error)

    def _default_scope(self, place: Place, error: Exception) -> InvocationScope:
        """Return the invocation on the stage's default model, after VineLM itself has failed with ``error``."""
        objective, known = place.options.get("objective"), (place.prefix, place.run, place.config, place.runtime)
        with self._defaults.asked(place.stage, place.options.get("default")):
            return self._defaults.default_scope(error, place.stage, *known, objective)

    def _scope(self, run: GraphRun, place: Place) -> InvocationScope:
        """Choose the model of an invocation, and return the invocation. The fields of ``place`` must already hold the path
        before the invocation.
        """
        stage, options, settings = place.stage, place.options, self.settings
        notes: list[Note] = []
        if place.step is None:
            if run.trail is None:
                self._begin_trail(run, place.config)
            with self._defaults.asked(stage, options.get("default")):
                path = run.enter(where_of(place.config), stage)
        else:
            notes = run.outcomes.told(place.config if place.shows else None, place.prefix, place.value)
            with self._defaults.asked(stage, options.get("default")):
                path = run.decide(place.step, stage, place.prefix, place.stages, default=options.get("default"))
        ahead = None
        if settings.tools.declared or settings.tools.recorder is not None:
            ahead = start_reads(settings, run, (stage, path), place.config, place.runtime, offered=options.get("tools"))
        return InvocationScope(
            settings.models,
            settings.observers,
            run,
            stage,
            path,
            limits=options.get("limits"),
            falls_back=options.get("falls_back", True),
            notes=notes,
            ahead=ahead,
            own=options.get("own"),
            equal=settings.cached_calls(stage, run.context),
            priority=settings.priorities.get(stage, 0.0),
        )

    def _begin_trail(self, run: GraphRun, config: RunnableConfig | None) -> None:
        """Start recording the run's invocations inside subgraphs, and continue the path of the run that it resumes, if any."""
        with self._trail_lock:  # the branches of a fan-out begin at once
            begun = None if run.trail is not None else self.trails.begin(config)
            if begun is not None:
                run.trail, value = begun
                if value is not None and run.path is None:
                    run.go_on(value)

    def _find_node(self, place: Place) -> GraphRun:
        """Return the run of a node's invocation, and store the path before the invocation in ``place``."""
        config, runtime, options, carried = place.config, place.runtime, place.options, place.value
        assert config is not None
        if runtime is None or runtime.control is None:
            raise WorkflowError("a stage ran outside a graph's run: invoke the compiled graph")
        if is_inner(runtime):
            place.value = None
            return self._found_inside(place, config, runtime)
        channel = channel_of(config)
        opening = None if channel is None else channel.opening
        run = place.run = self.runs.known(opening, runtime.control) or self._new_run(place, opening, config)
        # Calls inside a subgraph are not in this graph's channel: from then on the run itself keeps the path.
        if run.places is not None:
            place.value = None
            place.prefix = run.path or ()
            where = where_of(config)
            if run.path is not None and run.is_past(where):
                run.outcomes.tell_at(config, run.path, fresh=False)
            return run
        # Where the path so far is read from: what the task itself has written, the channel of this step, or the state that the
        # node was given.
        is_repeated = False
        if options.get("own_writes"):
            value, is_repeated = path_here(config)
        elif channel is not None:
            value = channel.get() if channel.path else None
        else:
            value = read_path(config, fresh=False) if carried is None else carried
        place.value, place.shows = value, not is_repeated
        models, stages = ((), ()) if value is None else path_of(value)
        place.step = config.get("metadata", {}).get("langgraph_step", len(models))
        if is_repeated:
            place.step = (place.step, len(models))
        # A run that is resumed here may have made calls inside subgraphs, which only this process remembers.
        longer = self.trails.extended(config, value) if run.path is None else None
        if longer is not None and (
            options.get("continues") or not is_new_request(longer, place.stage, run.policy.template, run.context.request_id)
        ):
            run.go_on(longer)
            place.value, place.step, place.prefix = None, None, run.path or ()
            return run
        # A thread's state may hold the path of an earlier input. If so, this request begins at the start.
        if value is not None:
            is_same_run = models == run.path or run.knows(models)
            goes_on = options.get("continues") or (options.get("run_is_request") and is_same_run)
            if goes_on or not is_new_request(
                value, place.stage, run.policy.template, run.context.request_id, is_same_run=is_same_run
            ):
                place.prefix, place.stages = models, stages
                if run.path is None:
                    run.resumed(value)
        return run

    def _found_inside(self, place: Place, config: RunnableConfig, runtime: Runtime[Any]) -> GraphRun:
        """Return the run of an invocation inside a subgraph, and store the path before the invocation in ``place``."""
        carried = carried_by(runtime.context)
        self._require_request(carried, None, runtime.control, f"stage {place.stage!r}")
        context = self._context_of(carried, None, config)
        if context.chat_host is not None:
            context.chat_host.admit_inner(place.stage, node=where_of(config).task.partition(":")[0])
        run = place.run = with_account(self.runs.inner(runtime.control, context), config)
        place.prefix = run.path or ()
        return run

    def _find_call(self, place: Place) -> GraphRun:
        """Return the run of a chat model's invocation, and store the path before the invocation in ``place``."""
        run = place.run = self.run_here(place.config, place.runtime, place.options.get("objective"))
        place.prefix = run.path or ()
        return run

    @staticmethod
    def _beginning(place: Place, config: RunnableConfig) -> Beginning:
        """Return where in its thread the run of an invocation begins; the request's account is looked up from this position."""
        channel, key, run = channel_of(config), account_of(place.value), place.run
        is_stored = place.step is not None and channel is not None and channel.opening is not None and channel.opening.is_stored
        continues = place.step is not None and bool(place.prefix)
        return replace(
            _beginning(config, None if run is None else run.context.request_id),
            account=key if continues else None,
            after=None if continues or (key is None and not is_stored) else key or "",
        )

    # -- the run ---------------------------------------------------------------------------------------------------

    def path_of(self, config: RunnableConfig) -> RunPath | None:
        """Return the run that an edge belongs to, with the models and stages of the run's path so far.

        Returns None if no run is in progress, as in ``update_state``, or if the run has made no invocation yet.
        """
        channel = channel_of(config)
        opening = None if channel is None else channel.opening
        runtime = current_runtime() if channel is None else None
        run = self.runs.known(opening, None if runtime is None else runtime.control)
        if run is not None and run.path is not None:
            return RunPath(run, run.path, run.stages)
        # No run in memory: this process resumes what another one began, or the edge runs before any stage of this process.
        # The path is then in the checkpoint, and the runtime tells which run it is.
        runtime = current_runtime()  # resumed after the stage
        if runtime is None or runtime.control is None:
            return None
        run = run or self.runs.known(opening, runtime.control)
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
        run = run or self._new_run(Place("", config, runtime, {}), opening, config)
        longer = self.trails.extended(config, value)
        if longer is not None:
            run.go_on(longer)
            return RunPath(run, *path_of(longer))
        run.resumed(value)
        return RunPath(run, *path_of(value))

    def run_here(self, config: RunnableConfig | None, runtime: Runtime[Any] | None, objective: Objective | None) -> GraphRun:
        """Return the run around a call inside a subgraph or outside of a graph; create it if needed.

        ``config`` and ``runtime`` are LangGraph's at the call; None outside of a graph. ``objective`` is used for a run whose
        context has none.
        """
        carried = carried_by(None if runtime is None else runtime.context)
        channel = None if config is None else channel_of(config)
        opening = None if channel is None else channel.opening
        key: Any = None if runtime is None else runtime.control
        if key is None and AMBIENT.get() is carried:
            key = carried
        self._require_request(carried, opening, key, "a model call")
        if runtime is not None and runtime.control is not None and is_inner(runtime):
            return with_account(self.runs.inner(runtime.control, self._context_of(carried, None, config, objective)), config)
        context = self._context_of(carried, opening, config, objective)
        if key is None:
            if not self._has_told and (not is_carried() or self.settings.has_caps):
                self._has_told = True
                _LOG.warning(
                    "a model was called in a thread that was not told its request, or a task that was begun outside of it: it "
                    "is served as a request of its own, on its default model and under no cap. If it belongs to one, %s",
                    CARRY_IT,
                )
            return self.runs.alone(context)
        return with_account(self.runs.of(opening, key, context), config)

    def _new_run(self, place: Place, opening: ChannelSession | None, config: RunnableConfig) -> GraphRun:
        assert place.runtime is not None
        carried = place.runtime.context
        if not isinstance(carried, RunContext):
            carried = carried_by(carried)
        what = f"stage {place.stage!r}" if place.stage else "an edge"
        self._require_request(carried, opening, place.runtime.control, what)
        context = self._context_of(carried, opening, config, place.options.get("objective"))
        run = self.runs.of(opening, place.runtime.control, context)
        return run if run.guard is None else with_account(run, config)

    def _require_request(self, carried: RunContext, opening: ChannelSession | None, control: Any, what: str) -> None:
        """Refuse the call ``what`` if its run has not begun and it may belong to a capped request that is not visible here."""
        if control is None or self.runs.begun(opening, control) is None:
            require_request(carried, self.settings, what)

    def _context_of(
        self,
        carried: RunContext,
        opening: ChannelSession | None,
        config: RunnableConfig | None,
        objective: Objective | None = None,
    ) -> RunContext:
        """Return the context ``carried``, completed with what is known of the run, such as its arrival time.

        ``opening`` are the run's channels. ``objective`` is used if ``carried`` has none.
        """
        settings, known = self.settings, dict[str, Any]()
        if carried.objective is None and objective is not None:
            known["objective"] = objective
        if carried.started_at is None and opening is not None and not settings.models.is_virtual_time:
            known["started_at"] = opening.at_s
        if config is not None and settings.returns_earlier and not streams_tokens(config):
            known["returns_earlier"] = True
        if config is not None and settings.tells_config:
            known["configurable"] = told_configurable(config)
        if config is not None and settings.kind is not None and carried.kind is None:
            known["inputs"] = partial(graph_values, config, None, fresh=False)
        return replace(carried, **known) if known else carried

    def _kind_of(self, context: RunContext) -> tuple[str | None, str]:
        """Return the request's type and an empty reason, or None and the reason why the type cannot be found.

        Raises the error instead if failures are configured to be raised.
        """
        declared = self.settings.kind
        if context.kind is not None or declared is None:
            return context.kind, ""
        if context.inputs is None and context.request is None:
            return None, "no graph has the inputs: give kind= to vine.context"
        try:
            inputs = {} if context.inputs is None else context.inputs()
            return kind_of(declared, inputs, None if context.request is None else context.request.data), ""
        except WorkflowError as error:
            if self.settings.on_error == "raise":
                raise
            return None, str(error)

    def _policy_of(self, context: RunContext) -> Policy:
        """Return the policy of a new run.

        If no policy is given, or if making it fails, this is the policy that chooses the default models.
        """
        try:
            policy = context.policy
            if policy is None and self._new_policy is not None:
                policy = self._new_policy(context)
            if policy is None:
                return self._defaults.policy(context)
            if context.kind is not None or self.settings.kind is not None:
                policy.begin(*self._kind_of(context))
            return policy
        except InfeasibleError:
            raise
        except Exception as error:  # the planner, the fleet, the canary: whatever makes a session
            return self._defaults.stand_in(error, "the session", context.objective)


def current_runtime() -> Runtime[Any] | None:
    """Return LangGraph's runtime of the surrounding node; None outside of a graph."""
    try:
        return get_runtime()
    except (RuntimeError, KeyError):
        return None


def with_account(run: GraphRun, config: RunnableConfig | None) -> GraphRun:
    """Make ``run`` store its payments with the graph's checkpoints, if it has a cap and the graph a checkpointer; return
    ``run``.
    """
    if config is not None and run.can_keep_account:
        given = config.get("configurable", {})
        saver = given.get(_CHECKPOINTER)
        if isinstance(saver, BaseCheckpointSaver) and given.get("thread_id") is not None:
            begins = partial(_beginning, config, run.context.request_id)
            run.keep_account(ThreadAccounts(SaverRows(saver, given)), begins)
    return run


def _beginning(config: RunnableConfig, request_id: str | None) -> Beginning:
    """Return the position where a run begins, read from LangGraph's config; its earlier path and account are left unknown."""
    given = config.get("configurable", {})
    return Beginning(
        checkpoint_id=(given.get("checkpoint_map") or {}).get(""),
        request_id=request_id,
        is_saved_late=given.get(_DURABILITY) == "exit",
    )


def _is_same_request(one: RunContext, other: RunContext) -> bool:
    """Return whether two contexts have the same policy, objective and request id, and so belong to the same request.

    The arrival time is not compared, since LangGraph may pass a copy to which it was added.
    """
    return one.policy is other.policy and one.objective == other.objective and one.request_id == other.request_id

"""The adapter that wraps the stages and routes of a LangGraph application."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Protocol, overload

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime, get_runtime

from vinelm.adapters.langgraph.chat.channel import ThreadPaths, path_here
from vinelm.adapters.langgraph.graph_run import GraphRun, RunPath
from vinelm.adapters.langgraph.inner.places import is_inner, where_of
from vinelm.adapters.langgraph.invocation import InvocationScope
from vinelm.adapters.langgraph.path_channel import (
    ChannelSession,
    PathValue,
    channel_of,
    costs_of,
    is_new_request,
    models_of,
    read_path,
    stage_names,
)
from vinelm.adapters.langgraph.route import ROUTE_INJECTED, make_route
from vinelm.adapters.langgraph.run_context import AMBIENT, ContextOwner, RunContext, attach, carried_by
from vinelm.adapters.langgraph.run_registry import RunRegistry
from vinelm.adapters.langgraph.runs.destinations import Destinations, To
from vinelm.adapters.langgraph.signature import INJECTED, injected_parameters
from vinelm.adapters.langgraph.stage import make_stage
from vinelm.catalog import Catalog
from vinelm.clock import Clock, VirtualClock
from vinelm.errors import ConfigError, InfeasibleError, VineLMError, WorkflowError
from vinelm.objective import Objective
from vinelm.policies import BoundGuard, DefaultPolicy, OnError
from vinelm.protocols import ChatModelSource, Policy
from vinelm.telemetry import Observer, ObserverGroup
from vinelm.template import Loop, Template, stages_of
from vinelm.workflow import Request

Node = Callable[..., Any]


class AdapterHolder(Protocol):
    """Anything that wraps stages through a :class:`GraphAdapter`: the adapter itself, or an object that holds one."""

    @property
    def adapter(self) -> GraphAdapter:
        """The adapter."""


class GraphAdapter:
    """Wraps the LLM stages of a LangGraph application and asks one policy per run for their models.

    Without a policy of its own a run uses the stages' default models. Safe under concurrent runs, threads and asyncio.

    Attributes:
        models: makes the chat models.
        template: the workflow's shape, bound to the catalog; None if it is not known.
        observers: notified of decisions and invocations.

    Args:
        models: makes the chat models.
        template: the workflow's shape; says which stage begins a request.
        new_policy: returns the policy of a new run whose context has none, with ``started_at`` filled in for real time;
            None, or a result of None, stands for the defaults. Called once per run.
        on_error: what follows a failure of VineLM itself while a graph runs. ``"default"``: the stage runs its default model,
            an edge follows the workflow's own verdict within the loop's bound, and the run's trace says what failed; a cap per
            request that cannot be checked any more refuses calls. Errors of the caller's own making
            (:class:`~vinelm.errors.VineLMError`) and of the application's own code are raised all the same.
        enforces: whether policies change what runs. If so and ``fallback``, runs without a policy fall back.
        fallback: whether another model of the stage answers after a failed call.
    """

    def __init__(
        self,
        models: ChatModelSource,
        *,
        template: Template | None = None,
        new_policy: Callable[[RunContext], Policy | None] | None = None,
        on_error: OnError = "raise",
        enforces: bool = True,
        fallback: bool = False,
    ) -> None:
        self.models = models
        self.on_error: OnError = on_error
        self._enforces = enforces
        self._fallbacks = self.allowed_models if fallback and enforces else None
        self.template = None if template is None else template.bind(tuple(models.catalog))
        self.observers = ObserverGroup()
        self._new_policy = new_policy
        self._stages: dict[str, str | None] = {}
        self._agents: set[str] = set()
        self._has_unnamed = False
        self._agains: list[str] = []
        self._ends: set[str] = set()
        self._runs = RunRegistry(
            self._policy_of, observers=self.observers, default=self._any_default if on_error == "default" else None
        )
        self.thread_paths = ThreadPaths()

    @property
    def adapter(self) -> GraphAdapter:
        """This adapter; see :class:`AdapterHolder`."""
        return self

    @property
    def catalog(self) -> Catalog:
        """The models that stages may run on."""
        return self.models.catalog

    def new_clock(self) -> Clock:
        """Return the clock of a new run."""
        return self.models.new_clock()

    # -- building the graph ------------------------------------------------------------------------------------

    @property
    def stages(self) -> Mapping[str, str | None]:
        """The stages wrapped so far, each with the default model that ``stage(default=)`` declared, or None."""
        return dict(self._stages)

    @overload
    def stage(self, name: str, fn: Node, *, state: type | None = None, default: str | None = None) -> Node: ...
    @overload
    def stage(
        self, name: str, fn: None = None, *, state: type | None = None, default: str | None = None
    ) -> Callable[[Node], Node]: ...
    def stage(self, name: str, fn: Node | None = None, *, state: type | None = None, default: str | None = None) -> Any:
        """Return a graph node that runs ``fn(state, model[, config, runtime, writer, store, previous])`` on the policy's model.

        Args:
            name: the node's name in the graph.
            fn: function, method or callable object, sync or async, that returns what any node returns. Without it a decorator
                is returned.
            state: the state's type; needed where ``fn`` does not annotate its first parameter.
            default: the model that runs where nothing is planned; by default what the template declares.

        Raises:
            WorkflowError: ``fn`` cannot be wrapped.
            ConfigError: the catalog lacks the default model.
        """
        if fn is None:
            return lambda given: self.stage(name, given, state=state, default=default)
        label = f"stage {name!r}"
        asked = injected_parameters(fn, label, INJECTED)
        if "model" not in asked.names:
            raise WorkflowError(f"{label}: its function never asks for its model: add a parameter named `model`")
        state_type = state or asked.state
        if not inspect.isclass(state_type):
            raise WorkflowError(f"{label}: the type of its state is unknown: annotate the first parameter, or pass state=State")
        self.declare(name, default)
        return make_stage(self, name, fn, asked, state_type)

    def declare(self, name: str, default: str | None = None, *, is_agent: bool = False) -> None:
        """Declare a stage that VineLM does not wrap itself; ``is_agent`` if a middleware runs it.

        Raises:
            ConfigError: the catalog lacks the default model.
        """
        if default is not None and default not in self.catalog:
            known = ", ".join(self.catalog)
            raise ConfigError(f"stage {name!r}: unknown default model {default!r}: the catalog has {known}")
        self._stages[name] = default
        if is_agent:
            self._agents.add(name)

    def declare_unnamed(self) -> None:
        """Declare a chat model whose stage is the node that calls it."""
        self._has_unnamed = True

    @property
    def agents(self) -> frozenset[str]:
        """Names of the stages that a middleware runs."""
        return frozenset(self._agents)

    @property
    def can_end(self) -> bool:
        """Whether some edge asks the policy whether to go on; without one only the workflow itself ends a request."""
        return bool(self._agains) or not (self._stages or self._has_unnamed)

    @property
    def ends(self) -> frozenset[str]:
        """Where the edges wrapped so far lead when the policy ends the request."""
        return frozenset(self._ends)

    @property
    def edges(self) -> tuple[str, ...]:
        """The destinations ``again`` of the edges wrapped so far."""
        return tuple(self._agains)

    def exits_of(self, template: Template) -> frozenset[str] | None:
        """Return the stages of ``template`` after which a request can end, as far as the wrapped edges tell.

        The graph is not needed: an edge that leads back to a stage stands after the stage before it. The template's last stage
        is an exit, too, unless it stands in a loop that has an edge elsewhere.

        Returns:
            The names; None if no edge is wrapped, or one leads back to a node that is no stage.
        """
        names = {stage.name for stage in template.stages}
        if not self._agains or not names.issuperset(self._agains):
            return None
        if not template.is_linear:
            return template.stages_before(self._agains) | template.flow.last_stages
        last = template.steps[-1]
        is_left_by_edge = isinstance(last, Loop) and any(stage.name in self._agains for stage in stages_of([last]))
        return template.stages_before(self._agains) | (frozenset() if is_left_by_edge else {template.stages[-1].name})

    def observe(self, observer: Observer) -> None:
        """Notify ``observer`` of every decision and invocation from now on; exceptions that it raises are ignored."""
        self.observers.add(observer)

    def route(
        self,
        fn: Node,
        *,
        again: str | None = None,
        end: str | None = None,
        to: To | None = None,
        times: int | Mapping[str, int] | None = None,
    ) -> Node:
        """Return a path function for ``add_conditional_edges`` that leads where ``fn`` says; see :meth:`vinelm.VineLM.route`.

        The policy receives the verdict of ``fn`` and may end the request earlier or, in a profile, later. Whatever the policy,
        the template's number of invocations bounds the loop.

        Raises:
            WorkflowError: ``fn`` cannot be wrapped, or the arguments do not fit together.
        """
        destinations = Destinations(again, end, to, times)
        asked = injected_parameters(fn, f"route {destinations.name}", ROUTE_INJECTED)
        if destinations.end is not None:
            self._agains += destinations.again
            self._ends.add(destinations.end)
        return make_route(self, fn, asked, destinations)

    # -- one run -----------------------------------------------------------------------------------------------

    def context(
        self,
        objective: Objective | Mapping[str, Any] | None = None,
        *,
        user: Any = None,
        policy: Policy | None = None,
        request: Request | None = None,
        started_at: float | None = None,
        request_id: str | None = None,
    ) -> Any:
        """Return what to pass as ``context=``. LangGraph does not store it: pass it again on resume.

        Args:
            objective: target and bounds of the request; also as plain JSON.
            user: the application's own context object or dict; a copy of it that carries the rest is returned, with the same
                type, fields, equality and dumps.
            policy: chooses the models instead of a new session.
            request: the labelled request, for offline backends and the oracle stop.
            started_at: the request's arrival in ``time.monotonic()`` seconds; by default the call of invoke.
            request_id: distinguishes requests on one thread; by default the labelled request's own.

        Returns:
            A :class:`RunContext`, or the copy of ``user``.
        """
        run = _run_context(self, objective, policy, request, started_at, request_id)
        return run if user is None else attach(run, user)

    @contextmanager
    def request(
        self,
        objective: Objective | Mapping[str, Any] | None = None,
        *,
        policy: Policy | None = None,
        request: Request | None = None,
        started_at: float | None = None,
        request_id: str | None = None,
    ) -> Iterator[None]:
        """Apply these settings to every run that begins inside the block without a ``context=`` of its own."""
        with self.within(_run_context(self, objective, policy, request, started_at, request_id)):
            yield

    @contextmanager
    def within(self, settings: RunContext) -> Iterator[None]:
        """The same for settings that are known: calls outside of a graph are the invocations of one request."""
        context = replace(settings)  # the run is found by its identity
        token = AMBIENT.set(context)
        try:
            yield
        finally:
            AMBIENT.reset(token)
            self._runs.forget(context)

    def default_model(self, stage: str) -> str:
        """Return the model that ``stage(default=)`` declared, else the template's default, else the catalog's first."""
        declared = self._stages.get(stage)
        if declared is not None:
            return declared
        if self.template is not None and any(known.name == stage for known in self.template.stages):
            return self.template.stage(stage).default_model
        return next(iter(self.catalog))

    def allowed_models(self, stage: str) -> list[str]:
        """Return the models of the catalog that the stage may run on: those of the template, or all where it has no say."""
        allowed = None
        if self.template is not None:
            allowed = next((known.models for known in self.template.stages if known.name == stage), None)
        return [model for model in self.catalog if allowed is None or model in allowed]

    # -- what the wrapped nodes ask ----------------------------------------------------------------------------

    def invoke(
        self,
        stage: str,
        carried: PathValue | None,
        config: RunnableConfig,
        runtime: Runtime[Any],
        *,
        continues: bool = False,
        run_is_request: bool = False,
        limits: Mapping[str, Any] | None = None,
        own_writes: bool = False,
        falls_back: bool = True,
    ) -> InvocationScope:
        """Begin the invocation of a stage that a node runs, in the root graph or inside a subgraph.

        Args:
            stage: name of the stage.
            carried: the path as the node's state has it; None if it has none.
            config: what LangGraph gave the node.
            runtime: the same.
            continues: the path is known to go on, whatever the template says.
            run_is_request: the same for a path that this very run has written.
            limits: fields of the catalog entry to replace, such as ``max_tokens``.
            own_writes: the invocation follows those that the node has written itself: a chat model may be called repeatedly.
            falls_back: False where the caller repeats failed calls itself.

        Raises:
            WorkflowError: the node runs outside of a graph's run.
        """
        run: GraphRun | None = None
        prefix: tuple[str, ...] = ()
        stages: tuple[str, ...] = ()
        try:
            if is_inner(runtime):
                run = self._inner_run(stage, config, runtime)
                return self._kept_scope(run, stage, config, limits, falls_back=falls_back)
            channel = channel_of(config)
            opening = None if channel is None else channel.opening
            run = self._runs.known(opening, runtime.control) or self._new_run(opening, runtime)
            if run.keeps_path:
                return self._kept_scope(run, stage, config, limits, falls_back=falls_back)
            if channel is None:
                value = carried if carried is not None else read_path(config, fresh=False)
            else:
                value = channel.get() if channel.path else None
            step: Any = config.get("metadata", {}).get("langgraph_step", len(models_of(value)))
            if own_writes:
                value, is_repeated = path_here(config)
                step = (step, len(models_of(value))) if is_repeated else step
            request_id = run.context.request_id
            if value is not None:
                prefix, stages = models_of(value), stage_names(value)
                is_same_run = run.knows(prefix)
                if not (continues or (run_is_request and is_same_run)) and is_new_request(
                    value, stage, run.policy.template, request_id, is_same_run=is_same_run
                ):
                    prefix = stages = ()
                elif run.path is None:
                    run.resumed(prefix, costs_of(value), stages)
            path = run.decide(step, stage, prefix, stages)
            return InvocationScope(
                self.models, self.observers, run, stage, path, limits=limits, request_id=request_id, falls_back=falls_back
            )
        except (VineLMError, GraphBubbleUp):  # the caller's, or LangGraph's
            raise
        except Exception as error:
            return self._default_scope(error, stage, prefix, run, runtime)

    def _inner_run(self, stage: str, config: RunnableConfig, runtime: Runtime[Any]) -> GraphRun:
        """The run of a stage inside a subgraph."""
        context = self._context_of(runtime, None)
        if context.chat_host is not None:
            context.chat_host.admit_inner(stage, node=where_of(config).task.partition(":")[0])
        return self._runs.inner(runtime.control, context)

    def _kept_scope(
        self, run: GraphRun, stage: str, config: RunnableConfig, limits: Mapping[str, Any] | None, *, falls_back: bool
    ) -> InvocationScope:
        """The invocation of a run that keeps its path itself."""
        path = run.enter(where_of(config), stage)
        return InvocationScope(
            self.models, self.observers, run, stage, path,
            limits=limits, request_id=run.context.request_id, falls_back=falls_back,
        )  # fmt: skip

    def path_of(self, config: RunnableConfig) -> RunPath | None:
        """Return the run that an edge belongs to and its path; None where no run is in progress (``update_state``)."""
        channel = channel_of(config)
        opening = None if channel is None else channel.opening
        runtime = _current_runtime() if channel is None else None
        run = self._runs.known(opening, None if runtime is None else runtime.control)
        if run is not None and run.path is not None:
            return RunPath(run, run.path, run.stages)
        runtime = _current_runtime()  # resumed behind the stage
        if runtime is None or runtime.control is None:
            return None
        value = read_path(config, fresh=True)
        if value is None or value["closed"]:
            return None
        run = run or self._new_run(opening, runtime)
        path, stages = models_of(value), stage_names(value)
        run.resumed(path, costs_of(value), stages)
        return RunPath(run, path, stages)

    def run_here(self, objective: Objective | None = None) -> GraphRun:
        """Return the run that a chat model belongs to when it is called.

        That of the graph around it, the surrounding ``with vine.request(...)``, or a new one. ``objective`` applies where
        neither names one.
        """
        try:
            return self._run_here(objective)
        except (VineLMError, GraphBubbleUp):
            raise
        except Exception as error:
            return self._default_run(error, "", (), _current_runtime())

    def _run_here(self, objective: Objective | None) -> GraphRun:
        runtime = _current_runtime()
        context = carried_by(None if runtime is None else runtime.context)
        channel = None if runtime is None else channel_of(get_config())
        opening = None if channel is None else channel.opening
        key: Any = None if runtime is None else runtime.control
        if key is None and AMBIENT.get() is context:
            key = context
        if context.objective is None and objective is not None:
            context = replace(context, objective=objective)
        if runtime is not None and runtime.control is not None and is_inner(runtime):
            return self._runs.inner(runtime.control, context)
        if context.started_at is None and opening is not None and not self.models.is_virtual_time:
            context = replace(context, started_at=opening.at_s)
        if key is None:
            return self._runs.alone(context)
        return self._runs.of(opening, key, context)

    def _new_run(self, opening: ChannelSession | None, runtime: Runtime[Any]) -> GraphRun:
        context = self._context_of(runtime, opening)
        return self._runs.of(opening, runtime.control, context)

    def _context_of(self, runtime: Runtime[Any], opening: ChannelSession | None) -> RunContext:
        if runtime.control is None:
            raise WorkflowError("a stage ran outside a graph's run: invoke the compiled graph")
        context = carried_by(runtime.context)
        if context.started_at is None and opening is not None and not self.models.is_virtual_time:
            context = replace(context, started_at=opening.at_s)
        return context

    def _policy_of(self, context: RunContext) -> Policy:
        """The policy of a new run."""
        try:
            policy = context.policy
            if policy is None and self._new_policy is not None:
                policy = self._new_policy(context)
            if policy is None:
                objective = context.objective
                return DefaultPolicy(
                    self.default_model,
                    fallbacks=self._fallbacks,
                    max_latency_s=None if objective is None else objective.max_latency_s,
                    max_cost_usd=None if objective is None else objective.max_cost_usd,
                    started_at=context.started_at,
                    on_error=self.on_error,
                    clock=self.models.new_clock(),
                    template=self.template,
                    request=context.request,
                )
            return policy
        except InfeasibleError:
            raise
        except Exception as error:
            return self._stand_in(error, "the session", context.objective)

    # -- where VineLM itself has failed --------------------------------------------------------------------------

    def _stand_in(self, error: Exception, what: str, objective: Objective | None) -> DefaultPolicy:
        """A policy of default models that does nothing else; under a cap per request it counts calls at their upper bounds."""
        if self.on_error == "raise":
            raise error
        policy = DefaultPolicy(self._any_default, on_error="default", clock=VirtualClock(), template=self.template)
        with suppress(Exception):
            policy.clock = self.models.new_clock()
            policy.started_at = policy.clock.now()
        if objective is not None and objective.cost_budget == "per_request" and self._enforces:
            policy.guard = BoundGuard(None, objective.max_cost_usd, lambda what, error: None)
        policy.note_failure(what, error, (), None, None)
        return policy

    def _default_run(self, error: Exception, stage: str, prefix: tuple[str, ...], runtime: Runtime[Any] | None) -> GraphRun:
        """A run for one invocation, apart from the request's own, which is not known: under a cap it makes no call."""
        objective = None
        with suppress(Exception):
            objective = carried_by(None if runtime is None else runtime.context).objective
        policy = self._stand_in(error, f"stage {stage!r}" if stage else "the run", objective)
        if policy.guard is not None:
            policy.guard = BoundGuard(None, None, lambda what, error: None)
        return GraphRun(None, policy, RunContext(), default=self._any_default)

    def _default_scope(
        self, error: Exception, stage: str, prefix: tuple[str, ...], run: GraphRun | None, runtime: Runtime[Any]
    ) -> InvocationScope:
        """The invocation on the default model, without observers, since one of them may be what failed."""
        if self.on_error == "raise":
            raise error
        if run is None:
            run = self._default_run(error, stage, prefix, runtime)
        model = self._any_default(stage)
        run.note_failure(f"stage {stage!r}", error, prefix, stage, model)
        run.path, run.stages = (*prefix, model), ()
        return InvocationScope(self.models, ObserverGroup(), run, stage, run.path)

    def _any_default(self, stage: str) -> str:
        """The stage's default model; whatever fails, one of the catalog."""
        try:
            model = self.default_model(stage)
            if model in self.catalog:
                return model
        except Exception:
            model = self._stages.get(stage) or ""
        return model if model in self.catalog else next(iter(self.catalog))


def _current_runtime() -> Runtime[Any] | None:
    """LangGraph's runtime of the surrounding node; None outside of a graph."""
    try:
        return get_runtime()
    except (RuntimeError, KeyError):
        return None


def _run_context(  # noqa: PLR0917 - the arguments of two public methods
    owner: GraphAdapter,
    objective: Objective | Mapping[str, Any] | None,
    policy: Policy | None,
    request: Request | None,
    started_at: float | None,
    request_id: str | None,
) -> RunContext:
    return RunContext(
        objective=Objective.from_dict(objective) if isinstance(objective, Mapping) else objective,
        policy=policy,
        request=request,
        started_at=started_at,
        request_id=request.id if request_id is None and request is not None else request_id,
        owner=ContextOwner(owner),
    )

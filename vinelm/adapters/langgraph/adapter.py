"""The object that an application wraps its stages with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, overload

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.runtime import Runtime, get_runtime

from vinelm.adapters.langgraph.path_channel import opening_of
from vinelm.adapters.langgraph.route import ROUTE_INJECTED, make_route
from vinelm.adapters.langgraph.run_context import AMBIENT, RunContext, attach, carried_by
from vinelm.adapters.langgraph.run_registry import GraphRun, RunRegistry
from vinelm.adapters.langgraph.signature import INJECTED, injected_parameters
from vinelm.adapters.langgraph.stage import make_stage
from vinelm.backends import ModelResolver
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, WorkflowError
from vinelm.objective import Objective
from vinelm.policies import DefaultPolicy
from vinelm.protocols import Backend, Policy
from vinelm.telemetry import Observer, ObserverGroup
from vinelm.template import Template
from vinelm.workflow import Request

Node = Callable[..., Any]


class GraphAdapter(ModelResolver):
    """Wraps the LLM stages of a LangGraph application and asks one policy per run for their models (DESIGN §7).

    ``backends`` maps a provider to its backend; by default those of the catalog's providers are made on first use. With a
    ``template`` the control knows which stage begins a request. Without a planner (see :meth:`policy_for`) every stage
    runs its default model. Safe under concurrent runs, threads and asyncio.
    """

    def __init__(
        self, models: Catalog, backends: Mapping[str, Backend] | None = None, *, template: Template | None = None
    ) -> None:
        super().__init__(models, backends)
        self.template = None if template is None else template.bind(tuple(models))
        self._stages: dict[str, str | None] = {}
        self._agents: set[str] = set()
        self._routes = 0
        self.watch = ObserverGroup()
        self._runs = RunRegistry(watch=self.watch)

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
        """A graph node that runs ``fn(state, model[, config, runtime, writer, store, previous])`` on the policy's model.

        ``fn`` is a function, method or callable object, sync or async, and returns what any node returns. ``name`` is the
        node's name in the graph. ``state`` is needed where ``fn`` does not annotate its first parameter. Without ``fn`` a
        decorator comes back. :class:`WorkflowError` says what cannot be wrapped.
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
        """There is a stage of that name. ``is_agent``: a middleware runs it, in a node that VineLM did not make.

        :class:`ConfigError` for a default model that the catalog lacks.
        """
        if default is not None and default not in self.catalog:
            known = ", ".join(self.catalog)
            raise ConfigError(f"stage {name!r}: unknown default model {default!r}: the catalog has {known}")
        self._stages[name] = default
        if is_agent:
            self._agents.add(name)

    @property
    def agents(self) -> frozenset[str]:
        """The stages that a middleware runs."""
        return frozenset(self._agents)

    @property
    def can_end(self) -> bool:
        """Some edge asks the policy whether to go on; without one only the workflow itself ends a request."""
        return self._routes > 0 or not self._stages

    def observe(self, observer: Observer) -> None:
        """Tell ``observer`` of every decision and invocation from now on; what it raises is swallowed."""
        self.watch.add(observer)

    def route(self, fn: Node, *, again: str, end: str) -> Node:
        """A path function for ``add_conditional_edges`` that goes ``again`` or to the ``end``.

        ``fn(state[, config, runtime])`` returns True where the workflow is finished, or one of the two places itself (a list
        of Sends to ``again`` goes on, too); any other place must be declared by its return type and is followed as it is. The
        policy is asked with that verdict, and may end the loop earlier or, in a profile, later.
        """
        asked = injected_parameters(fn, f"route to {again!r} or {end!r}", ROUTE_INJECTED)
        self._routes += 1
        return make_route(self, fn, asked, again, end)

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
        """What to pass as ``context=``: a :class:`RunContext`, or a copy of ``user`` that carries one.

        ``user`` is the application's own context object or dict; its type, fields, equality and dumps stay unchanged.
        ``started_at`` is the request's arrival in ``time.monotonic()`` seconds, by default the call of invoke.
        ``request_id`` tells requests on one thread apart. LangGraph does not store the context: pass it again on resume.
        """
        return attach(_run_context(objective, policy, request, started_at, request_id), user)

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
        """Every run that starts inside the block and has no ``context=`` of ours is asked for this."""
        context = _run_context(objective, policy, request, started_at, request_id)
        token = AMBIENT.set(context)
        try:
            yield
        finally:
            AMBIENT.reset(token)
            self._runs.forget(context)

    def policy_for(self, context: RunContext) -> Policy:
        """The policy of a new run; to be overridden by what plans. Called once per run, with ``started_at`` filled in for
        real time.
        """
        if context.policy is not None:
            return context.policy
        return DefaultPolicy(self.default_model, clock=self.new_clock(), template=self.template, request=context.request)

    def default_model(self, stage: str) -> str:
        """The model that ``stage(default=)`` declared, else the template's default for it, else the catalog's first."""
        declared = self._stages.get(stage)
        if declared is not None:
            return declared
        if self.template is not None and any(known.name == stage for known in self.template.stages):
            return self.template.stage(stage).default_model
        return next(iter(self.catalog))

    # -- what the wrapped nodes ask ----------------------------------------------------------------------------

    def run_of(self, config: RunnableConfig, runtime: Runtime[Any]) -> GraphRun:
        """The run that a node or an edge belongs to, made on first sight."""
        opening = opening_of(config)
        run = self._runs.known(opening, runtime.control)
        if run is not None:
            return run
        if runtime.control is None:
            raise WorkflowError("a stage ran outside a graph's run: invoke the compiled graph")

        def make() -> tuple[Policy, RunContext]:
            context = carried_by(runtime.context)
            if context.started_at is None and opening is not None and not self.is_virtual_time:
                context = replace(context, started_at=opening.at_s)
            return self.policy_for(context), context

        return self._runs.of(opening, runtime.control, make)

    def known_run(self, config: RunnableConfig) -> GraphRun | None:
        """The same, if some node has made it already."""
        opening = opening_of(config)
        runtime = _current_runtime() if opening is None else None
        return self._runs.known(opening, None if runtime is None else runtime.control)

    def run_here(self, objective: Objective | None = None) -> GraphRun:
        """The run that a chat model belongs to when it is called: that of the graph around it, the surrounding
        ``with vine.request(...)``, or one of its own. ``objective`` holds where neither names one.
        """
        runtime = _current_runtime()
        context = carried_by(None if runtime is None else runtime.context)
        opening = None if runtime is None else opening_of(get_config())
        key: Any = None if runtime is None else runtime.control
        if key is None and AMBIENT.get() is context:
            key = context

        def make() -> tuple[Policy, RunContext]:
            own = context if context.objective is not None or objective is None else replace(context, objective=objective)
            return self.policy_for(own), own

        return GraphRun(None, *make(), self.watch) if key is None else self._runs.of(opening, key, make)


def _current_runtime() -> Runtime[Any] | None:
    """LangGraph's runtime of the node that we are in, if we are in one."""
    try:
        return get_runtime()
    except (RuntimeError, KeyError):
        return None


def _run_context(
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
    )

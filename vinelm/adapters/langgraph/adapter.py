"""The adapter that wraps the stages and routes of a LangGraph application."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any, overload

from langchain_core.caches import BaseCache
from langchain_core.tools import BaseTool

from vinelm.adapters.langgraph.nodes.finish import make_finish
from vinelm.adapters.langgraph.nodes.route import ROUTE_INJECTED, Destinations, To, make_route
from vinelm.adapters.langgraph.nodes.signature import INJECTED, injected_parameters, is_command
from vinelm.adapters.langgraph.nodes.stage import make_stage
from vinelm.adapters.langgraph.nodes.verifier import make_classifier, make_verifier
from vinelm.adapters.langgraph.path.within_node import ThreadPaths
from vinelm.adapters.langgraph.runs.default_runs import DefaultRuns
from vinelm.adapters.langgraph.runs.reads_finder import ReadsFinder
from vinelm.adapters.langgraph.runs.run_context import (
    AMBIENT,
    ContextOwner,
    RunContext,
    attach,
    note_adapter,
    note_cap,
    require_priority,
)
from vinelm.adapters.langgraph.runs.run_finder import RunFinder
from vinelm.adapters.langgraph.runs.settings import AdapterSettings
from vinelm.adapters.langgraph.structure.tools_ahead import ToolsAhead
from vinelm.adapters.tools.declaring import declare_tool
from vinelm.adapters.tools.run_end import watch_graphs
from vinelm.adapters.tools.undeclared import Watch, watch_tools
from vinelm.backends.remote.call_cache import CallCache
from vinelm.clock import Clock
from vinelm.errors import ConfigError, WorkflowError
from vinelm.objective import Objective
from vinelm.one_process import OneProcess
from vinelm.policies import OnError
from vinelm.policies.policy import Policy
from vinelm.requests.protocols import CallsInText, ChatModelSource
from vinelm.requests.workflow import Request
from vinelm.signals import Signals
from vinelm.signals.kind import Kind
from vinelm.telemetry import Observer
from vinelm.template import SKIP, Template
from vinelm.tools.declaration import Scope
from vinelm.tools.speculation import Speculation

Node = Callable[..., Any]


def _check_key(name: str, state: type, key: str) -> None:
    if not any(key in inspect.get_annotations(base) for base in inspect.getmro(state)):
        raise WorkflowError(f"stage {name!r}: the state {state.__name__} has no key {key!r}: declare it, {key}: str")


class GraphInterface(OneProcess):
    """The methods with which an application builds its graph and begins runs. They delegate to an adapter.

    Attributes:
        adapter: wraps the stages and routes.
    """

    adapter: GraphAdapter

    # -- building the graph ------------------------------------------------------------------------------------

    @overload
    def stage(
        self,
        name: str,
        fn: Node,
        *,
        state: type | None = None,
        default: str | None = None,
        optional: bool = False,
        eager: Callable[[Any], CallsInText] | None = None,
        deterministic: bool = False,
        cache: CallCache | BaseCache | None = None,
        priority: float = 0.0,
    ) -> Node: ...
    @overload
    def stage(
        self,
        name: str,
        fn: None = None,
        *,
        state: type | None = None,
        default: str | None = None,
        optional: bool = False,
        eager: Callable[[Any], CallsInText] | None = None,
        deterministic: bool = False,
        cache: CallCache | BaseCache | None = None,
        priority: float = 0.0,
    ) -> Callable[[Node], Node]: ...
    def stage(
        self,
        name: str,
        fn: Node | None = None,
        *,
        state: type | None = None,
        default: str | None = None,
        optional: bool = False,
        eager: Callable[[Any], CallsInText] | None = None,
        deterministic: bool = False,
        cache: CallCache | BaseCache | None = None,
        priority: float = 0.0,
    ) -> Any:
        """Return a graph node that calls ``fn(state, model[, config, runtime, writer, store, previous])`` with the planned
        model.

        Outside of a graph, call it like ``fn``: with a model, which may be a test's fake, or without, on the default model.

        Args:
            name: the node's name in the graph.
            fn: function, method or callable object, sync or async, that returns what any node returns. Without it a decorator
                is returned.
            state: the state's type; needed if ``fn`` does not annotate its first parameter.
            default: the model that runs without a plan; by default what the template declares. ``"skip"`` leaves an optional
                stage out.
            optional: plans may skip the stage: ``fn`` is not called, and the state stays unchanged.
            eager: finds calls of read-only tools in the text that the model writes, such as a program, so that they start while
                it still streams (docs/tools.md). It is called with the state when an answer begins, and returns a function.
                That function is called with each piece of the text, and returns a ``(tool, arguments)`` pair for each call that
                the piece completes. Exceptions are ignored unless ``on_error`` is "raise".
            deterministic: equal calls may share an answer at any temperature: ``batch``, ``profile`` and ``replay`` buy it once
                (docs/batch.md#equal-calls). Equal calls at temperature 0 always share an answer.
            cache: where served calls look for the answer of an equal call, which then costs $0: any LangChain cache, or a
                :class:`~vinelm.CallCache`. Answers are kept separate for each tenant (docs/serve.md#cache).
            priority: added to the request's priority, from -100 to 100; see :meth:`context`.

        Raises:
            WorkflowError: ``fn`` cannot be wrapped, or is optional and chooses the next node itself.
            ConfigError: the catalog lacks the default model, or the cache or the priority is invalid.
        """
        if fn is None:
            return lambda given: self.stage(
                name,
                given,
                state=state,
                default=default,
                optional=optional,
                eager=eager,
                deterministic=deterministic,
                cache=cache,
                priority=priority,
            )
        label = f"stage {name!r}"
        asked = injected_parameters(fn, label, INJECTED)
        if "model" not in asked.names:
            raise WorkflowError(f"{label}: its function never asks for its model: add a parameter named `model`")
        state_type = state or asked.state
        if not inspect.isclass(state_type):
            raise WorkflowError(f"{label}: the type of its state is unknown: annotate the first parameter, or pass state=State")
        if optional and is_command(asked.returns):
            raise WorkflowError(f"{label} chooses the next node by Command: it cannot be optional, move the choice to an edge")
        self.adapter.declare(name, default, optional=optional)
        if deterministic:
            self.adapter.deterministic.add(name)
        if cache is not None:
            self.adapter.cache(name, CallCache.of(cache))
        require_priority(priority)
        if priority:
            self.adapter.priorities[name] = float(priority)
        return make_stage(
            self.adapter.finder, self.adapter, name, fn, asked, state_type=state_type, default=default, eager=eager
        )

    def verifier(self, name: str, *, prompt: str, state: type, key: str = "verdict", default: str | None = SKIP) -> Node:
        """Return a graph node that asks a model whether the answer in the state is right: an optional stage.

        The node writes ``"yes"``, ``"no"`` or ``"unclear"`` under ``key``, and no answer. Plans use this value as the stage's
        signal, instead of the workflow's ``signal=``. Plans run the stage only if the verdict is worth its price
        (docs/signals.md#a-verifier).

        Args:
            name: the node's name in the graph.
            prompt: the prompt, with keys of the state in braces: ``"Question: {question} Answer: {answer}"``.
            state: the state's type, which declares ``key``.
            key: the key of the state for the verdict.
            default: the model that runs without a plan; by default the stage is skipped.

        Raises:
            WorkflowError: the state does not declare the key.
            ConfigError: the catalog lacks the default model.
        """
        _check_key(name, state, key)
        node = self.stage(name, make_verifier(f"stage {name!r}", prompt, key), state=state, default=default, optional=True)
        self.adapter.optional[name] = key
        return node

    def classify(
        self, name: str, *, labels: Sequence[str], prompt: str, state: type, key: str = "kind", default: str | None = SKIP
    ) -> Node:
        """Return a graph node that asks a model for the type of the request: an optional stage.

        It writes one of ``labels``, or ``"other"``, under ``key``, and no answer. A branch after it leads to the stages of each
        type. Plans call it only if knowing the type is worth its price (docs/signals.md#a-classifier).

        Args:
            name: the node's name in the graph; must differ from ``key``.
            labels: 1 to 16 different lines of at most 64 characters, without ``"other"``.
            prompt: the prompt, with keys of the state in braces: ``"{question}"``.
            state: the state's type, which declares ``key``.
            key: the key of the state for the label; a skipped stage writes nothing there.
            default: the model that runs without a plan; by default the stage is skipped.

        Raises:
            WorkflowError: the state does not declare the key, or the labels cannot be distinguished.
            ConfigError: the catalog lacks the default model.
        """
        _check_key(name, state, key)
        node = make_classifier(f"stage {name!r}", labels, prompt, key)
        return self.stage(name, node, state=state, default=default, optional=True)

    def route(
        self,
        fn: Node,
        *,
        again: str | None = None,
        end: str | None = None,
        to: To | None = None,
        times: int | Mapping[str, int] | None = None,
    ) -> Node:
        """Return a path function for ``add_conditional_edges``: a loop's (``again`` and ``end``) or a branch's (``to``).

        Args:
            fn: ``fn(state[, config, runtime])`` returns where to go: one of the places, a key of ``to``, or a list of them and
                of Sends. For a loop it may return True when the workflow is finished; any other place must then be declared by
                its return type ``Literal[...]``.
            again: the node with which the loop continues.
            end: the place after the loop or branch. Unless stages follow this place, the plan may end the request by going
                there, even if ``fn`` names another place. For a branch, the default is END if END is among its places. Without
                ``end``, the plan never ends the request at this edge.
            to: the places of a branch, as in ``add_conditional_edges``: names of nodes, or ``{result of fn: name}``.
            times: for each place other than ``end``, the maximum number of times that the edge leads there in one run, >= 1. A
                single number holds for each of these places; a mapping gives a number by place. The default is what the
                template allows, or 25 if no template is known.

        Raises:
            WorkflowError: ``fn`` cannot be wrapped, or the arguments do not fit together.
        """
        destinations = Destinations(again, end, to, times)
        asked = injected_parameters(fn, f"route {destinations.name}", ROUTE_INJECTED)
        if destinations.end is not None:
            self.adapter.note_exits(destinations.again, destinations.end)
        return make_route(self.adapter.finder, fn, asked, destinations)

    def tool(
        self,
        fn: Any = None,
        *,
        read_only: bool = False,
        writes: Scope | None = None,
        cost_usd: float = 0.0,
        ttl_s: float | None = None,
        ahead: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] | None = None,
        before: str | Sequence[str] = "",
        unchecked: bool = False,
    ) -> Any:
        """Return ``fn`` as a LangChain tool with a declaration of its effects, so that its calls can be prefetched
        (docs/tools.md).

        A call of a read-only tool may be answered by a result that was prefetched: computed before the application asked. Calls
        of other tools, declared or not, make earlier prefetched results stale. If the request has a cap, each call reserves and
        pays ``cost_usd`` like a model call, and is refused if the cap does not allow it.

        Args:
            fn: a function with a docstring, or a LangChain tool; without it a decorator is returned.
            read_only: a call changes nothing, so an unused call does no harm.
            writes: which prefetched reads a call makes stale: the reads of this run ("session"), or of all runs of this object
                ("all").
            cost_usd: cost of one call in dollars, >= 0.
            ttl_s: seconds for which a result stays valid, > 0; None keeps it valid until a write.
            ahead: for a tool that a node of the graph calls: returns that call's arguments, by key, from the state before the
                preceding stage; None if they are not known yet. The call may then start during that stage, with the plan's
                probability that a stage of ``before`` comes next.
            before: names of the stages that come right after the node that calls the tool. Requests
                must not reach these stages by another branch.
            unchecked: prefetch calls even if the application may still refuse or change them: by an interrupt, a middleware, or
                a node between the model and the tool. Without it, such a tool is not prefetched.

        Raises:
            ConfigError: a read-only tool takes injected state, store or runtime, returns a Command, interrupts or is a
                generator; another tool has its name; a number is out of range; only one of ``ahead`` and ``before`` is given,
                or a tool that writes has them.
        """
        how: dict[str, Any] = {"read_only": read_only, "writes": writes, "cost_usd": cost_usd, "ttl_s": ttl_s}
        how |= {"ahead": ahead, "before": before, "unchecked": unchecked}
        if fn is None:
            return lambda given: self.tool(given, **how)
        finder = self.adapter.reads_finder
        made: BaseTool = declare_tool(self.adapter.tools, finder.here, fn, guard=finder.guard, **how)
        watch_tools(self.adapter.watch)
        watch_graphs()
        return made

    @property
    def finish(self) -> Node:
        """Return a graph node that returns an earlier answer if the plan trusts it more than the last answer.

        Add the node with ``graph.add_node("finish", vine.finish)``, ``vine.route(..., end="finish")`` and an edge from
        ``"finish"`` to END. The node sets the ``answer=`` keys, which hold the answer in the state, to their values in the
        trusted answer, bypassing their reducers. A request whose tokens were streamed to the caller returns its last answer.
        Without the node, every request returns its last answer.
        """
        self.adapter.note_exits()
        return self.adapter.finish_node

    @property
    def stages(self) -> Mapping[str, str | None]:
        """The stages wrapped so far, each with its default model from ``stage(default=)``; None for a stage without one."""
        return dict(self.adapter.declared)

    def default_model(self, stage: str) -> str:
        """Return the model that ``stage(default=)`` declared, otherwise the template's default or the catalog's first model."""
        return self.adapter.defaults.default_model(stage)

    def observe(self, observer: Observer) -> None:
        """Notify ``observer`` of every decision and invocation from now on; exceptions that it raises are ignored."""
        self.adapter.observers.add(observer)

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
        priority: float = 0.0,
        kind: str | None = None,
        speculate: Speculation | None = None,
    ) -> Any:
        """Return the object to pass as ``context=``. LangGraph does not store it: pass it again on resume.

        Args:
            objective: the request's objective (its target and its limits), as an object or as a mapping of JSON types.
            user: the application's own context object or dict. The result is a copy of it that carries the other arguments. The
                copy has the same type and fields; comparing or serializing it gives the same results.
            policy: chooses the request's models; by default a new session of the ``VineLM``.
            request: the labelled request, for offline backends and for templates that end a request when its answer is right.
            started_at: the request's arrival in ``time.monotonic()`` seconds; by default the call of invoke.
            request_id: distinguishes requests on one thread; by default the id of the labelled request.
            priority: the priority of the request's calls when they wait for rate limits, from -100 to 100: higher goes first.
                Each unit counts as 10 s of waiting, so that no request waits forever.
            kind: the request's type, instead of the type found by the application's rule; needed if no graph receives the
                inputs.
            speculate: call read-only tools before the application asks for them; by default the setting of the ``VineLM``.

        Returns:
            VineLM's context, or a copy of ``user`` that carries it.
        """
        run = _run_context(self.adapter, objective, policy, request, started_at, request_id, priority, kind, speculate)
        return run if user is None else attach(run, user)

    def request(
        self,
        objective: Objective | Mapping[str, Any] | None = None,
        *,
        policy: Policy | None = None,
        request: Request | None = None,
        started_at: float | None = None,
        request_id: str | None = None,
        priority: float = 0.0,
        kind: str | None = None,
        speculate: Speculation | None = None,
    ) -> AbstractContextManager[None]:
        """Apply these settings (see :meth:`context`) to every run that begins inside the block without a ``context=``."""
        run = _run_context(self.adapter, objective, policy, request, started_at, request_id, priority, kind, speculate)
        return self.adapter.within(run)

    def new_clock(self) -> Clock:
        """Return the clock of a new run: a virtual clock if the models' latencies are virtual, otherwise a real one."""
        return self.adapter.models.new_clock()


class GraphAdapter(AdapterSettings, GraphInterface):
    """Wraps the LLM stages of a LangGraph application and asks one policy per run for their models.

    Without a policy, a run uses the stages' default models. Safe under concurrent runs, threads and asyncio. It also has the
    attributes of :class:`~vinelm.adapters.langgraph.runs.settings.AdapterSettings`.

    Attributes:
        invoke, ainvoke: begin an invocation of a node whose path is in the graph's channel.
        call, acall: begin an invocation whose path the run keeps in memory.
        path_of: returns the run and the path at a node or edge. These five are methods of
            :class:`~vinelm.adapters.langgraph.runs.run_finder.RunFinder`.
        called: for each stage, the default models of the chat models that were called for it, without duplicates.
        defaults: makes the policies of runs without a plan (:class:`~vinelm.adapters.langgraph.runs.default_runs.DefaultRuns`).
        default_scope: returns an invocation on the default model, after a failure inside VineLM; a method of ``defaults``.
        finder: finds the run that an invocation belongs to.
        finish_node: see :attr:`GraphInterface.finish`.
        reads_finder: finds the prefetched reads of the run in which a tool is called.
        watch: notifies a run when an undeclared tool is called in it.

    Args:
        models: makes the chat models.
        template: the workflow's shape, which determines the stage that begins a request.
        new_policy: returns the policy of a new run whose context has none, with ``started_at`` filled in for real time; None,
            or a result of None, means the default models. Called once per run.
        on_error: what to do if VineLM itself fails while a graph runs; see :class:`vinelm.VineLM`.
        enforces: whether policies change which models run. Runs without a policy fall back only if ``enforces`` and
            ``fallback`` are both true.
        fallback: whether another model of the stage answers after a failed call.
        signals: the workflow's signals, which are reported to policies; None reports nothing.
        kind: the request's type, which is reported to policies; None reports nothing.
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
        signals: Signals | None = None,
        kind: Kind | None = None,
    ) -> None:
        super().__init__(models, template, on_error, signals, kind)
        note_adapter(self)
        self.adapter = self
        self._agents: set[str] = set()
        self.called: dict[str, dict[str, None]] = {}
        self._has_unnamed = False
        self._unnamed_defaults: set[str | None] = set()
        defaults = self.defaults = DefaultRuns(self, enforces=enforces, fallback=fallback)
        finder = self.finder = RunFinder(self, new_policy, defaults)
        self.finish_node = make_finish(finder)
        self.invoke, self.ainvoke, self.path_of = finder.invoke, finder.ainvoke, finder.path_of
        self.call, self.acall = finder.call, finder.acall
        self.default_scope = defaults.default_scope
        self.thread_paths = ThreadPaths()
        self.tools.runs_ahead = enforces
        self.reads_finder = ReadsFinder(finder)
        self.watch = Watch(self.reads_finder.known)
        ahead = ToolsAhead(self.tools)
        self.tools.held_at, self.tools.outside = ahead.at, ahead.outside

    def declare(self, name: str, default: str | None = None, *, is_agent: bool = False, optional: bool = False) -> None:
        """Register the stage ``name``. ``default`` is the stage's default model; None if it has none.

        Pass ``is_agent`` if a middleware runs the stage, ``optional`` if its node is wrapped and may be skipped.

        Raises:
            ConfigError: the catalog lacks the default model.
        """
        if default is not None and (default not in self.catalog or (default == SKIP and not optional)):
            known = ", ".join(self.catalog)
            raise ConfigError(f"stage {name!r}: unknown default model {default!r}: the catalog has {known}")
        self.declared[name] = default
        if optional:
            self.optional.setdefault(name, None)
        if is_agent:
            self._agents.add(name)

    def note_call(self, name: str, default: str | None) -> None:
        """Record that a chat model with this default model was called for the stage ``name``; the catalog may lack the default
        model.
        """
        if name not in self.declared:
            self.declare(name, default if default in self.catalog else None)
        if default is not None:
            self.called.setdefault(name, {})[default] = None

    def declare_unnamed(self, default: str | None = None) -> None:
        """Record that the application made a chat model with the default model ``default``, but without a stage name.

        Each node that calls such a chat model is a stage.
        """
        self._has_unnamed = True
        self._unnamed_defaults.add(default)

    def declared_defaults(self, stages: Iterable[str]) -> dict[str, str | None]:
        """Return each stage's declared default model; None for a stage without one.

        An undeclared stage is a node that calls a chat model without a stage name. If all such chat models have the same
        default model, that is the stage's default; otherwise None.
        """
        unnamed = next(iter(self._unnamed_defaults)) if len(self._unnamed_defaults) == 1 else None
        return {name: self.declared.get(name, unnamed) for name in stages}

    @property
    def agents(self) -> frozenset[str]:
        """Names of the stages that a middleware runs."""
        return frozenset(self._agents)

    @property
    def can_end(self) -> bool:
        """Whether the policy may end a request at some edge; otherwise only the application's own edges end it."""
        return bool(self.agains) or not self.is_used

    @property
    def is_used(self) -> bool:
        """Whether the application has declared a stage or a chat model with this adapter."""
        return bool(self.declared) or self._has_unnamed

    def exits_of(self, template: Template) -> frozenset[str] | None:
        """Return the stages of ``template`` after which a request can end, according to the edges wrapped so far.

        The compiled graph is not needed.

        Returns:
            The names of the stages; None if no edge is wrapped, or if an edge leads back to a node that is not a stage.
        """
        names = {stage.name for stage in template.stages}
        if not self.agains or not names.issuperset(self.agains):
            return None
        return template.exits_by(self.agains)

    @contextmanager
    def within(self, settings: RunContext) -> Iterator[None]:
        """Apply ``settings`` to every run that begins inside the block without a ``context=``, like :meth:`request`."""
        context = replace(settings)  # the run is found by its identity
        token = AMBIENT.set(context)
        try:
            yield
        finally:
            AMBIENT.reset(token)
            with suppress(Exception):  # the trail is dropped when newer ones need the room
                self.finder.runs.forget(context)


def _run_context(  # noqa: PLR0917 - the arguments of two public methods
    owner: GraphAdapter,
    objective: Objective | Mapping[str, Any] | None,
    policy: Policy | None,
    request: Request | None,
    started_at: float | None,
    request_id: str | None,
    priority: float,
    kind: str | None,
    speculate: Speculation | None,
) -> RunContext:
    if speculate is not None and not isinstance(speculate, Speculation):
        raise ConfigError(f"speculate is a {type(speculate).__name__}: give vinelm.Speculation(waste_usd=, at_once=)")
    if speculate is not None or owner.tools.speculation is not None:
        owner.tools.require_reads()
    require_priority(priority)
    if not (policy is None or isinstance(policy, Policy)):
        raise ConfigError(f"policy is of {type(policy).__name__}: derive the class from vinelm.policies.Policy")
    made = RunContext(
        kind=kind,
        speculate=speculate,
        priority=float(priority),
        objective=Objective.from_dict(objective) if isinstance(objective, Mapping) else objective,
        policy=policy,
        request=request,
        started_at=started_at,
        request_id=request.id if request_id is None and request is not None else request_id,
        owner=ContextOwner(owner),
    )
    note_cap(made, owner, enforces=owner.defaults.enforces)
    return made

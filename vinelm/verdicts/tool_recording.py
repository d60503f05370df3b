"""Records an application's tool calls. For this, its current models serve each of its requests once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from vinelm.adapters.langgraph import RunContext, build_graph
from vinelm.adapters.langgraph.structure.graph_tools import tools_of
from vinelm.adapters.tools.declaring import declaration_of
from vinelm.adapters.tools.tool_box import Record
from vinelm.adapters.tools.undeclared import watch_tools
from vinelm.api import VineLM
from vinelm.api.profiling import identity_of, require_budget
from vinelm.api.tool_patterns import named_tools
from vinelm.catalog import Catalog
from vinelm.clock import WorkClock
from vinelm.requests.protocols import Backend, CallGuard
from vinelm.requests.workflow import Request, Workflow
from vinelm.running.serving import Purses, serve
from vinelm.running.serving_record import ServingTask, serving_record
from vinelm.tools.call import SessionPart, ToolEvent
from vinelm.tools.declaration import ToolDeclaration
from vinelm.traces import ObservationStore, ServedRequest
from vinelm.traces.tools.tool_calls import ToolCalls

TODAY = "today"
"""Name of the policy that runs each stage on its default model."""


@dataclass(frozen=True, kw_only=True)
class RecordedTools:
    """A summary of the recorded tool calls, including those of interrupted runs.

    Attributes:
        requests: the number of requests to serve.
        served: the number of requests that were served.
        calls: the number of tool calls in the store.
        spent_usd: dollars spent; calls without a recorded result count at their maximum cost.
        failures: number of failed requests, keyed by reason.
        is_simulated: whether some models are simulated.
    """

    requests: int
    served: int
    calls: int
    spent_usd: float
    failures: Mapping[str, int]
    is_simulated: bool

    @property
    def is_complete(self) -> bool:
        """Whether all requests were served; False if the budget ended the run early."""
        return self.served == self.requests

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return asdict(self)


def record_tools(
    workflow: Workflow,
    catalog: Catalog,
    backends: Mapping[str, Backend],
    store: Path,
    *,
    vine: VineLM | None = None,
    record: Record = "digests",
    read_only: tuple[str, ...] = (),
    budget_usd: float | None = None,
    seed: int = 0,
    on_done: Callable[[int, int], None] = lambda done, total: None,
) -> RecordedTools:
    """Serve each request once, with the default model at every stage, and write its tool calls to a store.

    Calls the models, which costs money unless they are simulated, and the tools, with their side effects. The cost of every
    model call is reserved before the call. Each request is on disk before the next begins, so a second call of this
    function continues. The declared cost of tool calls counts, too. If a tool was declared with another ``VineLM`` object,
    its cost is known only when the request has ended.

    Args:
        workflow: The workflow, bound to the catalog. Its answers are not scored.
        catalog: The models.
        backends: A backend for each provider.
        store: The store, created if missing.
        vine: The ``VineLM`` of the application; None builds the workflow with a new one.
        record: "digests" of arguments, or "values": arguments, results and users' messages.
        read_only: Names of tools that only read, or patterns of names, in addition to tools declared read-only.
        budget_usd: The maximum cost in dollars, including earlier runs. Required for models that cost money.
        seed: Decides the answers of simulated models.
        on_done: Called as ``on_done(done, total)`` after each request.

    Raises:
        ConfigError: Models cost money and no budget is given, a name in ``read_only`` matches no tool, or the store is the
            record of something else.
        StoreError: The file is not a store, or another process holds it.
    """
    require_budget(backends, budget_usd)
    if vine is None:
        how: dict[str, Any] = {"template": workflow.template, "signals": workflow.signals, "kind": workflow.kind}
        vine = VineLM(catalog, backends, fallback=False, labelled=True, **how)
    vine.adapter.tools.record, vine.adapter.tools.speculation = record, None  # prefetching would hide the tools' seconds
    recording = _Recording.of(workflow, vine, read_only)
    identity = identity_of(workflow, catalog, backends, seed)
    identity = replace(identity, workflow=f"{workflow.name} (tools)")  # so that no profile adds to its ledger
    with serving_record(store, identity, budget_usd) as served:
        # One request at a time: a tool's call shows which run it belongs to, but not which request.
        served.serve_all(map(recording.task, workflow.requests), on_done=lambda done: on_done(done, len(workflow.requests)))
        wanted = {request.id for request in workflow.requests}
        found = [one for one in served.served.values() if one.request_id in wanted]
        return RecordedTools(
            requests=len(wanted),
            served=len(found),
            calls=served.recorded_calls(),
            spent_usd=served.spent_usd,
            failures=Counter(one.detail or one.failure for one in found if one.failure is not None),
            is_simulated=identity.is_simulated,
        )


def _keep(parts: list[SessionPart], store: ObservationStore) -> None:
    ToolCalls(store).append(parts, {})


@dataclass(frozen=True)
class _Recording:
    """An application, prepared to serve requests and record their tool calls.

    Attributes:
        workflow: The workflow, whose answers are not scored.
        vine: The ``VineLM`` object of the application.
        app: The compiled graph.
        declared: The declarations of tools, keyed by the tool's name.
        reads: The names of the tools that only read.
        purses: The object that finds the budget of each request.
    """

    workflow: Workflow
    vine: VineLM
    app: Any
    declared: Mapping[str, ToolDeclaration]
    reads: frozenset[str]
    purses: Purses

    @classmethod
    def of(cls, workflow: Workflow, vine: VineLM, read_only: tuple[str, ...]) -> _Recording:
        """Build the application of a workflow, prepared to record its tool calls."""
        workflow = replace(workflow, score=lambda request, state: False)
        app = build_graph(workflow, vine)
        tools = tools_of(app) if hasattr(app, "builder") else {}
        declared = {name: says for name, one in tools.items() if (says := declaration_of(one)) is not None}
        declared |= {name: one.says for name, one in vine.adapter.tools.declared.items()}
        reads = named_tools(read_only, {*tools, *declared})
        watch_tools(vine.adapter.watch)
        reads |= {name for name, says in declared.items() if says.read_only}
        return cls(workflow, vine, app, declared, reads, Purses(vine.adapter))

    def task(self, request: Request) -> ServingTask:
        """Return the task that serves a request and then stores its tool calls."""
        parts: list[SessionPart] = []
        return ServingTask(TODAY, request.id, partial(self.served, request, parts), partial(_keep, parts))

    def served(self, request: Request, parts: list[SessionPart], budget: CallGuard) -> ServedRequest:
        """Serve one request within ``budget``, and return the result; append the recorded tool calls to ``parts``."""
        heard: list[SessionPart] = []
        self.vine.adapter.tools.recorder = heard.append
        clock = WorkClock() if self.vine.models.is_virtual_time else self.vine.new_clock()
        policy = self.vine.adapter.defaults.policy(RunContext(request=request), clock)
        with self.purses.paying(policy, budget):
            served = serve(self.workflow, self.vine, self.app, request, policy=policy)
        parts += map(self._told, heard)
        others = set(self.declared) - set(self.vine.adapter.tools.declared)
        unpaid = [one.event.cost_usd for one in parts if isinstance(one.event, ToolEvent) and one.event.tool in others]
        return replace(served, cost_usd=served.cost_usd + sum(unpaid))

    def _told(self, part: SessionPart) -> SessionPart:
        """Return a recorded tool call with the cost and the read-only flag that the tool's declaration states.

        Other parts of the session, such as messages, are returned unchanged. Tools that the caller has named as read-only get
        the flag in any case. A tool without a declaration keeps the recorded values.
        """
        if not isinstance(part.event, ToolEvent):
            return part
        says = self.declared.get(part.event.tool)
        is_read = True if part.event.tool in self.reads else part.is_read if says is None else says.read_only
        event = part.event if says is None else replace(part.event, cost_usd=says.cost_usd)
        return part._replace(event=event, is_read=is_read)

"""Compute the complete request x path table of offline backends directly, without running the graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from langchain_core.messages import BaseMessage
from science.recorded_table import RecordedTable

from vinelm.backends import OfflineChatModel
from vinelm.catalog import Catalog
from vinelm.clock import VirtualClock
from vinelm.errors import CallError, ConfigError, WorkflowError
from vinelm.requests.protocols import Backend, CallContext
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Usage
from vinelm.signals import ShownAnswer
from vinelm.template import StopRule
from vinelm.trie import Trie
from vinelm.workflows.nl2sql.databases import Databases
from vinelm.workflows.nl2sql.graph import Stages, State, finished, shown
from vinelm.workflows.nl2sql.workflow import Scorer

Progress = Callable[[int, int], None]
"""Called with (requests done, requests in total)."""


def exact_table(
    workflow: Workflow,
    catalog: Catalog,
    backends: Mapping[str, Backend],
    requests: Sequence[Request] | None = None,
    *,
    only_reached: StopRule | Literal["either"] | None = None,
    progress: Progress | None = None,
) -> RecordedTable:
    """Execute every request at every prefix with the graph's stage functions, each prefix once. Spends no money.

    A cell equals that of a profiled unit: it has its own clock, and tools take no time. Cells below a failed call are not
    executed; the failed cell is marked in ``failed``, with its cost.

    Args:
        workflow: an NL2SQL workflow.
        catalog: the models.
        backends: provider to backend; all must be offline.
        requests: by default all requests of the workflow.
        only_reached: do not execute cells below a node that stops the request under this rule, or under both with
            ``"either"``. Such cells have ``success`` False, ``stopped`` True and zero cost and latency; use the table's
            ``reached`` under the same rule.
        progress: called after each request.

    Raises:
        ConfigError: a backend would spend money.
        WorkflowError: not an NL2SQL workflow.
    """
    chosen = tuple(workflow.requests if requests is None else requests)
    run = _Run.of(workflow, catalog, backends, only_reached)
    shape = (len(chosen), len(run.trie))
    arrays = _Arrays(
        np.zeros(shape, np.bool_), np.ones(shape, np.bool_), np.zeros(shape), np.zeros(shape), np.zeros(shape, np.bool_)
    )
    arrays.stopped[:, 0] = False
    for row, request in enumerate(chosen):
        run.fill(request, row, arrays)
        if progress is not None:
            progress(row + 1, len(chosen))
    return RecordedTable(
        template=workflow.template.bind(tuple(catalog)),
        catalog=catalog,
        trie=run.trie,
        request_ids=tuple(request.id for request in chosen),
        success=arrays.success,
        stopped=arrays.stopped,
        cost_usd=arrays.cost_usd,
        latency_s=arrays.latency_s,
        failed=arrays.failed if arrays.failed.any() else None,
    )


class ExactAnswers:
    """What offline backends answer at any prefix: executed with the graph's stage functions when first asked for, then kept.

    An answer equals that of a profiled or served unit. Spends no money.

    Args:
        workflow: An NL2SQL workflow that declares signals.
        catalog: The models.
        backends: Provider to backend; all must be offline.

    Raises:
        ConfigError: A backend would spend money.
        WorkflowError: Not an NL2SQL workflow.
    """

    def __init__(self, workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend]) -> None:
        self._run = _Run.of(workflow, catalog, backends, None)
        self._stages = [stage.name for stage in workflow.template.invocations]
        self._signals = workflow.signals
        self._cells: dict[tuple[str, tuple[str, ...]], tuple[State, ShownAnswer]] = {}

    def __call__(self, request: Request, prefix: tuple[str, ...]) -> ShownAnswer:
        """Return what the invocation at the end of ``prefix`` gives, whatever the workflow's check said before.

        Args:
            request: The labelled request.
            prefix: Models of the invocations so far, at least one. Below a failed call nothing may be asked.
        """
        return self._cell(request, prefix)[1]

    def _cell(self, request: Request, prefix: tuple[str, ...]) -> tuple[State, ShownAnswer]:
        found = self._cells.get((request.id, prefix))
        if found is None:
            run = self._run
            inputs = cast("State", run.workflow.graph_input(request))
            before = inputs if len(prefix) == 1 else self._cell(request, prefix[:-1])[0]
            cell = run.invoke(request, self._stages[len(prefix) - 1], prefix, before)
            found = self._cells[request.id, prefix] = (cell.state, self._shown(request, cell))
        return found

    def _shown(self, request: Request, cell: _Cell) -> ShownAnswer:
        state, passed = cast("dict[str, Any]", cell.state), not cell.has_failed and finished(cell.state)
        return ShownAnswer(
            success=not cell.has_failed and bool(self._run.workflow.score(request, state)),
            passed=passed,
            signal=None if cell.has_failed else self._signals.label(state, passed=passed),
            answer=None if cell.has_failed else self._signals.answer_of(state),
            cost_usd=cell.cost_usd,
            latency_s=cell.latency_s,
            has_failed=cell.has_failed,
        )


@dataclass(frozen=True, slots=True)
class _Arrays:
    success: Any
    stopped: Any
    cost_usd: Any
    latency_s: Any
    failed: Any


@dataclass(slots=True)
class _Cell:
    """One invocation: the state after it, its dollars and seconds."""

    state: State
    cost_usd: float = 0.0
    latency_s: float = 0.0
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class _Said:
    """What a stage reads of a message."""

    text: str


@dataclass(frozen=True, slots=True)
class _Direct:
    """A chat model without LangChain's messages, callbacks and tracing, which take longer than the rest of a cell."""

    chat: Any

    def invoke(self, messages: list[BaseMessage]) -> _Said | BaseMessage:
        if isinstance(self.chat, OfflineChatModel):
            return _Said(self.chat.said(messages))
        return cast("BaseMessage", self.chat._generate(messages).generations[0].message)


@dataclass(frozen=True, slots=True)
class _Run:
    workflow: Workflow
    catalog: Catalog
    backends: Mapping[str, Backend]
    only_reached: StopRule | Literal["either"] | None
    trie: Trie
    stages: Stages
    databases: Databases
    nodes: tuple[tuple[int, int, int, str, tuple[str, ...]], ...]
    """(node, parent, end of the subtree, stage, prefix) in pre-order, the root left out."""

    @classmethod
    def of(
        cls,
        workflow: Workflow,
        catalog: Catalog,
        backends: Mapping[str, Backend],
        only_reached: StopRule | Literal["either"] | None,
    ) -> _Run:
        if not isinstance(workflow.score, Scorer):
            raise WorkflowError(f"workflow {workflow.name!r} is not an NL2SQL workflow: run its graph instead")
        trie = Trie.from_template(workflow.template.bind(tuple(catalog)))
        for model in catalog.models:
            if not backends[model.provider].is_virtual_time and not backends[model.provider].is_simulated:
                raise ConfigError(
                    f"model {model.name!r}: {model.provider} calls cost money: exact tables are for offline backends"
                )
        nodes = tuple(
            (node, int(trie.parent[node]), int(trie.end[node]), trie.stages[trie.stage[node]], trie.prefix(node))
            for node in range(1, len(trie))
        )
        databases = workflow.score.databases
        return cls(workflow, catalog, backends, only_reached, trie, Stages(databases), databases, nodes)

    def fill(self, request: Request, row: int, arrays: _Arrays) -> None:
        """Fill row ``row`` of every array."""
        states: dict[int, State] = {0: cast("State", self.workflow.graph_input(request))}
        right: dict[str, bool] = {}
        skip_until = 0
        for node, parent, end, stage, prefix in self.nodes:
            if node < skip_until:
                continue
            cell = self.invoke(request, stage, prefix, states[parent])
            states[node] = cell.state
            arrays.cost_usd[row, node], arrays.latency_s[row, node] = cell.cost_usd, cell.latency_s
            if cell.has_failed:
                arrays.failed[row, node] = True
                skip_until = end
                continue
            sql = cell.state["sql"]
            if sql not in right:
                right[sql] = bool(self.workflow.score(request, cast("dict[str, Any]", cell.state)))
            arrays.success[row, node] = right[sql]
            by_check = finished(cell.state)
            arrays.stopped[row, node] = by_check
            ends = {"oracle": right[sql], "workflow": by_check, "either": right[sql] and by_check}
            if self.only_reached is not None and ends[self.only_reached]:
                skip_until = end

    def invoke(self, request: Request, stage: str, prefix: tuple[str, ...], before: State) -> _Cell:
        """Run one invocation on the state before it, and the tool after it."""
        clock, usages = VirtualClock(), list[Usage]()
        model = self.catalog[prefix[-1]]
        call = CallContext(stage=stage, prefix=prefix, clock=clock, on_usage=usages.append, request=request)
        fn = self.stages.generate if stage == "generate" else self.stages.repair
        cell = _Cell(before)
        try:
            update = fn(before, _Direct(self.backends[model.provider].chat_model(model, call)))
            executed = shown(self.databases.recall(before["db_id"], update["sql"]))
            cell.state = cast("State", {**before, **update, **executed})
        except CallError:
            cell.has_failed = True
        cell.cost_usd = sum(usage.cost_usd for usage in usages)
        cell.latency_s = clock.now()
        return cell

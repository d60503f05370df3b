"""Batch APIs: which models support them, and the worker whose jobs send their calls in batches."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vinelm.adapters.langgraph import build_graph
from vinelm.adapters.langgraph.exits import resolved
from vinelm.backends.remote.backend import BATCHES_KEY, RemoteBackend
from vinelm.backends.remote.batches import BatchesLeft, BatchGate, BatchTimes
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, VineLMError
from vinelm.judging import LLMJudge
from vinelm.profiler.execution.job import Job, TopUp, UnitOutcome, Worker
from vinelm.profiler.execution.unit_adapter import UnitAdapter
from vinelm.requests.protocols import Backend
from vinelm.requests.workflow import Workflow
from vinelm.traces.store.batches import BatchRecords

PART = 0.5
"""Price of a call in a batch as a part of its ordinary price."""
TIMED_PATHS = 5
_HAVE_BATCHES = ("openai", "anthropic", "gemini")
CODE = "batch-prices"
"""Error code for what runs in batches refuse."""


@dataclass(frozen=True, kw_only=True)
class BatchPrices:
    """Settings for calls through the providers' batch APIs, which cost half and answer within a day.

    Attributes:
        times: the waiting times for batches.
        timed_paths: for each stage and model, the number of paths whose calls are made directly, at the ordinary price. Only
            the results of these calls have latencies. With 0, neither results nor estimates have latencies.

    Raises:
        ConfigError: a value is out of range.
    """

    times: BatchTimes = field(default_factory=BatchTimes)
    timed_paths: int = TIMED_PATHS

    def __post_init__(self) -> None:
        if not 0.0 < self.times.wait_s <= 7 * 86_400.0:
            raise ConfigError(f"the wait for a batch is {self.times.wait_s:g} s: give more than 0 and at most 7 days")
        if self.timed_paths < 0:
            raise ConfigError(f"timed_paths is {self.timed_paths}: it must be >= 0")


def batched_models(workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend]) -> tuple[str, ...]:
    """Return the models of a workflow that can be called through batch APIs. Runs no node.

    Raises:
        ConfigError: a model does not exist or runs on a self-hosted engine, or the workflow has a judge. Or the graph limits
            the time of a node, which would expire while the node's calls wait for a batch.
    """
    workflow = resolved(workflow, UnitAdapter(catalog, backends, template=None))
    template = workflow.template.bind(tuple(catalog))
    found = with_batches(template.models, catalog, backends)
    if isinstance(workflow.score, LLMJudge):
        raise ConfigError(
            "a judge is asked at once, and not in batches: profile without the judge, or without batches", code=CODE
        )
    graph = build_graph(workflow, UnitAdapter(catalog, backends, template=template))
    limited = [node for node, spec in getattr(graph, "nodes", {}).items() if getattr(spec, "timeout", None) is not None]
    if limited or getattr(graph, "step_timeout", None) is not None:
        where = f"node {limited[0]!r} has a timeout" if limited else "the graph has a step_timeout"
        raise ConfigError(f"workflow {workflow.name!r}: {where}, and a call in a batch takes hours: take it out", code=CODE)
    return found


def with_batches(models: Collection[str], catalog: Catalog, backends: Mapping[str, Backend]) -> tuple[str, ...]:
    """Return which of the models can be called in batches, at least one.

    Raises:
        ConfigError: a model does not exist or runs on a self-hosted engine, or no model supports batches.
    """
    found = having_batches(models, catalog, backends)
    for model in (catalog[name] for name in models if name not in found):
        name = model.name
        if model.provider in _HAVE_BATCHES:
            raise ConfigError(
                f"model {name!r} runs on an engine of your own ({model.api_base or 'replicas'}), which has no batch prices: "
                f"leave it out, or set {BATCHES_KEY} = true in [backend.{model.provider}] if that server has the provider's",
                code=CODE,
            )
        if model.provider == "sglang":
            raise ConfigError(
                f"model {name!r} runs on an engine of your own, which has no batch prices: leave it out", code=CODE
            )
    if not found:
        raise ConfigError(
            f"no model has batch prices: the providers {', '.join(_HAVE_BATCHES)} have them: add models of theirs", code=CODE
        )
    return found


def having_batches(models: Collection[str], catalog: Catalog, backends: Mapping[str, Backend]) -> tuple[str, ...]:
    """Return the models that can be called in batches, possibly none."""
    by_name = ((name, backends.get(catalog[name].provider)) for name in models)
    return tuple(name for name, one in by_name if isinstance(one, RemoteBackend) and one.has_batches(catalog[name]))


def gate_of(models: tuple[str, ...], catalog: Catalog, backends: Mapping[str, Backend], prices: BatchPrices) -> BatchGate:
    """Return the gate that collects these models' calls into batches. It submits nothing before :meth:`BatchGate.start`."""
    known: dict[str, Any] = {name: backends[catalog[name].provider] for name in models}
    return BatchGate({name: (catalog[name], backend.batch_api) for name, backend in known.items()}, prices.times)


def through(gate: BatchGate, backends: Mapping[str, Backend]) -> dict[str, Backend]:
    """Return the backends by name, with each remote backend changed to use ``gate``, which collects calls into batches.

    Only jobs whose calls go through batch APIs use the gate.
    """
    return {name: one.through(gate) if isinstance(one, RemoteBackend) else one for name, one in backends.items()}


class BatchApiWorker:
    """A worker that runs jobs on threads and collects their model calls into common batches.

    Args:
        worker: runs the jobs, on threads of this process.
        gate: collects their calls.
        records: the batches recorded in the store.
    """

    def __init__(self, worker: Worker, gate: BatchGate, records: BatchRecords) -> None:
        self._worker, self._gate, self._records = worker, gate, records

    def run(self, job: Job, top_up: TopUp) -> UnitOutcome:
        """Run one job to its end and return its outcome. ``top_up`` raises the job's reservation.

        An earlier process may have bought model calls for the same job. If the job does not repeat such a call, the call is
        booked at its maximum cost.

        Raises:
            VineLMError: the run has stopped waiting for its batches.
        """
        with self._gate.unit(job.cell, is_batched=job.is_batched) as unit:

            def waiting(upper_usd: float) -> bool:
                with self._gate.idle(unit):
                    return top_up(upper_usd)

            try:
                outcome = self._worker.run(job, waiting)
            except BatchesLeft as left:
                raise VineLMError(str(left), code="batches-left") from None
        unused_usd = self._records.upper_usd(job.cell, frozenset(unit.asked)) if job.is_batched else 0.0
        return replace(outcome, paid_usd=outcome.settled_usd + unused_usd) if unused_usd else outcome

    def close(self) -> None:
        """End the jobs that are waiting for a batch, and stop all other jobs."""
        self._gate.end()
        self._worker.close()

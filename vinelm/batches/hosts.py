"""The requests of a batch on the nodes of a Ray cluster: each has the application over the same trie.

The store, the ledger, the plans and the order stay in the process of the batch. A node is given a request with its plan, asks
before a call that may cost more than is reserved for it, and sends the answer back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any

from vinelm.backends import create_backends
from vinelm.backends.registry import rate_limiters_of
from vinelm.batches.plan_shares import PLANNERS, Drawn, priced
from vinelm.batches.run import Served
from vinelm.catalog import Catalog
from vinelm.catalog.environment import take_variables
from vinelm.datasets import Columns
from vinelm.errors import DatasetError, WorkflowError
from vinelm.objective import Objective
from vinelm.profiler import RayCluster
from vinelm.profiler.cluster.messages import RequestJob, RequestOutcome
from vinelm.profiler.cluster.starting import cluster_worker
from vinelm.profiler.cluster.worker import ClusterWorker
from vinelm.profiler.execution.fingerprint import fingerprint
from vinelm.profiler.execution.job import TopUp, UnitBudget
from vinelm.requests.protocols import CallGuard, RateLimiter
from vinelm.requests.workflow import Request
from vinelm.running.hosted import executed_on
from vinelm.traces.served.answers import Answer
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.vinefile import load_trie, save_trie
from vinelm.workflows import load_workflow


@dataclass(frozen=True)
class _Plan:
    """What a node needs of a :class:`~vinelm.batches.plan_shares.Drawn`, and the key of the request."""

    key: str
    objective: Objective
    weights: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class NodeWorkerMaker:
    """Makes the worker of a node, in the batch's folder; it holds no key.

    Args:
        workflow: The workflow's name, as :func:`~vinelm.load_workflow` reads it.
        dataset: The path of the requests; None takes the workflow's own.
        columns: Of the data set.
        digest: Of the data set.
        parts: Digests of the workflow's parts.
        trie: The file of the trie.
        catalog: The models, as plain JSON.
        folder: Of the catalog's file, whose ``.env`` names keys; None where there is none.
        seed: Decides the answers of simulated models.
    """

    workflow: str
    dataset: str | Path | None
    columns: Columns | None
    digest: str
    parts: Mapping[str, str]
    trie: bytes
    catalog: Mapping[str, Any]
    folder: Path | None
    seed: int

    def __call__(self, rate_limiters: Mapping[str, RateLimiter]) -> NodeWorker:
        """Return the worker.

        Raises:
            WorkflowError: The workflow does not load there, or is another one.
            DatasetError: The data set is another one.
            ConfigError: A key is missing there.
        """
        take_variables(self.folder, json.dumps(self.catalog))
        workflow = load_workflow(self.workflow, dataset=self.dataset, columns=self.columns, labelled=False)
        if workflow.dataset_digest != self.digest:
            raise DatasetError("the data set is another one there: use the same one everywhere", code="dataset-differs")
        with NamedTemporaryFile(suffix=".vine") as file:
            file.write(self.trie)
            file.flush()
            annotated = load_trie(file.name)
        workflow, catalog = replace(workflow, template=annotated.template.base), Catalog.from_dict(self.catalog)
        served = Served.of(workflow, annotated, catalog, create_backends(catalog, workflow=workflow, seed=self.seed))
        parts = _parts(served)
        changed = sorted(name for name in {*parts, *self.parts} if parts.get(name) != self.parts.get(name))
        if changed:
            raise WorkflowError(
                f"the workflow is another one there ({', '.join(changed)}): use the same one everywhere",
                code="workflow-differs",
            )
        served.vine.models.rate_limiters = rate_limiters
        return NodeWorker(served)


class NodeWorker:
    """Serves requests on a node, each on the thread that asks for it."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._requests = {request.id: request for request in served.workflow.requests}
        self._guards: dict[str, CallGuard] = {}
        planner = served.vine.served_planner()
        self._planner = lru_cache(PLANNERS)(lambda weights: priced(planner, weights))
        served.guard_calls(self._guards)

    def run(self, job: RequestJob, top_up: TopUp) -> RequestOutcome:
        """Serve a request under its plan; every call that may cost more than is reserved is asked of ``top_up``."""
        request, plan, budget = self._requests[job.request_id], job.plan, UnitBudget(job.upper_usd, top_up)
        drawn = Drawn(self._planner(plan.weights), plan.objective, 0.0, 0.0, 0.0)  # the batch has the figures
        self._guards[request.id] = budget
        try:
            answer = self._served.answer(plan.key, request, drawn)
        finally:
            del self._guards[request.id]
            budget.close()  # a thread that it has left behind makes no call any more
        return RequestOutcome(answer, budget.spent_usd + budget.reserved_usd)

    def close(self) -> None:
        """What still runs ends with the process."""


class HostedRequests(Served):
    """The application of a batch on the nodes of a cluster."""

    def __init__(self, served: Served, worker: ClusterWorker) -> None:
        super().__init__(served.workflow, served.vine, served.app)
        self._worker = worker
        self._guards: Mapping[str, CallGuard] = {}

    def guard_calls(self, guards: Mapping[str, CallGuard]) -> None:
        """See :meth:`Served.guard_calls`."""
        self._guards = guards

    def answer(self, key: str, request: Request, drawn: Drawn) -> Answer:
        """See :meth:`Served.answer`.

        Raises:
            WorkerDied: No node is left, or each that was asked has died.
        """
        job = RequestJob(request.id, _Plan(key, drawn.objective, drawn.weights))
        answer: Answer = executed_on(self._worker, job, self._guards[request.id])
        return answer


@contextmanager
def on_nodes(
    served: Served, annotated: AnnotatedTrie, cluster: RayCluster, on_note: Callable[[str], None] | None, **source: Any
) -> Iterator[Served]:
    """Have the nodes of a cluster serve the requests of an application while the block runs.

    Args:
        served: The application in this process, which keeps the rate limits of all nodes.
        annotated: Its trie.
        cluster: The cluster.
        on_note: Called with one line when a node is lost, or a later one cannot be used; from any thread.
        source: From what a node makes the same application, as :class:`NodeWorkerMaker` names it.

    Raises:
        MissingExtra: Ray is not installed.
        InputError: The cluster or one of its nodes cannot be used; the message names it.
    """
    catalog = served.vine.catalog
    with TemporaryDirectory() as folder:
        save_trie(path := Path(folder) / "t.vine", annotated)
        trie = path.read_bytes()
    maker = NodeWorkerMaker(
        digest=served.workflow.dataset_digest, parts=_parts(served), trie=trie, catalog=catalog.to_dict(), **source
    )
    limiters = rate_limiters_of(catalog, served.vine.models.backends)
    worker = cluster_worker(cluster, maker, catalog.models, limiters, on_note, verb="batch", unit="request")
    try:
        yield HostedRequests(served, worker)
    finally:
        worker.close()


def _parts(served: Served) -> dict[str, str]:
    return fingerprint(served.workflow, served.vine.catalog, served.vine.models.backends)

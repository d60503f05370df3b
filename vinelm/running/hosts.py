"""Serves requests on the nodes of a Ray cluster, each of which has the application with the same trie.

The store, the ledger, the plans and the order of the requests stay in the process that started the run. A node gets a request
with its plan, asks for permission before a call that may cost more than reserved, and sends back the result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any, Protocol

from vinelm.api import VineLM
from vinelm.backends import create_backends
from vinelm.backends.registry import rate_limiters_of
from vinelm.catalog import Catalog
from vinelm.catalog.environment import take_variables
from vinelm.datasets import Columns
from vinelm.errors import ConfigError, DatasetError, WorkflowError
from vinelm.profiler import RayCluster
from vinelm.profiler.cluster.messages import RequestJob, RequestOutcome
from vinelm.profiler.cluster.starting import cluster_worker
from vinelm.profiler.cluster.worker import ClusterWorker
from vinelm.profiler.execution.fingerprint import fingerprint
from vinelm.profiler.execution.job import TopUp, UnitBudget
from vinelm.requests.protocols import Backend, CallGuard, RateLimiter
from vinelm.requests.workflow import Request, Workflow
from vinelm.running.hosted import executed_on
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.vinefile import load_trie, save_trie
from vinelm.workflows import load_workflow


class Server(Protocol):
    """Serves whole requests on the calling thread, by the application in this process or the nodes of a cluster."""

    def serve(self, request: Request, plan: Any, guard: CallGuard) -> Any:
        """Serve a request under a plan and return the result; ``guard`` authorizes every call.

        The types of plan and result depend on the command; both can be pickled.
        """
        ...


class ServingApplication(Server, Protocol):
    """The interface of the application that serves a command's requests in one process."""

    @property
    def workflow(self) -> Workflow:
        """The workflow that the requests belong to."""
        ...

    @property
    def vines(self) -> tuple[VineLM, ...]:
        """The ``VineLM`` objects that create the policies for the requests; all have the same models."""
        ...


@dataclass(frozen=True, kw_only=True)
class NodeWorkerMaker:
    """Creates, on a node of the cluster, the object that serves requests there (the worker). It is sent to the nodes, so it
    holds no API key.

    Args:
        make: Makes the application from a workflow, a trie, models and backends, in the same way as in this process.
        labelled: Whether every request needs a label.
        workflow: The workflow's name, as :func:`~vinelm.load_workflow` reads it.
        dataset: The path of the requests; None takes the requests of the workflow.
        columns: Columns of the data set.
        digest: Digest of the application's data set.
        parts: Digests of the workflow's parts (such as its template), keyed by the part's name, to detect a node with
            another version.
        trie: The file of the trie.
        catalog: The models, as plain JSON.
        folder: The folder of the catalog's file, whose ``.env`` holds API keys; None if the catalog is not from a file.
        seed: Decides the answers of simulated models.
    """

    make: Callable[[Workflow, AnnotatedTrie, Catalog, Mapping[str, Backend]], ServingApplication]
    labelled: bool
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
        """Return the node's worker, whose calls keep within the rate limits of each model.

        Raises:
            WorkflowError: The workflow does not load on the node, or differs from the workflow in this process.
            DatasetError: The data set on the node differs from the data set in this process.
            ConfigError: A key is missing on the node.
        """
        take_variables(self.folder, json.dumps(self.catalog))
        workflow = load_workflow(self.workflow, dataset=self.dataset, columns=self.columns, labelled=self.labelled)
        with NamedTemporaryFile(suffix=".vine") as file:
            file.write(self.trie)
            file.flush()
            annotated = load_trie(file.name)
        workflow, catalog = replace(workflow, template=annotated.template.base), Catalog.from_dict(self.catalog)
        app = self.make(workflow, annotated, catalog, create_backends(catalog, workflow=workflow, seed=self.seed))
        if app.workflow.dataset_digest != self.digest:  # compare the requests that it serves: a verb may leave some out
            raise DatasetError("the data set is another one there: use the same one everywhere", code="dataset-differs")
        parts = _parts(app)
        changed = sorted(name for name in {*parts, *self.parts} if parts.get(name) != self.parts.get(name))
        if changed:
            raise WorkflowError(
                f"the workflow is another one there ({', '.join(changed)}): use the same one everywhere",
                code="workflow-differs",
            )
        for vine in app.vines:
            vine.models.rate_limiters = rate_limiters
        return NodeWorker(app)


class NodeWorker:
    """Serves requests on a node, each on the calling thread."""

    def __init__(self, app: ServingApplication) -> None:
        self._app = app
        self._requests = {request.id: request for request in app.workflow.requests}

    def run(self, job: RequestJob, top_up: TopUp) -> RequestOutcome:
        """Serve a request under its plan, and return its result with its cost. Before a call that may cost more than
        reserved, ``top_up`` is called for permission.
        """
        budget = UnitBudget(job.upper_usd, top_up)
        try:
            served = self._app.serve(self._requests[job.request_id], job.plan, budget)
        finally:
            budget.close()  # a thread that was left behind makes no more calls
        return RequestOutcome(served, budget.spent_usd + budget.reserved_usd)

    def close(self) -> None:
        """Do nothing: running calls end with the process."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of a cluster, which serve requests instead of the application in this process."""

    worker: ClusterWorker

    def serve(self, request: Request, plan: Any, guard: CallGuard) -> Any:
        """Serve a request under a plan and return the result, as described at :meth:`Server.serve`.

        Raises:
            WorkerDied: No node is left, or each node that was tried has died.
        """
        return executed_on(self.worker, RequestJob(request.id, plan), guard)


@contextmanager
def serving(
    app: ServingApplication,
    annotated: AnnotatedTrie,
    cluster: RayCluster | None,
    on_note: Callable[[str], None] | None,
    *,
    verb: str,
    models: Any,
    **source: Any,
) -> Iterator[Server]:
    """Yield, for a ``with`` block, the object that serves requests: the application in this process, or the nodes of a
    cluster.

    Args:
        app: The application in this process; the rate limits of its models hold for all nodes together.
        annotated: The application's trie.
        cluster: The cluster; None for this process.
        on_note: Called with one line when a node is lost, or a new node cannot be used; from any thread.
        verb: The name of the command, for messages.
        models: The catalog as the user gave it: if it is a path, ``.env`` is next to it.
        source: The arguments of :class:`NodeWorkerMaker` from which a node makes the same application.

    Raises:
        MissingExtra: Ray is not installed.
        InputError: The cluster or one of its nodes cannot be used; the message names it.
    """
    if cluster is None:
        yield app
        return
    if isinstance(source["workflow"], Workflow):
        raise ConfigError("other machines cannot load a Workflow object: name it as module:attribute")
    catalog, resolver = app.vines[0].catalog, app.vines[0].models
    with TemporaryDirectory() as folder:
        save_trie(path := Path(folder) / "t.vine", annotated)
        trie = path.read_bytes()
    maker = NodeWorkerMaker(
        digest=app.workflow.dataset_digest, parts=_parts(app), trie=trie, catalog=catalog.to_dict(),
        folder=Path(models).parent if isinstance(models, str | Path) else None, **source,
    )  # fmt: skip
    limiters = rate_limiters_of(catalog, resolver.backends)
    worker = cluster_worker(cluster, maker, catalog.models, limiters, on_note, verb=verb, unit="request")
    try:
        yield Nodes(worker)
    finally:
        worker.close()


def _parts(app: ServingApplication) -> dict[str, str]:
    vine = app.vines[0]
    return fingerprint(app.workflow, vine.catalog, vine.models.backends)

"""Verifies a plan: serves labelled requests that were not used for the estimate, and compares the results with the
predictions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from vinelm.adapters.langgraph import build_graph
from vinelm.api import VineLM
from vinelm.api.estimation import require_same_workflow
from vinelm.api.planning import require_signals
from vinelm.api.profiling import require_budget
from vinelm.backends import create_backends
from vinelm.catalog import Catalog
from vinelm.controller import Decision
from vinelm.datasets import Columns
from vinelm.errors import ConfigError
from vinelm.judging.labelled import scored_by_labels
from vinelm.money.guard_pair import GuardPair
from vinelm.money.spend_guard import SpendGuard
from vinelm.objective import Objective
from vinelm.policies import Policy, StaticPolicy
from vinelm.profiler import RayCluster
from vinelm.requests.protocols import Backend, CallGuard
from vinelm.requests.workflow import Request, Workflow
from vinelm.running.hosts import Server, ServingApplication, serving
from vinelm.running.serving import Purses, judge_of, serve
from vinelm.running.serving_record import ServingTask, digest_of_plans, serving_record
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.traces.served.served_requests import ServedRequest
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.verdicts.verification_result import Verification
from vinelm.vinefile import load_trie
from vinelm.workflows import WORKFLOWS, load_workflow

App = TypeVar("App", bound=ServingApplication)

DEFAULT_REQUESTS = 100
PLAN = "plan"
"""Name of the policy that a verification serves."""


def verify(
    store: str | Path,
    trie: AnnotatedTrie | str | Path,
    objective: Objective,
    *,
    workflow: Workflow | str | None = None,
    dataset: str | Path | None = None,
    columns: Columns | Iterable[str] | None = None,
    models: Catalog | str | Path | None = None,
    requests: int | None = None,
    budget_usd: float | None = None,
    seed: int = 0,
    signals: bool = False,
    log: str | Path | None = None,
    workers: int = 4,
    engine: str = "this-machine",
    ship: bool = False,
    dry_run: bool = False,
    on_done: Callable[[int, int], None] = lambda done, total: None,
    on_note: Callable[[str], None] | None = None,
) -> Verification:
    """Serve requests that were not used for the estimate under the plan for an objective, and check the plan's predictions.

    Calls the models, which costs money unless they are simulated. The maximum cost of every call is reserved before the
    call, so that ``budget_usd`` is exceeded only if a call costs more than its computed maximum. With ``log``, every served
    request is stored when it has ended. The same call then continues an interrupted one, and the budget includes both.

    Args:
        store: The path of the store that the trie was estimated from: requests with a result in it are not served.
        trie: The annotated trie, or the path of its file.
        objective: The objective of the plan.
        workflow: The workflow: MODULE:ATTRIBUTE for one that is not bundled. In Python also a :class:`~vinelm.Workflow`.
            Its dataset may differ from the store's; requests are identified by their ids. If a judge model scores the
            workflow, only requests with a label are served, and scored by the label. None: the bundled one of the store.
        dataset: Requests: CSV, JSON lines, Parquet, a Hugging Face folder, or an export of LangSmith or Langfuse; a bundled
            workflow reads its own format. None: the workflow's.
        columns: Column of the dataset to use: input.KEY=COLUMN, label.KEY=COLUMN (the graph never sees labels) or id=COLUMN. A
            path such as outputs.answer leads into a column. Repeatable. In Python several such texts, or
            :class:`vinelm.datasets.Columns`. None: the format decides.
        models: Catalog of models with prices. In Python also a :class:`~vinelm.Catalog`. None: simulated models of the trie.
        requests: Number of requests to serve, drawn at random. None: 100, or as many as are left.
        budget_usd: The maximum cost in dollars, including interrupted runs. In Python required for models that cost money.
        seed: Seed of samples, splits and simulated answers.
        signals: Serve and test the plan over signals: what requests show without labels, such as the check's result or
            whether answers agree. In Python the workflow declares them. An earlier answer is returned if every end of the
            graph is ``vine.finish``. False serves the best path.
        log: Store for served requests, with which the same command continues; by default TRIE with .verify.db. In Python
            None stores nothing.
        workers: Maximum number of requests in progress.
        engine: Machines that do the work: this-machine, or the nodes of a Ray cluster: ray://HOST:PORT, ray://auto (the one
            that this machine belongs to) or ray://local (starts one for this run). In Python the workflow has to be named.
        ship: With ``engine=ray://...``: copy the current folder, without .env, to the nodes.
        dry_run: Print what would be served and the expected cost. Calls nothing.
        on_done: Called as ``on_done(done, total)`` with the number of served and of all requests.
        on_note: Called, from any thread, with a line of text if a node of the cluster is lost or cannot be used.

    Returns:
        The predictions, the results, and the verdict that ``vinelm plan`` gives on the plan. If the budget is used up
            early, ``is_complete`` is False.

    Raises:
        ConfigError: Store, trie and workflow do not belong together, or too few requests are left. Models cost money and no
            budget is given. A judge scores the workflow and no request has a label. The log belongs to another verification. Or
            ``signals`` is set and the trie, the workflow or the graph has no signals.
        InfeasibleError: No path meets the objective's limits.
        StoreError: The store cannot be read.

    Examples:
        >>> import vinelm
        >>> best = vinelm.Objective(maximize="accuracy")
        >>> found = vinelm.verify("my-app.db", "my-app.vine", best, workflow="my_app:workflow", requests=30)
        >>> len(found.rows), found.accuracy_promise
        (30, 'kept')
    """
    cluster = RayCluster.of(engine, ship=ship)
    asked = HeldOut.of(
        store, trie, workflow=workflow, dataset=dataset, columns=columns, models=models, requests=requests, seed=seed
    )
    make = partial(ServingRun.of, objective=objective, signals=signals)
    run = asked.made(make)

    def result(rows: Mapping[tuple[str, str], ServedRequest], spent_usd: float) -> Verification:
        found = (rows.get((PLAN, request.id)) for request in asked.requests)
        return Verification(
            decision=run.decision,
            requests=len(asked.requests),
            rows=tuple(row for row in found if row is not None),
            spent_usd=spent_usd,
            is_simulated=asked.is_simulated,
        )

    if dry_run:
        return result({}, 0.0)
    require_budget(asked.backends, budget_usd)
    with (
        # First, so that no machines of a cluster are started if the record is refused.
        serving_record(None if log is None else Path(log), asked.identity(objective, run.annotated), budget_usd) as record,
        asked.serving(run, make, "verify", cluster, on_note) as server,
    ):
        tasks = [ServingTask(PLAN, request.id, partial(server.serve, request, PLAN)) for request in asked.requests]
        record.serve_all(tasks, workers=workers, on_done=lambda done: on_done(done, len(tasks)))
        return result(record.served, record.spent_usd)


# -- preparing -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeldOut:
    """Requests that were not used for the estimate, with everything that is needed to serve them.

    Attributes:
        workflow: The workflow.
        annotated: The trie that was estimated from other requests.
        catalog: The models.
        backends: A backend for each provider.
        requests: The requests.
        source: The arguments with which :func:`~vinelm.running.hosts.serving` loads the same requests on another machine.
    """

    workflow: Workflow
    annotated: AnnotatedTrie
    catalog: Catalog
    backends: Mapping[str, Backend]
    requests: list[Request]
    source: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        store: str | Path,
        trie: AnnotatedTrie | str | Path,
        *,
        workflow: Workflow | str | None,
        dataset: str | Path | None,
        columns: Columns | Iterable[str] | None,
        models: Catalog | str | Path | None,
        requests: int | None,
        seed: int,
    ) -> HeldOut:
        """Load and return the requests; see :func:`verify` for the arguments and errors."""
        annotated = trie if isinstance(trie, AnnotatedTrie) else load_trie(trie)
        with ObservationStore.open(store) as opened:
            identity, seen = opened.identity, {row.request_id for row in opened.observations()}
        require_same_workflow(
            annotated, identity.workflow, identity.dataset_digest, str(trie) if isinstance(trie, str | Path) else ""
        )
        if workflow is None and identity.workflow not in WORKFLOWS:  # a store may be anybody's: it names no module to import
            raise ConfigError(
                f"the store's workflow {identity.workflow!r} is not a bundled one: give workflow", code="not-bundled"
            )
        if columns is not None and not isinstance(columns, Columns):
            columns = Columns.parse(columns)
        named = workflow or identity.workflow
        workflow = load_workflow(named, dataset=dataset, columns=columns)
        if workflow.name != identity.workflow:
            raise ConfigError(f"the workflow is {workflow.name!r}, the store's is {identity.workflow!r}: give a matching pair")
        catalog = annotated.catalog if models is None else Catalog.of(models)
        workflow = replace(workflow, template=annotated.template.base)
        chosen = held_out(scored_by_labels(workflow).requests, seen, requests, seed)
        backends = create_backends(catalog, workflow=scored_by_labels(workflow), seed=seed)
        source = {"workflow": named, "dataset": dataset, "columns": columns, "models": models, "seed": seed}
        return cls(workflow, annotated, catalog, backends, chosen, source)

    def made(self, make: Callable[..., App]) -> App:
        """Return the application that ``make`` builds from this workflow, its trie, its models and backends."""
        return make(self.workflow, self.annotated, self.catalog, self.backends)

    def serving(
        self,
        app: ServingApplication,
        make: Callable[..., ServingApplication],
        verb: str,
        cluster: RayCluster | None,
        on_note: Callable[[str], None] | None,
    ) -> AbstractContextManager[Server]:
        """Return a context manager that yields the object which serves requests: in this process, or on the nodes of a
        cluster.

        Args:
            app: The application for this process.
            make: Builds the application on a node; see :meth:`made`.
            verb: The name of the command, for messages.
            cluster: The cluster; None serves in this process.
            on_note: Called with one line about lost or unusable nodes.
        """
        return serving(app, self.annotated, cluster, on_note, verb=verb, make=make, labelled=True, **self.source)

    def identity(self, objective: Objective, plans: AnnotatedTrie, **policies: str) -> StoreIdentity:
        """Return the identity of a run's store: all inputs that affect the results, except the number of requests, which
        may be raised later.

        Args:
            objective: The objective of the plans.
            plans: The trie from which plans are made, with its trie of signals.
            **policies: Each served policy in words, by its name.
        """
        named = {f"policy {name}": words for name, words in policies.items()}
        return StoreIdentity(
            workflow=f"{self.workflow.name} (served)",  # so that no profile adds to its ledger
            template=plans.template.to_dict(),
            catalog=self.catalog.to_dict(),
            dataset_digest=self.workflow.dataset_digest,
            fingerprint={
                "trie": digest_of_plans(plans),
                "objective": json.dumps(objective.to_dict(), sort_keys=True),
                "seed": str(self.source["seed"]),
                **named,
            },
            is_simulated=self.is_simulated,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    @property
    def is_simulated(self) -> bool:
        """Whether some models are simulated."""
        return any(backend.is_simulated for backend in self.backends.values())


def held_out(requests: Sequence[Request], seen: set[str], count: int | None, seed: int) -> list[Request]:
    """Return ``count`` requests whose ids are not in ``seen``, drawn and ordered by their ids and the seed; None returns
    the default number.

    Raises:
        ConfigError: No request is left, or fewer than ``count``.
    """
    if count is not None and count < 1:
        raise ConfigError(f"requests is {count}: at least one must be served")
    left = sorted(
        (request for request in requests if request.id not in seen),
        key=lambda request: hashlib.sha256(f"{seed}:{request.id}".encode()).digest(),
    )
    if not left:
        raise ConfigError(
            f"every one of the {len(requests)} requests was used for the estimate: give a dataset with others",
            code="no-held-out-requests",
        )
    if count is not None and count > len(left):
        raise ConfigError(
            f"only {len(left)} of the {len(requests)} requests were not used for the estimate, {count} are wanted: ask for"
            " fewer, or give a larger dataset",
            code="few-held-out-requests",
        )
    return left[: DEFAULT_REQUESTS if count is None else count]


# -- serving ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ServingRun:
    """An application with a plan, ready to serve requests.

    Attributes:
        workflow: The workflow.
        annotated: The trie that the plan is made from.
        vine: The ``VineLM`` object of the application.
        app: The compiled graph.
        objective: The objective of the plan.
        decision: The plan for a new request, before its first step.
        purses: The object that finds the budget of each request.
    """

    workflow: Workflow
    annotated: AnnotatedTrie
    vine: VineLM
    app: Any
    objective: Objective
    decision: Decision
    purses: Purses

    @classmethod
    def of(
        cls,
        workflow: Workflow,
        annotated: AnnotatedTrie,
        catalog: Catalog,
        backends: Mapping[str, Backend],
        *,
        objective: Objective,
        signals: bool,
    ) -> ServingRun:
        """Build the application, make the plan, and return both; raises the errors of :func:`verify`."""
        annotated = replace(annotated, signals=require_signals(annotated) if signals else None)
        workflow = scored_by_labels(workflow)
        vine = VineLM(
            catalog,
            backends,
            trie=annotated,
            fallback=False,
            labelled=True,
            signals=workflow.signals,
            kind=workflow.kind,
            allow_unproven=True,  # it is served in order to be judged
        )
        app = build_graph(workflow, vine)
        planner = vine.served_planner()
        if signals and planner.annotated.policy == "paths":
            raise ConfigError(
                "the workflow cannot be served by what requests show: it declares no signal, agree or answer, or its graph has"
                " no vine.route to end at after some answer: verify without signals",
                code="signals-not-served",
            )
        decision = planner.mixed(replace(objective, on_infeasible="raise"))
        planned = planner.annotated if signals else annotated
        return cls(workflow, planned, vine, app, objective, decision, Purses(vine.adapter))

    @property
    def vines(self) -> tuple[VineLM, ...]:
        """The ``VineLM`` object that creates the policies, as a tuple."""
        return (self.vine,)

    def serve(self, request: Request, plan: str, guard: CallGuard) -> ServedRequest:
        """Serve one request with VineLM's plan.

        ``plan`` is the name of the policy, which is not needed here; ``guard`` authorizes the cost of each call.
        """
        judge = judge_of(self.workflow, request)
        policy = self.vine.session(self.objective, request=request, judge=judge, clock=self.vine.new_clock())
        return self.serve_under(policy, request, guard)

    def serve_along(self, policy: Callable[..., StaticPolicy], request: Request, guard: CallGuard) -> ServedRequest:
        """Serve one request with a fixed plan. ``policy`` creates the policy that follows the plan; see
        :meth:`.Plans.policy`.
        """
        judge = judge_of(self.workflow, request)
        return self.serve_under(policy(clock=self.vine.new_clock(), request=request, judge=judge), request, guard)

    def serve_under(self, policy: Policy, request: Request, guard: CallGuard) -> ServedRequest:
        """Serve one request under a policy, within the objective's maximum cost per request and the total budget."""
        objective = self.objective
        if objective.cost_budget == "per_request" and objective.max_cost_usd is not None:
            guard = GuardPair(SpendGuard(objective.max_cost_usd), guard)
        with self.purses.paying(policy, guard):
            return serve(self.workflow, self.vine, self.app, request, policy=policy, objective=objective)

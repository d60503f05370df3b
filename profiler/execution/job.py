"""The input of a job (the call, its budget, how another process builds the workflow), and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.judging import Judgement
from vinelm.money.spend_guard import SpendGuard, SpendPermit
from vinelm.requests.protocols import Backend
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template

TopUp = Callable[[float], bool]
"""Raises a job's reservation to the given dollars, and returns whether the budget allows it. May block."""


@dataclass(frozen=True, slots=True)
class Job:
    """The input of a job, which executes the last invocation of ``prefix`` for one request.

    An invocation is one execution of a stage on a model; it may make several model calls.

    Attributes:
        request: the request.
        prefix: the models of the invocations up to and including this one.
        parent: the checkpoint after ``prefix[:-1]``; None for the first invocation.
        upper_usd: the maximum cost reserved for the job, in dollars.
        n_again: the number of preceding invocations whose state is not stored. They are executed again first, from ``parent``,
            which is the checkpoint before them.
        is_scoring: if True, ``parent`` is the state after ``prefix``: the job scores this state and executes nothing.
        stages: the stage of each invocation of ``prefix``. The last one may be missing if the stage is known only when it runs.
            Empty if only the state is needed.
        passed: for each earlier invocation, whether its answer passed the workflow's own check although the request continued.
            Empty if no answer passed.
        judged: the judge's verdicts (True: right) on this request's answers so far, keyed by a digest of what the judge was
            asked. If None, the judge is not called, and answers that need a judge get no score.
        is_batched: whether its calls go through batch APIs, which all of its models must support.
        digest: the request's digest, with which another machine verifies the request that it reads; None on this machine.
        prompt_key: the key for hashing the job's prompts; if empty, prompts are not hashed.
    """

    request: Request
    prefix: tuple[str, ...]
    parent: bytes | None
    upper_usd: float
    n_again: int = 0
    is_scoring: bool = False
    stages: tuple[str, ...] = ()
    passed: tuple[bool, ...] = ()
    judged: Mapping[str, bool] | None = None
    is_batched: bool = False
    digest: str | None = None
    prompt_key: bytes = b""

    @property
    def cell(self) -> Cell:
        """The job's request id and models."""
        return self.request.id, self.prefix

    def stage(self, template: Template) -> str:
        """Return the stage of the job's invocation; if it is unknown before the run, the first possible stage."""
        return template.stages_at(len(self.prefix), self.stages)[0].name


class UnitBudget(SpendGuard):
    """The dollars and calls that a job may still spend. Thread-safe.

    Args:
        upper_usd: dollars that are already reserved for the job.
        top_up: called before a call that needs more than is reserved, with the dollars needed in total; returns whether they
            may be spent. If not, the call is not made, and :attr:`was_refused` is true even if the application catches the
            exception.
        on_settled: called with the cost of each call that has ended, in dollars.
        on_reserved: called with the maximum cost of the calls in flight, in dollars, at each change.
        before: called before each call; if it raises, the call is not made.
    """

    def __init__(
        self,
        upper_usd: float,
        top_up: TopUp,
        *,
        on_settled: Callable[[float], None] | None = None,
        on_reserved: Callable[[float], None] | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(upper_usd)
        self._before = before
        self.was_refused = False
        self._top_up = top_up
        self._on_settled = on_settled
        self._on_reserved = on_reserved

    def close(self) -> None:
        """Refuse all further calls, because the job was abandoned."""
        self.was_refused, self.limit_usd = True, 0.0

    def authorize(self, upper_usd: float) -> SpendPermit:
        """Call the callback ``before``, then reserve ``upper_usd`` dollars, the maximum cost of a call, and return its permit.

        Raises:
            CallRefused: the budget does not allow the call, so the call must not be made.
        """
        self._before()
        return super().authorize(upper_usd)

    def _raise_limit(self, needed_usd: float) -> bool:
        if self.was_refused or not self._top_up(needed_usd):
            self.was_refused = True
            return False
        self.limit_usd = needed_usd
        return True

    def _refusal(self, upper_usd: float, left_usd: float) -> str:
        return f"the next call may cost up to ${upper_usd:.6f}, more than is left of the budget"

    def _settled(self, cost_usd: float) -> None:
        if self._on_settled is not None:
            self._on_settled(cost_usd)

    def _reservation_changed(self) -> None:
        if self._on_reserved is not None:
            self._on_reserved(self.reserved_usd)


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """The outcome of a job.

    Attributes:
        observation: the result; None if the job was not finished because the budget did not allow a call.
        checkpoint: the state from which the next invocation resumes; None after a failure or after the last invocation.
        paid_usd: the cost to book in dollars, if it differs from the result's; otherwise None. It differs if the job is
            unfinished, or if the worker died during a call that may have been billed. It also differs if the answer was judged,
            since it includes the judge's cost.
        judgement: the judge's verdict on the answer; None without a judge.
        shapes: hashes of the prompts of the result's calls, packed (:mod:`vinelm.prompts.stored`); empty if unknown.
        shown: if the job scores a stored state, a line for a person; otherwise empty. The line has the request's labels, and
            says where the final state has the value of the first label. Never stored.
        answer_at: Python code that reads this value from the final state, known only in the process that scored it.
    """

    observation: Observation | None
    checkpoint: bytes | None = None
    paid_usd: float | None = None
    judgement: Judgement | None = None
    shapes: bytes = b""
    shown: str = ""
    answer_at: str = ""

    @property
    def settled_usd(self) -> float:
        """The cost to book in the ledger, in dollars."""
        if self.paid_usd is not None or self.observation is None:
            return self.paid_usd or 0.0
        return self.observation.cost_usd + self.observation.tool_cost_usd


@dataclass(frozen=True, slots=True)
class UnitFinished:
    """Reports that a job has ended. ``problem`` is the worker's exception if there is no outcome."""

    job: Job
    outcome: UnitOutcome | None
    problem: BaseException | None = None


class Worker(Protocol):
    """Runs jobs, in parallel if called from several threads."""

    def run(self, job: Job, top_up: TopUp) -> UnitOutcome:
        """Run one job to its end and return its outcome.

        Args:
            job: the job.
            top_up: requests a higher reservation before a call that may cost more than is reserved; may block.

        Raises:
            InputError: an error that would occur in every further job.
        """

    def close(self) -> None:
        """Stop every job that is still running. Idempotent."""


def run_job(worker: Worker, job: Job, top_up: TopUp) -> UnitFinished:
    """Run a job on this thread, and return a message with its outcome or the worker's exception.

    A ``KeyboardInterrupt`` is raised, not returned. ``top_up`` raises the job's reservation; see :meth:`Worker.run`.
    """
    try:
        return UnitFinished(job, worker.run(job, top_up))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return UnitFinished(job, None, error)


class LoadedWorkflow(Protocol):
    """The workflow, its models and their backends, as returned by the function that a :class:`WorkflowSource` names."""

    @property
    def workflow(self) -> Workflow:
        """The workflow, with all requests and a template bound to the models."""

    @property
    def catalog(self) -> Catalog:
        """The catalog of the models that the workflow may run."""

    @property
    def backends(self) -> Mapping[str, Backend]:
        """One backend for each provider of the catalog."""


@dataclass(frozen=True, kw_only=True)
class WorkflowSource:
    """Names a function that builds the workflow in any process, since code, graphs and clients are never sent between
    processes.

    Attributes:
        function: ``module:name``.
        arguments: its keyword arguments, plain JSON. The same arguments must give the same workflow everywhere.
    """

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> LoadedWorkflow:
        """Call the function and return its result. Runs the workflow's own code.

        Raises:
            ConfigError: ``function`` is not ``module:name``.
        """
        module_name, _, name = self.function.partition(":")
        if not name:
            raise ConfigError(f"the source {self.function!r} does not name a function: write module:name")
        loaded: LoadedWorkflow = getattr(import_module(module_name), name)(**self.arguments)
        return loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSetup:
    """The settings of the processes that execute the jobs of a workflow, here or on a cluster node.

    Attributes:
        source: how a process builds the workflow.
        fingerprint: the digests of the workflow's parts in the run's process; the new process must have the same.
        timeout_s: seconds that one job may run.
        memory_mb: MiB that one job may use beyond its imports; 0 for no limit.
        is_virtual_time: whether latencies are simulated; the latency of a killed job is then 0.
    """

    source: WorkflowSource
    template: Template
    fingerprint: Mapping[str, str]
    timeout_s: float
    memory_mb: int
    is_virtual_time: bool

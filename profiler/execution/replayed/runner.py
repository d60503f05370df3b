"""Runs jobs by replay: from the request's start, with recorded answers, up to the new invocation."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from vinelm.adapters.langgraph import build_graph
from vinelm.adapters.langgraph.exits import resolved, with_graph_exits
from vinelm.adapters.langgraph.runs.profiled import PROFILED, profiled_unit
from vinelm.catalog import Catalog
from vinelm.errors import InputError, WorkflowError, is_of_code
from vinelm.profiler.execution.answers import beside_label
from vinelm.profiler.execution.job import UnitBudget, UnitOutcome
from vinelm.profiler.execution.judging import make_judging
from vinelm.profiler.execution.outcome import arm_after, cut_off, failed_row, refuse_other, scored, with_shown
from vinelm.profiler.execution.replayed.application import Application, RepeatGuard
from vinelm.profiler.execution.replayed.model import UnitCalls
from vinelm.profiler.execution.replayed.policy import ReplayPolicy
from vinelm.profiler.execution.replayed.record import Record
from vinelm.profiler.execution.unit import NeedsReplayError, UnitRunner
from vinelm.profiler.execution.unit_adapter import UNIT_BUDGET, UNIT_CALLS, UnitAdapter
from vinelm.requests.protocols import Backend
from vinelm.requests.workflow import Request, Workflow


class ReplayRunner:
    """Runs jobs of a workflow that cannot resume from checkpoints.

    The interface is that of :class:`~vinelm.profiler.execution.unit.UnitRunner`. A record of the request's earlier answers is
    used instead of a checkpoint. If :attr:`can_go_on`, a request can continue after an answer that passed the workflow's own
    check. Calls the models, which spends money. May be shared by threads as far as the workflow's own code allows.

    Args:
        reason: why the workflow must be replayed.

    Raises:
        WorkflowError: the application cannot be replayed.
    """

    def __init__(self, workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend], reason: str = "") -> None:
        workflow = resolved(workflow, UnitAdapter(catalog, backends, template=None))
        self.workflow, self.catalog, self.backends, self.reason = workflow, catalog, backends, reason
        self.template = workflow.template.bind(tuple(catalog))
        self.template.rule.require_served(
            WorkflowError(
                f"workflow {workflow.name!r} is replayed ({reason}) and stops by the oracle: a replay ends where the "
                "application does, so use stop='workflow'"
            )
        )
        self.control = UnitAdapter(catalog, backends, template=self.template)
        app = build_graph(workflow, self.control)
        self.template = self.control.adapter.template = with_graph_exits(self.template, app)
        self._app = Application(app, workflow)
        self.signals = workflow.signals
        self.can_go_on = self.template.goes_on_past_ends and bool(self.control.ends)
        """True if a request can continue after an answer that passed the workflow's own check."""
        self.judging = make_judging(workflow, catalog, backends)
        self.last_error: BaseException | None = None

    @property
    def is_virtual_time(self) -> bool:
        """True if latencies are simulated."""
        return self.control.models.is_virtual_time

    def run(
        self,
        request: Request,
        prefix: tuple[str, ...],
        parent: bytes | None,
        budget: UnitBudget | None = None,
        stages: Sequence[str] = (),
        *,
        passed: Sequence[bool] = (),
    ) -> UnitOutcome:
        """Run the request from its start and buy the last invocation of ``prefix``.

        Args:
            request: the request.
            prefix: the models of the invocations up to and including this one.
            parent: the record of ``prefix[:-1]``; None for the first invocation.
            budget: authorizes each model call; None allows every call.
            stages: ignored, because the record contains the stages.
            passed: see :class:`~vinelm.profiler.execution.job.Job`.

        Returns:
            The result, and the record as the checkpoint. If the run deviates from its record, the result has the failure kind
            ``state`` and a text that says where. If the budget refused a call, there is no result.

        Raises:
            InputError: an error that would occur in every further job.
        """
        before = Record() if parent is None else Record.from_bytes(parent)
        policy = self._policy(prefix, request, before, passed)
        values, problem = self._run(policy, request, budget)
        self.last_error = problem
        if budget is not None and budget.was_refused:  # even if the application caught the exception
            return UnitOutcome(None, paid_usd=budget.spent_usd)
        if policy.drift is not None:
            return UnitOutcome(policy.observation("state", policy.drift))
        if problem is not None and policy.halted is None:  # else it follows from the end: a task group's own error
            return UnitOutcome(failed_row(policy, problem))
        if not policy.invocations:
            return self._not_run(policy)
        if policy.has_failed:
            last = policy.invocations[-1]
            return UnitOutcome(policy.observation(last.failure, last.detail))
        return self._finished(policy, request, values)

    def values_after(self, checkpoint: bytes | None) -> dict[str, Any]:
        """Return an empty state, because a record of answers contains no state."""
        return {}

    def score(
        self, request: Request, prefix: tuple[str, ...], state: bytes, budget: UnitBudget, passed: Sequence[bool] = ()
    ) -> UnitOutcome:
        """Score the request after the calls of ``prefix``: replay their record, ``state``, to its end without a new model call.

        Returns:
            A result with the success (or a failure and its text), and the signal and answer of the state. If the workflow
            declares ``signal="status"``, the signal is not computed.
        """
        before = Record.from_bytes(state)
        policy = self._policy(prefix, request, before, passed, buys=False)
        values, error = self._run(policy, request, budget)
        if policy.drift is not None:
            return UnitOutcome(policy.observation("state", policy.drift))
        if error is not None:
            return UnitOutcome(failed_row(policy, error))
        stage, seen = self.template.stage(policy.stage), None if policy.is_joint else values
        found = scored(self.workflow, request, seen, stage)
        row = with_shown(policy.observation(), self.signals, seen, stage, found.answer)
        is_scored = found.problem is None
        row = replace(row, success=found.success) if is_scored else replace(row, failure="tool", detail=found.problem)
        return UnitOutcome(row, **beside_label(self.workflow, request, values or {})._asdict())

    def _policy(
        self, prefix: tuple[str, ...], request: Request, before: Record, passed: Sequence[bool], *, buys: bool = True
    ) -> ReplayPolicy:
        clock, has_supersteps = self.control.models.new_clock(), self._app.has_supersteps
        return ReplayPolicy(
            self.template, prefix, clock, request, before, buys=buys, passed=passed, has_supersteps=has_supersteps
        )

    def _run(
        self, policy: ReplayPolicy, request: Request, budget: UnitBudget | None
    ) -> tuple[dict[str, Any] | None, BaseException | None]:
        """Run the application; return its final state, and the exception that ended it, if any."""
        context = replace(self.control.context(policy=policy, request=request), chat_host=policy)
        names = self.workflow.unrepeatable
        guards = [RepeatGuard(policy, names)] if names else []
        money, calls = UNIT_BUDGET.set(budget), UNIT_CALLS.set(UnitCalls(policy))
        values, problem = None, None
        try:
            with profiled_unit(), _same_draws(request):
                values = self._app.run(request, context, policy, guards)
        except InputError:
            # What the policy has noted says more about the workflow than this error, and is raised below.
            if policy.problem is None:
                raise
        except BaseException as error:
            if not is_of_code(error):
                raise
            problem = error
        finally:
            UNIT_CALLS.reset(calls)
            UNIT_BUDGET.reset(money)
        if policy.problem is not None:
            raise WorkflowError(f"workflow {self.workflow.name!r}, request {request.id!r}: {policy.problem}")
        return values, problem

    # -- the outcome ----------------------------------------------------------------------------------------------

    def _not_run(self, policy: ReplayPolicy) -> UnitOutcome:
        number = len(policy.prefix)
        if policy.before.invocations:
            policy.drifted(f"the request ended before invocation {number} ({policy.stage!r}), which its record has")
            return UnitOutcome(policy.observation("state", policy.drift))
        raise WorkflowError(
            f"workflow {self.workflow.name!r}: stage {policy.stage!r} did not run as invocation {number} of request "
            f"{policy.request_id!r}: does the application call it?"
        )

    def _finished(self, policy: ReplayPolicy, request: Request, values: dict[str, Any] | None) -> UnitOutcome:
        if policy.reached is None:
            policy.at_boundary()
        stages = (*policy.before.stages, policy.stage)
        reached = [] if policy.reached is None else [policy.reached]
        refuse_other(self.workflow, self.template, len(stages), reached, "application")
        arm, problem = arm_after(self.template, stages, reached)
        if problem is not None:
            return UnitOutcome(policy.observation("unexpected_arm", problem))
        stage, seen = self.template.stage(policy.stage), None if policy.is_joint else values
        found = scored(self.workflow, request, seen, stage)
        if found.problem is not None:
            return UnitOutcome(policy.observation("tool", found.problem))
        may_go_on = bool(self.template.arms_after(stages))  # at the template's end the route's own verdict counts
        stopped = policy.reached is None and (may_go_on or policy.verdicts.get(len(stages), True))
        cut = cut_off(self.template, stages, reached)
        row = policy.observation(detail=cut, success=found.success, stopped=stopped, arm=arm)
        row = with_shown(row, self.signals, seen, stage, found.answer)
        try:
            record = policy.record_after(row).to_bytes()
        except Exception as error:  # an answer may be of a type that cannot be serialized
            detail = f"an answer of the stage {policy.stage!r} cannot be recorded: {type(error).__name__}"
            return UnitOutcome(policy.observation("state", detail))
        return UnitOutcome(policy.joint_row(row), record)


@contextmanager
def _same_draws(request: Request) -> Iterator[None]:
    """Inside the block, let Python's ``random`` draw the same numbers in each run of a request.

    A replay thus repeats the recorded run. Does nothing if other runs are in progress in this process, because they would draw
    from the same generator.
    """
    if len(PROFILED) > 1:
        yield
        return
    before = random.getstate()
    random.seed(request.id)
    try:
        yield
    finally:
        random.setstate(before)


Units: TypeAlias = UnitRunner | ReplayRunner


def make_units(workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend]) -> Units:
    """Return the runner of a workflow's jobs. Builds the graph without running it.

    Raises:
        WorkflowError: the workflow cannot be profiled as it stands.
    """
    try:
        return UnitRunner(workflow, catalog, backends)
    except NeedsReplayError as needed:
        return ReplayRunner(workflow, catalog, backends, str(needed))

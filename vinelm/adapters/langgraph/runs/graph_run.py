"""One run of the graph: its policy, the current superstep's decision, and fallbacks if a part of VineLM fails."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Literal, NamedTuple, TypeVar
from weakref import WeakMethod, finalize

from vinelm.adapters.langgraph.accounts.request_account import RequestAccount
from vinelm.adapters.langgraph.accounts.thread_accounts import Beginning, ThreadAccounts
from vinelm.adapters.langgraph.path.inner_trails import InnerTrail
from vinelm.adapters.langgraph.path.outcomes import NO_OUTCOMES, RunOutcomes
from vinelm.adapters.langgraph.path.path_channel import PathValue, assigned_in, costs_of, kind_in, path_of, shown_of
from vinelm.adapters.langgraph.path.places import RunPlaces, Where
from vinelm.adapters.langgraph.runs.run_context import RunContext
from vinelm.adapters.tools.read_ahead import ReadAhead
from vinelm.clock import VirtualClock, steady
from vinelm.errors import InfeasibleError, VineLMError, WorkflowError
from vinelm.money.bound_guard import BoundGuard, with_account
from vinelm.policies.fixed import DefaultPolicy
from vinelm.policies.policy import Policy
from vinelm.requests.names import RunLabel, label_of, scoped
from vinelm.requests.protocols import CallGuard, Invocation
from vinelm.signals import Outcome, Signals
from vinelm.telemetry import DecisionEvent, ObserverGroup
from vinelm.telemetry.events import ObservedRequest
from vinelm.template.flow import Flow

NOBODY = ObserverGroup()
T = TypeVar("T")


def _weakly(known: WeakMethod[Callable[..., None]], *args: Any) -> None:
    """Call a bound method of a run, if the run still exists.

    A strong reference would form a cycle and delay the deletion of the run. Observers learn that a request has ended when its
    run is deleted.
    """
    found = known()
    if found is not None:
        found(*args)


@dataclass(slots=True)
class StageChoice:
    """The model chosen for one stage in a superstep, and the numbers of the stage's begun and failed invocations.

    ``path`` has the models of the request's path; the last one is the chosen model.
    """

    path: tuple[str, ...]
    begun: int = 0
    failed: int = 0
    default: str | None = None
    """The default model of the requesting object, if it has one."""

    @property
    def is_lost(self) -> bool:
        """Whether all begun invocations with the chosen model have failed, so that a retry may use another model."""
        return 0 < self.begun == self.failed


@dataclass(slots=True)
class Superstep:
    """The models chosen for the stages of one superstep, after the path ``prefix``. Only used while the run's lock is held.

    Attributes:
        key: LangGraph's number of the superstep.
        prefix, stages: models and stages of the path before the superstep.
        choices: the model chosen for each stage, in the order of the choices.
    """

    key: object
    prefix: tuple[str, ...]
    stages: tuple[str, ...]
    choices: dict[str, StageChoice] = field(default_factory=dict)

    def choose(self, stage: str, ahead: tuple[str, ...], ask: Callable[[str, tuple[str, ...]], str]) -> StageChoice:
        """Return the choice for ``stage``; also choose models for the stages ``ahead`` that have none.

        Args:
            stage: name of the stage.
            ahead: the stages of the superstep that are chosen before ``stage``.
            ask: returns a model, given a stage and the models before it. Called for stages without a choice, and again for
                ``stage`` if all invocations with its choice have failed.
        """
        prefix = self.prefix
        for name in ahead:
            found = self.choices.get(name)
            if found is None:
                found = self.choices[name] = StageChoice((*prefix, ask(name, prefix)))
            prefix = (*prefix, found.path[-1])
        choice = self.choices.get(stage)
        if choice is None:
            choice = self.choices[stage] = StageChoice((*prefix, ask(stage, prefix)))
        elif choice.is_lost:
            choice.path = (*prefix, ask(stage, prefix))
        return choice

    def end(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the models and the stages of the whole path, from the request's first invocation to this superstep's stages.

        Stages of this superstep whose models are not chosen yet are left out.
        """
        placed = sorted((len(choice.path), stage, choice.path[-1]) for stage, choice in self.choices.items())
        return (*self.prefix, *(model for _, _, model in placed)), (*self.stages, *(stage for _, stage, _ in placed))

    def ahead_of(self, stage: str, flow: Flow | None) -> tuple[str, ...]:
        """Return the stages of this superstep whose models are chosen before that of ``stage``.

        Raises:
            WorkflowError: another stage runs in this superstep, and the template does not declare the two as parallel.
        """
        others = [name for name in self.choices if name != stage]
        before = None if flow is None else self._in_flow(stage, flow)
        for other in others:
            if flow is None or not (other in (before or ()) or stage in (self._in_flow(other, flow) or ())):
                raise WorkflowError(
                    f"stages {other!r} and {stage!r} run in one superstep: VineLM chooses models along one path, so put an "
                    f"edge between them, or declare Parallel((Stage({other!r}), Stage({stage!r}))) in the template"
                )
        return before or ()

    def is_in(self, stage: str, flow: Flow) -> bool:
        """Return whether the template allows the stage in this superstep."""
        return self._in_flow(stage, flow) is not None

    def _in_flow(self, stage: str, flow: Flow) -> tuple[str, ...] | None:
        """Return the stages of this superstep whose models are chosen before that of ``stage``.

        The result is None if the template does not allow ``stage`` in this superstep.
        """
        try:
            return flow.ahead_of(flow.at(self.stages), stage)
        except KeyError:  # behind a branch that the template lacks
            return None


class GraphRun:
    """One run of the graph: its policy, and the decision of the current superstep. Thread-safe.

    It also handles the policy's errors. With ``on_error="default"``, after an exception the stage runs its default model, a
    loop's edge follows the workflow's own verdict, and the policy's trace records the failure. The policy's guard is wrapped in
    a :class:`~vinelm.money.bound_guard.BoundGuard`, so that a cap still holds. An :class:`~vinelm.errors.InfeasibleError` is a
    valid result of planning and is always raised.

    Attributes:
        control: LangGraph's object for the run, by whose ``id()`` the run is found; kept, so that this id is not reused.
        policy: chooses the run's models.
        context: the settings from the run's caller.
        path: models of the run's invocations, up to the invocation that began last; None before the first.
        stages: the stages of ``path``.
        places: the positions of the run's invocations in its path, if the run keeps its path in memory. This begins with the
            first invocation inside a subgraph or outside of a graph, or at once if the policy replays a recorded run. Else
            None.
        flow: the automaton that tells which stages may come next; None if the template is unknown, or if the number of
            invocations so far determines the next stage.
        on_error: what to do if the policy itself fails.
        clock: the policy's clock; under ``on_error="default"`` a wrapper that does not fail.
        guard: the policy's guard; under ``on_error="default"`` a wrapper that does not fail. Combined with the account that the
            request shares with other requests, if any; see :func:`~vinelm.money.bound_guard.with_account`.
        falls_back: whether another model may answer after a failed call.
        is_rooted: whether the run can be found by the channels of its root graph. If so, ``control`` does not identify it any
            more: a later ``invoke`` with the same ``control`` gets a new run.
        request_account: sums the payments of the request over all its runs; None without a cap per request or a checkpointer.
        outcomes: the outcomes (signals and answers) of the run's invocations; empty if the workflow declares no signals.
        trail: the run's invocations inside subgraphs, recorded for a later run that resumes this one; None if they are not
            recorded.
        reads: the results of read-only tools that were called before the application asked; None without declared tools, and
            during profiling.

    Args:
        control, policy, context: see the attributes.
        observers: notified of the run's decisions.
        default: returns a stage's default model; None if failures are raised.
        signals: the workflow's signals; None if it declares none.
        account_of: returns the account that the request shares with other requests, or None if there is none.
        conversation_id: the key of ``configurable``, or a function of it, that gives the run's conversation.
    """

    __slots__ = (
        "__weakref__", "_conversation_id", "_default", "_is_resumed", "_key", "_lock", "_named", "_observers", "_own_guard",
        "_seen", "_shared_account", "_stand_in", "_superstep", "_turns", "_unwritten_usd", "clock", "context", "control",
        "falls_back", "flow", "guard", "is_rooted", "on_error", "outcomes", "path", "places", "policy", "reads",
        "request_account", "stages", "trail",
    )  # fmt: skip

    def __init__(
        self,
        control: Any,
        policy: Policy,
        context: RunContext,
        observers: ObserverGroup = NOBODY,
        default: Callable[[str], str] | None = None,
        *,
        signals: Signals | None = None,
        account_of: Callable[[], CallGuard | None] | None = None,
        conversation_id: RunLabel = "thread_id",
    ) -> None:
        self._conversation_id = conversation_id
        self.control, self.policy, self.context = control, policy, context
        self.on_error = "raise" if default is None else policy.on_error
        self.falls_back = policy.falls_back
        self.clock = policy.clock
        self.guard: CallGuard | None = policy.guard
        if self.on_error == "default":
            if not isinstance(self.clock, VirtualClock):  # a virtual clock is plain data
                self.clock = steady(self.clock)
            if self.guard is not None and type(self.guard) is not BoundGuard:
                self.guard = BoundGuard(self.guard, getattr(self.guard, "limit_usd", None), self.note_failure)
        self._stand_in = self.guard if type(self.guard) is BoundGuard else None
        self._own_guard: CallGuard | None = self.guard
        self._shared_account: CallGuard | None = None
        self.request_account: RequestAccount | None = None
        self._default = default
        if account_of is not None:
            try:
                self._shared_account = account_of()
                self.guard = self._beside_shared(self.guard)
            except Exception as error:  # the fleet's Redis and its journal
                if default is None or isinstance(error, VineLMError):
                    raise
                self.note_failure("the account", error)  # a cap wins: where the account is not known, no call is authorized
                self.guard, self._own_guard = BoundGuard(None, None, self.note_failure), None
        self._named: tuple[str, ...] = ()
        self._key: str | None = None
        template = policy.template
        self.flow = None if template is None else template.places
        self.path: tuple[str, ...] | None = None
        self.stages: tuple[str, ...] = ()
        self._observers = observers
        self._seen: ObservedRequest | None = None
        self._lock = Lock()
        self._superstep: Superstep | None = None
        self.places = None if policy.locate is None else RunPlaces(self._model_of, policy.locate, policy.answers_at)
        self.is_rooted = self._is_resumed = False
        self.trail: InnerTrail | None = None
        self.reads: ReadAhead | None = None
        self._unwritten_usd = 0.0
        self._turns: dict[str, int] = {}
        tell = partial(_weakly, WeakMethod(self._observe)), partial(_weakly, WeakMethod(self._degrade))
        self.outcomes = RunOutcomes(signals, *tell, template) if signals else NO_OUTCOMES

    @property
    def key(self) -> str:
        """A unique name of the request, the same for all of its calls: its id if it has one, otherwise a random name."""
        if self._key is None:
            tenant = str((self.context.configurable or {}).get("tenant") or "")
            self._key = scoped(self.context.request_id or secrets.token_hex(8), tenant)
        return self._key

    @property
    def conversation(self) -> str:
        """The conversation's unique name; empty if the run has none."""
        found = label_of(self._conversation_id, self.context.configurable)
        return found and scoped(found, str((self.context.configurable or {}).get("tenant") or ""))

    def show_request(self) -> None:
        """Report this run to observers as one request, which ends when the run is freed."""
        if self._observers.observers:
            self._seen = ObservedRequest(self._observers.observers)
            finalize(self, self._seen.ended)

    def shown(self) -> AbstractContextManager[None]:
        """Return a context manager; inside its block, observers count each notification as part of this run."""
        return nullcontext() if self._seen is None else self._seen.current()

    @property
    def is_unplanned(self) -> bool:
        """Whether the run's stages use their default models and no template is known."""
        return isinstance(self.policy, DefaultPolicy) and self.policy.template is None

    @property
    def can_keep_account(self) -> bool:
        """Whether the request's payments should be stored with its checkpoints, but no account for them is set up yet."""
        return self._own_guard is not None and self.request_account is None and self.policy.keeps_account

    def keep_account(self, accounts: ThreadAccounts, begins: Callable[[], Beginning]) -> None:
        """Store the cost of every call in an account of ``accounts``, which is opened at the run's first invocation."""
        with self._lock:
            if self._own_guard is not None and self.request_account is None:
                paid, noted = partial(_weakly, WeakMethod(self._paid)), partial(_weakly, WeakMethod(self.note_failure))
                account = RequestAccount(self._own_guard, accounts, paid, noted, begins)
                self.guard = self._beside_shared(account)
                self.request_account = account

    async def open_account(self, begun: Beginning, *, is_async: bool) -> None:
        """Find the request's account and load its payments. If that fails, calls are refused until a retry succeeds."""
        assert self.request_account is not None
        with self.noting("the request's account"):
            await self.request_account.open(begun, is_async=is_async)

    def _beside_shared(self, guard: CallGuard | None) -> CallGuard | None:
        """Return a guard that allows a call only if ``guard`` and the account that several requests share both allow it.

        Without such an account, only ``guard`` counts.
        """
        return with_account(guard, self._shared_account, None if self._default is None else self.note_failure)

    def _paid(self, total_usd: float) -> None:
        """Report to the policy how much the request's earlier runs have paid."""
        self.policy.paid(total_usd)
        if self._stand_in is not None:
            self._stand_in.count_up_to(total_usd)

    def take_turn(self, again: str, allowed: int) -> bool:
        """Count a turn of the loop that continues at ``again``, and return True; return False if ``allowed`` turns have been
        taken.
        """
        with self._lock:
            taken = self._turns.get(again, 0)
            if taken >= allowed:
                return False
            self._turns[again] = taken + 1
            return True

    def end_loop(self, again: str) -> None:
        """Reset the number of turns of the loop that continues at ``again``.

        The run has left this loop and may enter it again.
        """
        with self._lock:
            self._turns.pop(again, None)

    def knows(self, prefix: tuple[str, ...]) -> bool:
        """Return whether ``prefix`` is the run's path, or its path at the beginning of the current superstep."""
        step = self._superstep
        return prefix == self.path or (step is not None and prefix == step.prefix)

    def decide(
        self, step: Any, stage: str, prefix: tuple[str, ...], stages: tuple[str, ...] = (), *, default: str | None = None
    ) -> tuple[str, ...]:
        """Choose the model for ``stage`` in superstep ``step``, and return the models of the path that ends with it.

        The policy is called once per superstep and stage, so that the branches of a fan-out share a model. It is called again
        when every invocation with that model has failed, so that a retry may use another model. Parallel stages are chosen in
        the order of the template, whichever begins first; the returned path includes the stages before this stage. ``default``:
        the default model of the calling object; without a plan, this model runs.

        Raises:
            WorkflowError: two stages run in one superstep that the template does not declare as parallel. If there is neither
                a plan nor a template, nothing is raised: the stages get positions in the order in which they begin.
        """
        with self._lock:
            # With the lock held while the policy plans: the branches of a fan-out ask at once, and share one model.
            current = self._superstep
            if current is None or step != current.key:
                current = self._superstep = Superstep(step, prefix, stages)
            if self.is_unplanned:  # no template says what may run in parallel: the application runs as it would without us
                ahead = tuple(name for name in current.choices if name != stage)
            else:
                ahead = current.ahead_of(stage, self.flow) if current.choices or self.flow is not None else ()
            if prefix != current.prefix:
                current = self._superstep = Superstep(step, prefix, stages)
            choice = current.choose(stage, ahead, self._model_of if self.flow is None else self._model_in_flow)
            if default is not None and isinstance(self.policy, DefaultPolicy):
                # Nothing is planned, so each of the application's models is used as it is, even if two run in one superstep.
                if choice.default not in (None, default):
                    choice = current.choices[stage] = StageChoice((*choice.path[:-1], default))
                choice.default = default
            choice.begun += 1
            if len(current.choices) == 1:
                self.path, self.stages = choice.path, (*current.stages, stage)
            else:
                self.path, self.stages = current.end()
            return choice.path

    def _model_in_flow(self, stage: str, prefix: tuple[str, ...]) -> str:
        """Return the policy's model after the path ``prefix``, and report to the policy if the template does not allow the
        stage here.
        """
        model, step = self._model_of(stage, prefix), self._superstep
        assert self.flow is not None
        if step is not None and not step.is_in(stage, self.flow):
            self.policy.note_unexpected(stage, prefix, model, step.stages)
        return model

    def record(self, invocation: Invocation) -> None:
        """Record an ended invocation: its result in the policy, its cost in the request's account."""
        path, stage = invocation.prefix, invocation.stage
        is_recorded = False
        with self.noting("record", path, stage, passes=(InfeasibleError,)):
            self.policy.record(invocation)
            is_recorded = True
        if not is_recorded:
            self.interrupted(path)  # whatever cannot be recorded is no longer in progress
        if self.trail is not None:
            self.trail.ended(invocation)
        if self.places is not None:
            with self._lock:
                if self.places.ended(invocation) and self.path == invocation.prefix:
                    self.path, self.stages = invocation.prefix[:-1], self.stages[:-1]
        if invocation.failure is not None:
            self.outcomes.tell_failed(invocation.prefix)
        else:
            self.outcomes.ran(invocation.prefix, invocation.stage)
        cost_usd = invocation.cost_usd
        if self.request_account is not None:
            self.request_account.recorded(cost_usd)
        if cost_usd or invocation.failure is not None:
            with self._lock:
                self._unwritten_usd += cost_usd
                step = self._superstep
                choice = None if step is None else step.choices.get(invocation.stage)
                if choice is not None and invocation.prefix == choice.path:
                    choice.failed += invocation.failure is not None

    def fall_back(self, failed: Invocation, tried: Collection[str]) -> tuple[str, ...] | None:
        """Record the failed attempt ``failed``, and return the models of the path that ends with the next attempt.

        The result is None if no attempt follows.

        Args:
            failed: the failed attempt, which is not recorded yet. If this method returns None, it records nothing.
            tried: the models that have failed in this invocation, including the model of ``failed``.
        """
        started = time.perf_counter()
        prefix = failed.prefix[:-1]
        model = self._guarded(
            "fallback_model", lambda: self.policy.fallback_model(failed, tried), None, prefix, stage=failed.stage
        )
        if model is None:
            return None
        self.record(failed)
        path = (*prefix, model)
        with self._lock:
            step = self._superstep
            choice = None if step is None else step.choices.get(failed.stage)
            if self.trail is not None:
                self.trail.moved(failed.prefix, path)
            if self.places is not None and self.places.moved(failed.prefix, path):
                self.path, self.stages = path, (*self.stages[: len(prefix)], failed.stage)
            elif step is not None and choice is not None and choice.is_lost:  # no other branch has an answer of that model
                choice.path, choice.begun, choice.failed = path, 1, 0
                self.path, self.stages = step.end()
        if self._observers.observers:
            self._announce("model", failed.stage, prefix, model, started=started)
        return path

    def resumed(self, value: PathValue) -> None:
        """Report to the policy the path that an earlier run of the request has executed, with its costs and outcomes.

        The path's stages are reported only if the run has a ``flow``, which tells the stages that may come next. Repeated
        calls report nothing.
        """
        with self._lock:
            if self._is_resumed:
                return
            # Before the policy is told, so that it is told only once even if that fails.
            self._is_resumed = True
        (prefix, stages), costs_usd = path_of(value), costs_of(value)
        if self._stand_in is not None:
            for usd in costs_usd:
                self._stand_in.add_inherited(usd)
        told = () if self.flow is None else stages
        self.policy.assigned = self.policy.assigned.going_on(assigned_in(value))
        if (kind := kind_in(value)) is not None and self.policy.kind not in (None, kind):  # inputs may have changed since
            self._guarded("begin", lambda: self.policy.begin(kind, "as the request began"), None, prefix)
        self._guarded("resumed", lambda: self.policy.resumed(prefix, costs_usd, told), None, prefix)
        for k, stage in enumerate(stages, start=1):
            self.outcomes.ran(prefix[:k], stage)
        self.outcomes.inherit(prefix, shown_of(value))

    def _observe(self, prefix: tuple[str, ...], outcome: Outcome) -> None:
        self._guarded("observed", lambda: self.policy.observed(prefix, outcome), None, prefix)

    def returned(self, prefix: tuple[str, ...]) -> int | None:
        """Return the number of the answer class that the policy returns after the path ``prefix``; None for the last answer.

        An answer class is a group of equal answers.
        """
        return self._guarded("returned", lambda: self.policy.returned(prefix), None, prefix)

    def note_returned(self, prefix: tuple[str, ...], note: str) -> None:
        """Record ``note`` in the policy's trace: which answer is returned at the end of the path ``prefix``, and why.

        Errors are raised only if failures are configured to be raised.
        """
        self._guarded("note_returned", lambda: self.policy.note_returned(prefix, note), None, prefix)

    def interrupted(self, prefix: tuple[str, ...], cost_usd: float = 0.0) -> None:
        """Report to the policy that the last invocation of ``prefix`` was interrupted, and what it cost."""

        def tell() -> None:
            if self.request_account is not None:
                self.request_account.recorded(cost_usd)
            self.policy.interrupted(prefix)

        self._guarded("interrupted", tell, None, prefix)

    def abandon(self, prefix: tuple[str, ...]) -> None:
        """Report to the policy that the model it chose after the path ``prefix`` does not run.

        The default model runs instead.
        """
        if self._named[:-1] == prefix and self._named:
            self.interrupted(self._named)

    def take_unwritten_usd(self) -> float:
        """Return the cost in dollars recorded since this method was last called, for the next entry of the path."""
        if not self._unwritten_usd:
            return 0.0
        with self._lock:
            usd, self._unwritten_usd = self._unwritten_usd, 0.0
        return usd

    # -- invocations that no channel of the root graph carries, whose path the run itself keeps ----------------------

    def enter(self, where: Where, stage: str) -> tuple[str, ...]:
        """Begin an invocation of ``stage`` at the position ``where``; return the models of the path that ends with it."""
        with self._lock:
            if self.places is None:
                self.places = RunPlaces(self._model_of, flow=self.flow)
            template = self.policy.template
            is_per_node = template is not None and stage in template.per_node
            path, stages = self.places.enter(where, stage, self.path or (), self.stages, is_per_node=is_per_node)
            if len(path) >= len(self.path or ()):
                self.path, self.stages = path, stages
            if self.trail is not None and len(stages) == len(path):  # else a replayed superstep began with a later place
                self.trail.begun(path, stages, where)
            return path

    def go_on(self, value: PathValue) -> None:
        """Make ``value`` the path of this run, to be continued by its invocations, and keep the path in memory from now on.

        ``value`` is the path of an earlier run of the same request, some of whose invocations were inside subgraphs.
        """
        self.resumed(value)
        with self._lock:
            if self.places is None:
                self.places = RunPlaces(self._model_of, flow=self.flow)
            self.path, self.stages = path_of(value)

    def is_past(self, where: Where) -> bool:
        """Return whether the run keeps its path in memory and has left the superstep in which its last invocation began.

        ``where`` is the run's current position.
        """
        return self.places is not None and self.places.last_step != where.step

    def _model_of(self, stage: str, prefix: tuple[str, ...]) -> str:
        """Return the policy's model for ``stage`` after the path ``prefix``, or the stage's default if the policy fails."""
        self.outcomes.tell(prefix)
        started = time.perf_counter()
        try:
            model = self.policy.next_model(stage, prefix)
            if self._observers.observers:
                self._announce("model", stage, prefix, model, started=started)
        except Exception as error:  # the policy may be the application's
            return self._default_after(error, stage, prefix)
        self._named = (*prefix, model)
        return model

    # -- decisions, observed -------------------------------------------------------------------------------------

    def should_continue(
        self,
        prefix: tuple[str, ...],
        finished: bool,
        state: Any,
        arms: frozenset[str] | None = None,
    ) -> bool:
        """Return whether the request continues after an edge that can end it, according to the policy.

        Args:
            prefix: models of the invocations so far.
            finished: the workflow's own verdict: whether the request is finished.
            state: the application's state.
            arms: the stages that may come next, if the workflow branches; None if they are not known.
        """
        started = time.perf_counter()
        ask = partial(self.policy.should_continue, prefix, finished, state, arms)
        # A judge is the caller's own code, which may raise.
        goes_on = ask() if self.policy.has_judge else self._guarded("should_continue", ask, not finished, prefix)
        if self._observers.observers:
            self._announce("end", None, prefix, None, goes_on=goes_on, started=started, explains=goes_on or not finished)
        return goes_on

    def _announce(
        self,
        kind: Literal["model", "end"],
        stage: str | None,
        prefix: tuple[str, ...],
        model: str | None,
        *,
        started: float,
        goes_on: bool = True,
        explains: bool = True,
    ) -> None:
        """Notify the observers of a decision. An exception from an observer or the explanation does not change the decision.

        Args:
            kind: what was decided: which model runs ("model"), or whether the request ends ("end").
            stage: the stage for which a model was chosen.
            prefix: models of the path before the decision.
            model: the chosen model.
            started: when the decision began, in ``time.perf_counter()`` seconds.
            goes_on: whether the request continues.
            explains: whether the policy is asked to explain the decision.
        """
        seconds = time.perf_counter() - started
        explanation: Mapping[str, Any] = {}
        if explains:
            explanation = self._guarded("last_step", self.policy.last_step, {}, prefix, stage=stage, model=model)
        with self.noting("an observer", prefix, stage, may_raise=False), self.shown():
            self._observers.decided(
                DecisionEvent(
                    kind=kind,
                    stage=stage,
                    prefix=prefix,
                    model=model,
                    goes_on=goes_on,
                    seconds=seconds,
                    explanation=explanation,
                )
            )

    # -- failures of VineLM itself -------------------------------------------------------------------------------

    def note_failure(
        self, what: str, error: BaseException, prefix: tuple[str, ...] = (), stage: str | None = None, model: str | None = None
    ) -> None:
        """Record in the policy's trace that ``what`` failed, with the type of the error; never raises.

        ``prefix`` has the models of the path so far. ``model`` is the model that runs for ``stage`` in spite of the failure, if
        any.
        """
        with suppress(Exception):  # the same
            self.policy.note_failure(what, error, prefix, stage, model)

    @contextmanager
    def noting(
        self,
        what: str,
        prefix: tuple[str, ...] = (),
        stage: str | None = None,
        model: str | None = None,
        *,
        may_raise: bool = True,
        passes: tuple[type[Exception], ...] = (),
    ) -> Iterator[None]:
        """Catch errors of VineLM's own code in the block and record them in the trace, as failures of ``what``.

        These errors are raised instead if failures are configured to be raised and ``may_raise`` is true. Errors of the types
        in ``passes`` are always raised.
        """
        try:
            yield
        except passes:
            raise
        except Exception as error:  # ours, an observer's or the application's
            if may_raise and self.on_error == "raise":
                raise
            self.note_failure(what, error, prefix, stage, model)

    def _guarded(
        self,
        name: str,
        ask: Callable[[], T],
        otherwise: T,
        prefix: tuple[str, ...],
        *,
        stage: str | None = None,
        model: str | None = None,
    ) -> T:
        """Call ``ask``, a method of the policy, and return its result; return ``otherwise`` if it raises an exception.

        ``name`` is the method's name in the trace.
        """
        found = otherwise
        with self.noting(name, prefix, stage, model, passes=(InfeasibleError,)):
            found = ask()
        return found

    def _degrade(
        self, what: str, error: Exception, prefix: tuple[str, ...], stage: str | None = None, model: str | None = None
    ) -> None:
        """Record in the trace that ``what`` failed, or raise the error if failures are configured to be raised.

        An :class:`~vinelm.errors.InfeasibleError` is always raised.
        """
        if self.on_error == "raise" or isinstance(error, InfeasibleError):
            raise error
        self.note_failure(what, error, prefix, stage, model)

    def _default_after(self, error: Exception, stage: str, prefix: tuple[str, ...]) -> str:
        """Return the stage's default model after the policy has failed to choose one; raise the error if there is none."""
        if self._default is None:
            raise error
        model = self._default(stage)
        self._degrade("next_model", error, prefix, stage, model)
        if self._observers.observers:
            self._announce("model", stage, prefix, model, started=time.perf_counter())
        return model


class RunPath(NamedTuple):
    """A run, with the models and the stages of its invocations so far."""

    run: GraphRun
    path: tuple[str, ...]
    stages: tuple[str, ...]

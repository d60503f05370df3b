"""Executes a job: the last invocation of ``prefix`` for a request, from the previous checkpoint to the next stage, and scores
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START
from langgraph.types import Command

from vinelm.adapters.langgraph import build_graph
from vinelm.adapters.langgraph.build import replay_reason, stage_nodes
from vinelm.adapters.langgraph.exits import refuse_other_options, resolved, route_ends, with_graph_exits
from vinelm.adapters.langgraph.inner_app import runs_async
from vinelm.adapters.langgraph.path.path_channel import PATH_KEY
from vinelm.adapters.langgraph.runs.profiled import profiled_unit
from vinelm.adapters.langgraph.stated_settings import stated_configurable, stated_context
from vinelm.catalog import Catalog
from vinelm.errors import InputError, WorkflowError, is_of_code
from vinelm.profiler.execution.answers import beside_label
from vinelm.profiler.execution.checkpoints import UNIT_KEY, UnitSaver
from vinelm.profiler.execution.job import Job, TopUp, UnitBudget, UnitOutcome
from vinelm.profiler.execution.judging import JudgedUnit, Judging, judged, make_judging
from vinelm.profiler.execution.outcome import (
    Scored,
    arm_after,
    cut_off,
    failed_row,
    refuse_other,
    scored,
    stages_in,
    with_place,
    with_shown,
)
from vinelm.profiler.execution.unit_adapter import UNIT_BUDGET, UNIT_PROMPTS, UnitAdapter, UnitPrompts
from vinelm.profiler.execution.unit_policy import StageReachedError, UnitChat, UnitPolicy, answered
from vinelm.requests.protocols import Backend
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Template


class NeedsReplayError(WorkflowError):
    """Raised if the workflow cannot resume from checkpoints, so that its requests must be replayed."""


class UnitRunner:
    """Runs jobs of one workflow in this process. The graph is built once; each job has a separate LangGraph thread.

    Under the oracle stop rule only a right answer ends a request. So a request continues after a wrong answer that passed the
    workflow's own check. Under the workflow's stop rule, a passed answer ends the request. If a job continues a request after a
    passed answer, it resumes from the state in which the workflow stopped. Calls the models, which spends money. May be shared
    by threads as far as the workflow's own code allows.
    """

    def __init__(self, workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend]) -> None:
        workflow = resolved(workflow, UnitAdapter(catalog, backends, template=None))
        self.workflow, self.catalog, self.backends = workflow, catalog, backends
        self.template = workflow.template.bind(tuple(catalog))
        self.control = UnitAdapter(catalog, backends, template=self.template)
        self.saver = UnitSaver()
        self.graph = build_graph(workflow, self.control, checkpointer=self.saver)
        reason = replay_reason(workflow, self.graph, self.control.adapter.agents)
        if reason is not None:
            raise NeedsReplayError(reason)
        self.template = self.control.adapter.template = with_graph_exits(self.template, self.graph)
        refuse_other_options(self.template, self.control.adapter)
        self._refuse_oracle()
        nodes = stage_nodes(self.graph, [stage.name for stage in self.template.stages], self.control.adapter.agents)
        self._nodes = {stage: group[0] for stage, group in nodes.by_stage.items()}
        self._boundaries = [stage.name for stage in self.template.stages if stage.name in nodes.wrapped]
        self._wrapped = nodes.wrapped
        self._holders = {node for group in nodes.by_stage.values() for node in group}
        self.judging = make_judging(self.workflow, catalog, backends)
        self.last_error: BaseException | None = None
        opening = {end for start, end in self.graph.builder.edges if start == START}
        self._first_boundaries = _first_boundaries(self.template, opening, self._boundaries)
        ends = route_ends(self.graph, nodes.by_stage)
        self._endings = {stage.name: _only_ending(ends(stage.name), self._holders) for stage in self.template.stages}
        """By stage, the node that every request goes through after the stage's loop, if there is one."""
        self.signals = workflow.signals
        self.can_go_on = self.template.goes_on_past_ends and bool(self.control.ends)
        """True if a request can continue after an answer that passed the workflow's own check, because of a ``vine.route``."""
        again = set(self.control.adapter.agains) - {node for group in nodes.by_stage.values() for node in group}
        self._again = again.pop() if self.can_go_on and len(again) == 1 else None
        self._is_async = runs_async(self.graph)
        self._threads = count()

    @property
    def is_virtual_time(self) -> bool:
        """True if latencies are simulated."""
        return self.control.models.is_virtual_time

    def knows(self, stage: str) -> bool:
        """Return whether the node that runs the stage is known, so that the graph can resume there."""
        return stage in self._nodes

    def values_after(self, checkpoint: bytes | None) -> dict[str, Any]:
        """Return the workflow state in a checkpoint, without the key that VineLM adds to it; empty without a checkpoint."""
        if checkpoint is None:
            return {}
        thread_id = f"u{next(self._threads)}"
        self.saver.load(thread_id, checkpoint[1:])
        try:
            return _values(self.graph.get_state(_config(thread_id)).values)
        finally:
            self.saver.forget(thread_id)

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
        """Run the last invocation of ``prefix`` and the tools after it.

        Args:
            request: the request.
            prefix: the models of the invocations up to and including this one.
            parent: the checkpoint after ``prefix[:-1]``; None for the first invocation.
            budget: authorizes each model call; None allows every call.
            stages: see :class:`~vinelm.profiler.execution.job.Job`.
            passed: ignored, because a checkpoint records where the workflow stopped.

        Returns:
            The result and the checkpoint. If a stage or tool raises, the result has the failure and the cost so far. If the
            budget refused a call, the outcome has no result.

        Raises:
            InputError: an error that would occur in every further job, such as a graph that does not follow its template or a
                missing key.
        """
        thread_id = f"u{next(self._threads)}"
        policy = UnitPolicy(self.template, prefix, self.control.models.new_clock(), request, stages)
        chat = UnitChat(policy, self._wrapped)
        token = UNIT_BUDGET.set(budget)
        try:
            with profiled_unit():
                problem = self.last_error = self._attempt(thread_id, chat, policy, request, parent)
            if budget is not None and budget.was_refused:  # even if the application caught the exception
                return UnitOutcome(None, paid_usd=budget.spent_usd)
            outcome = self._outcome(chat, policy, request, thread_id, problem)
            if budget is not None and policy.answered:  # a stage that waits for a person runs again; it is already paid
                return replace(outcome, paid_usd=budget.spent_usd)
            return outcome
        finally:
            UNIT_BUDGET.reset(token)
            self.saver.forget(thread_id)

    def _outcome(
        self, chat: UnitChat, policy: UnitPolicy, request: Request, thread_id: str, problem: BaseException | None
    ) -> UnitOutcome:
        if problem is not None:
            return UnitOutcome(failed_row(policy, problem))
        if chat.has_failed:
            last = policy.invocations[-1]
            return UnitOutcome(policy.observation(last.failure, last.detail))
        return self._finished(chat, policy, request, thread_id)

    def _attempt(
        self, thread_id: str, chat: UnitChat, policy: UnitPolicy, request: Request, parent: bytes | None
    ) -> BaseException | None:
        """Run the job; return the exception that ended it, if any."""
        try:
            self._invoke(thread_id, chat, policy, request, parent)
        except InputError:
            raise
        except BaseException as error:
            if not is_of_code(error):
                raise
            if chat.problem is not None:  # the application wrapped it in its own error
                raise chat.problem from error
            return error
        if chat.problem is not None:
            raise chat.problem
        return None

    # -- running -----------------------------------------------------------------------------------------------

    def _invoke(self, thread_id: str, chat: UnitChat, policy: UnitPolicy, request: Request, parent: bytes | None) -> None:
        ending = self._kept_ending(policy)
        boundaries = [*self._boundaries, *ending]
        if parent is None:
            start = self.saver.normalised(self.workflow.graph_input(request))
            self._step(thread_id, chat, policy, start, [*self._first_boundaries, *ending])
        else:
            self.saver.load(thread_id, parent[1:])
            if parent[:1] == _PASSED:
                self.graph.update_state(_config(thread_id), None, as_node=END)  # drop what follows the loop
            if parent[:1] in (_ENDED, _PASSED):  # the workflow stopped here: continue past its stop
                goto = self._again or self._nodes.get(policy.stage, policy.stage)
                self._step(thread_id, chat, policy, Command(goto=goto), boundaries)
        if not policy.invocations:
            self._step(thread_id, chat, policy, None, boundaries)
        if ending and self.graph.get_state(_config(thread_id)).next == ending:
            policy.before_ending = self.saver.dump(thread_id)
            self._step(thread_id, chat, policy, None, self._boundaries)
        self._nodes = {**chat.nodes, **self._nodes}
        if not policy.invocations:
            raise WorkflowError(
                f"workflow {self.workflow.name!r}: stage {policy.stage!r} did not run as invocation {len(policy.prefix)} "
                f"of request {policy.request_id!r}: does the graph follow its template?",
                code="stage-not-run",
            )

    def _kept_ending(self, policy: UnitPolicy) -> tuple[str, ...]:
        """Return (the node that follows the loop,) if the state before this node must be stored; otherwise an empty tuple.

        From this state, a request can continue although its answer passed the workflow's check. The state need not be stored if
        requests always end after such an answer, or if the workflow declares no signals. Nor is it needed if the node is
        unknown, or if the template has no later stage.
        """
        if not self.can_go_on or not self.signals:
            return ()
        ending = self._endings[policy.stage]
        return () if ending is None or self.template.stage_after(len(policy.prefix)) is None else (ending,)

    def _refuse_oracle(self) -> None:
        """Raise :class:`WorkflowError` if the template has both branches and the oracle stop rule.

        Under that rule only a right answer ends a request, so a run may continue past the graph's own end. With branches, the
        next stage is unknown there.
        """
        self.template.base.form.require_known_ends(
            WorkflowError(
                f"workflow {self.workflow.name!r}: its template branches, and the oracle stop goes on past the workflow's "
                "own end, where no edge says which stage comes: use stop='workflow'"
            )
        )

    def _step(self, thread_id: str, chat: UnitChat, policy: UnitPolicy, start: Any, boundaries: list[str]) -> None:
        """Run the graph until it pauses before a node in ``boundaries``, a stage calls its chat model, or the graph ends.

        ``start`` is the graph's input or a command; None continues the thread.
        """
        assert policy.request is not None
        stated = {"thread_id": thread_id, **stated_configurable(self.workflow, policy.request)}
        run = replace(self.control.context(policy=policy, request=policy.request), chat_host=chat)
        arguments: dict[str, Any] = {
            "config": {"configurable": {**stated, "checkpoint_ns": "", UNIT_KEY: thread_id}},
            "context": stated_context(self.workflow, policy.request, run, self.graph),
            "interrupt_before": boundaries,
            # The saver keeps only the last checkpoint: serializing one for each superstep would be wasted.
            "durability": "exit",
        }
        try:
            out = self._run_graph(start, arguments)
            while isinstance(out, Mapping) and out.get("__interrupt__"):
                out = self._run_graph(answered(self.workflow, policy, out["__interrupt__"]), arguments)
        except StageReachedError:
            return

    def _run_graph(self, start: Any, arguments: dict[str, Any]) -> Any:
        return asyncio.run(self.graph.ainvoke(start, **arguments)) if self._is_async else self.graph.invoke(start, **arguments)

    # -- the outcome ----------------------------------------------------------------------------------------------

    def _finished(self, chat: UnitChat, policy: UnitPolicy, request: Request, thread_id: str) -> UnitOutcome:
        policy.at_boundary()
        snapshot = self.graph.get_state(_config(thread_id))
        waiting: tuple[str, ...] = snapshot.next if chat.reached is None else (chat.reached,)
        depth = len(policy.prefix)
        refuse_other(self.workflow, self.template, depth, waiting)
        stages = self.template.stages_along(depth, stages_in(snapshot.values) or (*policy.stages, policy.stage))
        reached = [name for name in waiting if name in self._boundaries or name == chat.reached]
        arm, problem = arm_after(self.template, stages, reached)
        if problem is not None:
            return UnitOutcome(policy.observation("unexpected_arm", problem))
        stopped = self.template.has_stopped(not waiting, policy.verdicts.get(depth))
        stage, ending = self.template.stage(policy.stage), self._endings[policy.stage]
        values, problem = _values(snapshot.values), None
        # The request continues, and its answer so far is what the nodes after the loop would make of this state.
        if waiting and ending is not None and stage.answerable:
            values, problem = self._ended(chat, policy, thread_id, ending)
        found = Scored(False, problem) if problem is not None else scored(self.workflow, request, values, stage)
        if found.problem is not None:
            return UnitOutcome(policy.observation("tool", found.problem))
        cut = cut_off(self.template, stages, reached)
        observation = policy.observation(detail=cut, success=found.success, stopped=stopped, arm=arm)
        observation = with_shown(observation, self.signals, values, stage, found.answer)
        # A request that continues after a passed check resumes from the state before the nodes after the loop.
        if policy.before_ending is not None and not waiting:
            return UnitOutcome(observation, _PASSED + policy.before_ending)
        ended = _ENDED if ending is None or self.template.rule.goes_through(self.template.stage_after(depth)) else _FINAL
        return UnitOutcome(observation, (_WAITS if waiting else ended) + self.saver.dump(thread_id))

    def score(
        self, request: Request, prefix: tuple[str, ...], state: bytes, budget: UnitBudget, passed: Sequence[bool] = ()
    ) -> UnitOutcome:
        """Score ``state``, the stored state after the calls of ``prefix``, as if the request ended there.

        If the stage is in a loop, the nodes that the graph runs after this loop are run on a copy of the state.

        Returns:
            A result with the success (or a failure and its text), and the signal and answer of the state. A signal declared as
            ``"status"`` is not computed. There is no result if one of these nodes makes a call that the budget does not allow.
        """
        thread_id = f"u{next(self._threads)}"
        policy = UnitPolicy(self.template, prefix, self.control.models.new_clock(), request)
        token = UNIT_BUDGET.set(budget)
        self.saver.load(thread_id, state[1:])
        try:
            state_values = self.graph.get_state(_config(thread_id)).values
            row = policy.observation()
            name = (stages_in(state_values) or (policy.stage,))[-1]
            stage, ending = self.template.stage(name), self._endings[name]
            values, problem = _values(state_values), None
            if state[:1] in (_WAITS, _PASSED) and ending is not None and stage.answerable:
                values, problem = self._ended(UnitChat(policy, self._wrapped), policy, thread_id, ending)
            if budget.was_refused:
                return UnitOutcome(None, paid_usd=budget.spent_usd)
            found = Scored(False, problem) if problem is not None else scored(self.workflow, request, values, stage)
            if problem is None:
                row = with_shown(row, self.signals, values, stage, found.answer)
        finally:
            UNIT_BUDGET.reset(token)
            self.saver.forget(thread_id)
        is_scored = found.problem is None
        row = replace(row, success=found.success) if is_scored else replace(row, failure="tool", detail=found.problem)
        return UnitOutcome(row, **beside_label(self.workflow, request, values or {})._asdict())

    def _ended(self, chat: UnitChat, policy: UnitPolicy, thread_id: str, ending: str) -> tuple[dict[str, Any], str | None]:
        """Run the nodes that follow the stage's loop in the graph, ``ending`` first, on a copy of the LangGraph thread.

        Returns (final state as if the loop ended here, None), or ({}, error text) if a node raised.
        """
        # On a copy, because the unit's own checkpoint has to stay where the run waits for the next stage.
        fork = f"{thread_id}-ended"
        self.saver.load(fork, self.saver.dump(thread_id))
        try:
            self.graph.update_state(_config(fork), None, as_node=END)  # drop the pending next step
            self._step(fork, chat, policy, Command(goto=ending), self._boundaries)
            return _values(self.graph.get_state(_config(fork)).values), None
        except InputError:
            raise
        except BaseException as error:
            if not is_of_code(error):
                raise
            return {}, with_place(f"after the loop, {type(error).__name__}", error)  # its text may contain the answer
        finally:
            self.saver.forget(fork)


def _first_boundaries(template: Template, opening: Collection[str], boundaries: Sequence[str]) -> list[str]:
    """Return the stages before which the graph pauses while it runs a request's first invocation.

    The first stage is left out if nothing precedes it and it runs only once: pausing there would only add overhead.

    Args:
        template: the workflow's template.
        opening: the nodes to which an edge leads from the graph's start.
        boundaries: the stages before which the graph pauses in all later invocations.
    """
    first, *others = (stage.name for stage in template.first_stages)
    is_again = any(first in level for level in template.flow.stages_at[1:])
    if others or first not in opening or is_again:
        return list(boundaries)
    return [name for name in boundaries if name != first]


def _only_ending(ends: Collection[str], holders: Collection[str]) -> str | None:
    """Return the one node to which all routes lead when a loop ends; None if they lead to several nodes.

    Also None if this node is END or runs a stage.

    Args:
        ends: the nodes to which the routes lead; empty means END.
        holders: the nodes that run a stage.
    """
    (end, *others) = ends or {END}
    return None if others or end == END or end in holders else end


def _config(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


def _values(state: Any) -> dict[str, Any]:
    """Return the workflow state as read from a checkpoint, without the key under which VineLM records the path."""
    values = state if isinstance(state, Mapping) else vars(state)
    return {key: value for key, value in values.items() if key != PATH_KEY}


class RunsUnits(Protocol):
    """The interface of a job runner."""

    template: Template
    control: UnitAdapter
    judging: Judging | None

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
        """Run the last invocation of ``prefix`` and return its result; see :meth:`UnitRunner.run` for the arguments."""

    def score(
        self, request: Request, prefix: tuple[str, ...], state: bytes, budget: UnitBudget, passed: Sequence[bool] = ()
    ) -> UnitOutcome:
        """Score the state after ``prefix`` again, as if the request ended there; see :meth:`UnitRunner.score`."""


def run_unit(units: RunsUnits, job: Job, budget: UnitBudget) -> UnitOutcome:
    """Run a job: score a state, or execute the job's invocation, after repeating earlier invocations whose state is not stored.

    Invocations that are executed again cost money and write no result. If they end the request before the job, they are
    repeated up to :data:`_ATTEMPTS` times; then the job fails with the kind ``state``.
    """
    if job.is_scoring:
        assert job.parent is not None
        return _judged(units, job, budget, partial(units.score, job.request, job.prefix, job.parent, budget, job.passed))
    if not job.n_again:
        return _last(units, job, budget, job.parent)
    for _ in range(_ATTEMPTS):
        outcome = _run_again(units, job, budget)
        if outcome is not None:
            return replace(outcome, paid_usd=budget.spent_usd)
    policy = UnitPolicy(units.template, job.prefix, units.control.models.new_clock(), job.request, job.stages)
    detail = f"the state before it was not kept, and {_ATTEMPTS} executions of its path ended earlier"
    return UnitOutcome(policy.observation("state", detail), paid_usd=budget.spent_usd)


def _run_again(units: RunsUnits, job: Job, budget: UnitBudget) -> UnitOutcome | None:
    """Execute the invocations without stored states, then the job, and return its outcome.

    Return None if the new execution deviates from the recorded results, such as by ending before the job.
    """
    state = job.parent
    for length in range(len(job.prefix) - job.n_again, len(job.prefix)):
        outcome = units.run(
            job.request, job.prefix[:length], state, budget, job.stages[:length], passed=job.passed[: length - 1]
        )
        if outcome.observation is None:
            return outcome
        has_passed = length <= len(job.passed) and job.passed[length - 1]
        # This run deviated from the recorded one: what follows would not belong after the rows in the store.
        if outcome.observation.failure is not None or outcome.observation.ended(units.template.stop) != has_passed:
            return None
        if outcome.observation.contradicts(job.stages[length : length + 1]):
            return None
        state = outcome.checkpoint
    return _last(units, job, budget, state)


def _last(units: RunsUnits, job: Job, budget: UnitBudget, state: bytes | None) -> UnitOutcome:
    """Run the job's invocation from the checkpoint ``state`` and return its outcome.

    The outcome has hashes of the prompts if the job has a key for them.
    """
    run = partial(units.run, job.request, job.prefix, state, budget, job.stages, passed=job.passed)
    if not job.prompt_key:
        return _judged(units, job, budget, run)
    prompts = UnitPrompts(job.prompt_key)
    token = UNIT_PROMPTS.set(prompts)
    try:
        outcome = _judged(units, job, budget, run)
    finally:
        UNIT_PROMPTS.reset(token)
    return replace(outcome, shapes=prompts.packed())


def _judged(units: RunsUnits, job: Job, budget: UnitBudget, run: Callable[[], UnitOutcome]) -> UnitOutcome:
    """Run the job with the workflow's judge, if any. The judge's cost is booked, but is not part of the result's cost."""
    if units.judging is None or job.judged is None:
        return run()
    with judged(JudgedUnit(units.judging, job.judged, budget)) as unit:
        outcome = run()
    if unit.judgement is None:
        return outcome
    return replace(outcome, judgement=unit.judgement, paid_usd=budget.spent_usd)


class LocalWorker:
    """Runs jobs in the calling process, on the calling thread; used for ``isolation="thread"`` and ``"inline"``."""

    def __init__(self, units: RunsUnits) -> None:
        self._units = units

    def run(self, job: Job, top_up: TopUp) -> UnitOutcome:
        """Run one job to its end on this thread and return its outcome; ``top_up`` raises the job's reservation."""
        return run_unit(self._units, job, UnitBudget(job.upper_usd, top_up))

    def close(self) -> None:
        """Do nothing, because threads finish their jobs by themselves."""


_WAITS, _ENDED, _FINAL, _PASSED = b"w", b"e", b"f", b"p"
"""First byte of a checkpoint: the run waits before the next stage, has ended by the workflow's own stop, has ended after the
nodes that follow the loop (it can be scored but not extended), or has left the loop and waits before these nodes."""
_ATTEMPTS = 3


def is_extendable(checkpoint: bytes | None) -> bool:
    """Return whether a next invocation can resume from the checkpoint."""
    return checkpoint is not None and checkpoint[:1] != _FINAL  # the record of a replayed request is always extendable


def warm_up() -> None:
    """Run a trivial graph, so that LangGraph's lazy imports happen before a process forks."""
    from langgraph.graph import END, START, StateGraph

    graph: Any = StateGraph(dict)
    graph.add_node("only", lambda state: state)
    graph.add_edge(START, "only")
    graph.add_conditional_edges("only", lambda state: "__end__", [END])
    saver = UnitSaver()
    config = _config("warm")
    app = graph.compile(checkpointer=saver)
    app.invoke({"a": [1]}, config=config, durability="exit", interrupt_before=["only"])
    app.invoke(None, config=config, durability="exit")
    app.get_state(config)

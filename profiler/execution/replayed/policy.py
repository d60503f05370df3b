"""The policy of a replayed job: finds the position of each invocation in the path, and ends the job."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any

from langgraph.errors import GraphBubbleUp

from vinelm.adapters.langgraph.path.places import PlaceKey
from vinelm.clock import Clock
from vinelm.errors import TemplateError, WorkflowError
from vinelm.profiler.execution.replayed.record import Record, RecordedCall, RecordedInvocation
from vinelm.profiler.execution.unit_policy import StageReachedError, UnitPolicy
from vinelm.requests.protocols import Invocation
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Observation
from vinelm.template import Parallel, Template
from vinelm.template.steps import walk

_POLL_S = 0.002
"""Seconds between looks at the calls in flight."""


class JointStages:
    """Sorts stages that run in the same superstep (in parallel) into the order in which the template and a path list them.

    In all methods, ``stages`` are the stages of a path so far, in this order.
    """

    def __init__(self, template: Template) -> None:
        self._template = template
        self._has_some = any(isinstance(step, Parallel) for step in walk(template.steps))

    def next_after(self, stages: Sequence[str]) -> tuple[str, ...]:
        """Return the stages that may follow ``stages``; empty if the template does not allow these stages."""
        try:
            return tuple(stage.name for stage in self._template.arms_after(stages))
        except TemplateError:
            return ()

    def follows(self, stages: Sequence[str]) -> bool:
        """Return whether the stage after ``stages`` runs in the same superstep as the last of them."""
        return bool(self.group_after(stages))

    def group_after(self, stages: Sequence[str]) -> tuple[str, ...]:
        """Return the stages that follow the last of ``stages`` in its superstep, in template order; empty if there are none."""
        found: list[str] = []
        if not self._has_some:
            return ()
        flow = self._template.flow
        try:
            position = flow.positions[flow.at(stages)]
        except KeyError:
            return ()
        while position.is_joint:
            name, after = next(iter(position.arms.items()))
            found.append(name)
            position = flow.positions[after]
        return tuple(found)

    def first_with(self, stages: Sequence[str], reached: str) -> str:
        """Return which stage is next on the path if the application called ``reached`` next.

        This is ``reached``, unless a stage of the same superstep precedes it in the template; then it is that stage.
        """
        arms = self.next_after(stages) if self._has_some else ()
        return next((arm for arm in arms if reached in self.group_after((*stages, arm))), reached)

    def begun_before(self, stages: Sequence[str]) -> int:
        """Return the number of stages, directly before the last one, that run in the same superstep as the last one."""
        count = 0
        while count < len(stages) - 1 and self.follows(stages[: len(stages) - 1 - count]):
            count += 1
        return count


class StageParkedError(GraphBubbleUp):
    """Raised when a stage without a chosen model is reached while other stages of its superstep may still run.

    LangGraph lets the other tasks of the superstep finish after an exception of this kind. An application that catches every
    exception of its models continues without the answer; the job has ended nevertheless.
    """


class ReplayPolicy(UnitPolicy):
    """Replays the recorded invocations, buys the next invocation, and ends the job at the invocation after that.

    Attributes:
        before: the record of the invocations that precede the job's invocation.
        halted: the exception that was raised to end the run at once; None if none was raised.
        problem: what is wrong with the workflow, even if the application caught the exception; None if nothing is wrong.
        drift: where the run deviated from its record; None if it did not.
        reached: the stage that was invoked after the job's stage; None if there was none.

    Args:
        template: the template, bound to the models.
        prefix: the models of the invocations up to and including the job's own.
        clock, request: see :class:`UnitPolicy`.
        before: the record of the earlier invocations.
        buys: whether to buy one new invocation; if False, only the record is replayed.
        passed: for each earlier invocation, whether its answer passed the workflow's own check; empty if none passed. The
            request continued after such an answer.
        has_supersteps: False for an entrypoint of LangGraph's functional API, all of whose tasks run in one superstep.
    """

    def __init__(
        self,
        template: Template,
        prefix: tuple[str, ...],
        clock: Clock,
        request: Request,
        before: Record,
        *,
        buys: bool = True,
        passed: Sequence[bool] = (),
        has_supersteps: bool = True,
    ) -> None:
        joint = JointStages(template)
        follower = template.stage_after(len(before.stages)) if any(passed[-1:]) else None
        reached = before.reached if follower is None else follower.name
        stages: list[str | None] = [*before.stages, *([reached] if buys else [])]
        roots = joint.next_after(())
        if buys and not before.invocations and len(roots) == 1:
            stages = [roots[0]]  # several stages may come first; which one does is known when it runs
        first = stages[-1] or roots[0]
        super().__init__(template, prefix, clock, request, (*before.stages, first) if buys else before.stages)
        self.stage = first
        self.before = before
        self.has_supersteps = has_supersteps
        self.halted: BaseException | None = None
        self.problem: WorkflowError | None = None
        self.drift: str | None = None
        self.reached: str | None = None
        self._joint = joint
        self._expected = stages
        self._buys = buys
        self._passed = tuple(passed)
        self._taken: dict[PlaceKey, int] = {}
        self._bought_step: str | None = None
        self._calls: list[RecordedCall] = []
        self._used: set[int] = set()  # ids of recorded calls
        self._under_way = 0
        self._counter = Lock()

    def should_continue(self, prefix: tuple[str, ...], finished: bool, state: Any, arms: Collection[str] | None = None) -> bool:
        """Return whether the request continues after ``prefix``, according to the stop rule and the workflow's own check.

        Also True if ``passed`` records that the answer after ``prefix`` passed the check and the request continued.

        Args:
            prefix: the models of the invocations so far.
            finished: whether the workflow's own check accepts the answer.
            state: the state after the last invocation.
            arms: ignored.
        """
        goes_on = super().should_continue(prefix, finished, state)
        return goes_on or (len(prefix) < len(self.prefix) and any(self._passed[len(prefix) - 1 : len(prefix)]))

    # -- places ------------------------------------------------------------------------------------------------

    @property
    def is_replaying(self) -> bool:
        """True while recorded events are replayed, before the job's invocation."""
        return bool(self.before.invocations) and self._bought_step is None

    def locate(self, key: PlaceKey) -> tuple[str, ...]:
        """Return the models of the path up to and including the invocation that ``key`` identifies.

        Raises:
            StageReachedError: the job ends here.
            StageParkedError: the job ends here, but other stages of the superstep may have to run first.
            WorkflowError: the call does not follow the record or the template.
        """
        number = self._taken.get(key)
        if number is None:
            number = self._number_of(key)
            self._taken[key] = number
            if number == len(self._expected) - 1 and self._buys:
                self._bought_step = key.step
        return self.prefix[: number + 1]

    def _number_of(self, key: PlaceKey) -> int:
        if self.halted is not None:
            raise self.halted  # the application caught it and continues
        taken = set(self._taken.values())
        first = next((number for number in range(len(self._expected)) if number not in taken), None)
        if first is None:
            raise self._ended(key)
        if self._expected[first] is None and key.stage in self._joint.next_after(()):
            self._expected[first] = self.stage = key.stage
        # The stages of one superstep may be called in any order: each takes its first free position in it.
        last = first
        while last < len(self._expected) and (last == first or self._joint.follows(self._stages_before(last))):
            if last not in taken and self._expected[last] == key.stage:
                return last
            last += 1
        others = self._joint.group_after(self._stages_before(last)) if last == len(self._expected) else ()
        if key.stage in others:
            self.reached = others[0]  # in template order
            raise self._parked(key)
        if not self.before.invocations:
            raise self._wrong_first(key.stage)
        where = "as invocation" if first == len(self._expected) - 1 else "as the replayed invocation"
        raise self.drifted(
            f"the stage {key.stage!r} was called {where} {first + 1}, where its record has {self._expected[first]!r}"
        )

    def _stages_before(self, number: int) -> tuple[str, ...]:
        return tuple(stage for stage in self._expected[:number] if stage is not None)

    def _ended(self, key: PlaceKey) -> BaseException:
        """Return the exception that ends the job at the call ``key``, the first call after the job's own invocation."""
        stages = self._stages_before(len(self._expected))
        others = self._joint.group_after(stages)
        if self.reached is None:
            self.reached = others[0] if key.stage in others else self._joint.first_with(stages, key.stage)
            if self.invocations:
                self.at_boundary()
        # Other tasks of this superstep may still be running, and what they return belongs to the scored state.
        if key.step and key.step == self._bought_step:
            return self._parked(key)
        self.halted = StageReachedError()
        return self.halted

    def _parked(self, key: PlaceKey) -> BaseException:
        if not key.step:
            return self._failing(
                f"the stage {key.stage!r} is called before {self.stage!r}: "
                "name the stages of a Parallel in the order in which they are called"
            )
        return StageParkedError()

    def _wrong_first(self, stage: str) -> BaseException:
        allowed = ", ".join(repr(name) for name in self._joint.next_after(()))
        return self._failing(f"the stage {stage!r} is called first, where the template has {allowed}: make them agree")

    def _failing(self, text: str) -> BaseException:
        self.problem = WorkflowError(text)
        self.halted = StageReachedError()
        return self.halted

    def drifted(self, what: str) -> BaseException:
        """Record ``what``, the first deviation of the run from its record, and return the exception that ends the run."""
        if self.drift is None:
            self.drift = (
                f"the replay left its record: {what}: something between the calls gives another result when it runs again, "
                "so make it deterministic (time, random numbers, changed files)"
            )
        self.halted = StageReachedError()
        return self.halted

    def refused(self, name: str) -> BaseException:
        """Record that a node or tool, which must not run twice, would run again, and return the exception that ends the run."""
        return self._failing(
            f"{name!r} runs before invocation {len(self.prefix)} ({self.stage!r}) and would run again in its replay, which "
            "Workflow(unrepeatable=) forbids: move it behind the last stage, or replace it by a stand-in while profiling"
        )

    # -- calls -------------------------------------------------------------------------------------------------

    def is_recorded(self, number: int) -> bool:
        """Return whether the invocation with this number (from 0) is in the record."""
        return number < len(self.before.invocations)

    def answers_at(self, step: str, number: int) -> int:
        """Return how many recorded calls of the invocation with this number, from 0, were answered.

        0 if it is not recorded, or if ``step``, the superstep of the call, tells calls apart.
        """
        if (step and self.has_supersteps) or not self.is_recorded(number):
            return 0
        return sum(call.answer is not None for call in self.before.invocations[number].calls)

    def recorded_call(self, number: int, digest: str) -> RecordedCall:
        """Return the recorded call with this prompt (by its digest) of the invocation at index ``number``.

        If several recorded calls have this prompt, they are returned one after the other, successful calls first. After the
        last one, the first one is returned again.

        Raises:
            StageReachedError: the record has no such call.
        """
        invocation = self.before.invocations[number]
        with self._counter:
            same = sorted(invocation.calls_with(digest), key=lambda call: call.answer is None)
            # Equal prompts get their answers one after the other. A further call (such as a retry) gets the first answer again.
            found = next((call for call in same if id(call) not in self._used), same[0] if same else None)
            if found is not None:
                self._used.add(id(found))
                return found
        raise self.drifted(f"the prompt of the stage {invocation.stage!r} at invocation {number + 1} is not the recorded one")

    def add_call(self, call: RecordedCall) -> None:
        """Add a call of the job's invocation to the record."""
        with self._counter:
            self._calls.append(call)

    @contextmanager
    def buying(self) -> Iterator[None]:
        """Count one model call as in flight while the block runs."""
        with self._counter:
            self._under_way += 1
        try:
            yield
        finally:
            with self._counter:
                self._under_way -= 1

    @property
    def is_buying(self) -> bool:
        """True if a call is in flight."""
        return self._under_way > 0

    async def calls_end(self) -> None:
        """Wait until all calls that the job makes in other coroutines have ended, since their cost must be known."""
        await asyncio.sleep(0)
        while self.is_buying:
            await asyncio.sleep(_POLL_S)

    # -- the host of chat models' calls: their positions decide --------------------------------------------------------

    def admit(self, stage: str, prefix: tuple[str, ...], *, node: str, is_repeated: bool) -> None:
        """Return without checking anything, because :meth:`locate` has decided whether the call may run."""

    def admit_inner(self, stage: str, *, node: str) -> None:
        """Return without checking anything, because :meth:`locate` has decided whether the call inside the subgraph may run."""

    # -- the outcome -------------------------------------------------------------------------------------------

    def record(self, invocation: Invocation) -> None:
        """Record the invocation if it is the job's own. Earlier invocations are replayed, and were recorded by earlier jobs."""
        if invocation.prefix == self.prefix and self._buys:
            super().record(invocation)

    @property
    def has_failed(self) -> bool:
        """True if every attempt at the job's invocation failed, even if the application caught the error."""
        return bool(self.invocations) and all(one.failure is not None for one in self.invocations)

    @property
    def is_joint(self) -> bool:
        """True if a further stage, after the job's stage in template order, runs in the same superstep."""
        return self._joint.follows(self._stages_before(len(self._expected)))

    def record_after(self, row: Observation) -> Record:
        """Return the record of the request's earlier invocations, extended by the job's invocation.

        The added invocation has the latency of ``row``, the job's result.
        """
        own = RecordedInvocation(self.stage, self.prefix[-1], row.latency_s, list(self._calls))
        return Record((*self.before.invocations, own), self.reached)

    def joint_row(self, row: Observation) -> Observation:
        """Return the result with the seconds that its stage adds to its superstep (stages that run at the same time).

        The latency is how much longer the stage took than the slowest earlier stage of the superstep, at least 0. Only the last
        stage of a superstep keeps its tool seconds; the other stages get 0.
        """
        count = self._joint.begun_before(self._stages_before(len(self._expected)))
        tools_s = 0.0 if self.is_joint else row.tool_latency_s
        if not count:
            return replace(row, tool_latency_s=tools_s)
        longest_s = max(one.latency_s for one in self.before.invocations[-count:])
        return replace(row, latency_s=max(row.latency_s - longest_s, 0.0), tool_latency_s=tools_s)

"""The run of a batch: threads take requests in order, each with the plan chosen for it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Self

from vinelm.adapters.langgraph import build_graph
from vinelm.adapters.langgraph.path.path_channel import PATH_KEY
from vinelm.api import VineLM
from vinelm.backends.remote.equal_calls import EqualCalls, KeepsCalls
from vinelm.batches.ordered_models import OrderedModels
from vinelm.batches.plan_shares import PLANNERS, DrawnPlan, priced
from vinelm.batches.requests import DatasetRequests
from vinelm.batches.result import Tally
from vinelm.batches.steering import Steering
from vinelm.catalog import Catalog
from vinelm.controller import Planner
from vinelm.errors import FailureKind, StageBroken, WorkflowError, is_of_code
from vinelm.profiler.execution.job import UnitBudget
from vinelm.requests.protocols import Backend, CallGuard
from vinelm.requests.workflow import Request, Workflow
from vinelm.running.crew import TICK_S, Crew
from vinelm.running.hosts import Server
from vinelm.running.request_ledger import RequestLedger
from vinelm.running.serving import Purses, final_state, measured
from vinelm.signals.declaration import canonical
from vinelm.traces.served.answers import Answer, Answers
from vinelm.trie.annotated_trie import AnnotatedTrie

FIRST_FAILURES = 20
"""A batch is stopped if this many first requests all fail: something is broken, and further requests cost money."""
GRACE_S = (300.0, 1.0)
"""After the deadline, requests in progress get a tenth of it, within these limits; after an error that ends the batch, the
upper limit."""
_ROUNDING_USD = 1e-9

BUDGET, DEADLINE, INTERRUPTED = "budget", "deadline", "interrupted"
"""The reasons for which requests may be left unanswered."""


@dataclass(frozen=True)
class DatasetApplication:
    """The application that answers a data set, ready to be run by several threads.

    Args:
        workflow: Makes the inputs, and declares the keys of the answer.
        vine: Makes the policies.
        app: The compiled application.
        purses: The guard of each request in progress, which authorizes its calls.
    """

    workflow: Workflow
    vine: VineLM
    app: Any
    purses: Purses

    @property
    def vines(self) -> tuple[VineLM, ...]:
        """The ``VineLM`` objects of this application, for :class:`~vinelm.running.hosts.ServingApplication`."""
        return (self.vine,)

    @cached_property
    def _planner(self) -> Callable[[tuple[float, float]], Planner]:
        """A cached function that takes the weights of a dollar and of a second, and returns a planner for these weights.

        It is used for plans that came from another process.
        """
        return lru_cache(PLANNERS)(partial(priced, self.vine.served_planner()))

    @classmethod
    def of(cls, workflow: Workflow, annotated: AnnotatedTrie, catalog: Catalog, backends: Mapping[str, Backend]) -> Self:
        """Return the application of a workflow, served by these models with plans from the trie."""
        vine = VineLM(
            catalog,
            backends,
            trie=annotated,
            signals=workflow.signals,
            kind=workflow.kind,
            allow_unproven=True,  # the owner set the budget for this very plan
        )
        return cls(workflow, vine, build_graph(workflow, vine), Purses(vine.adapter))

    def order_calls(self, requests: Sequence[str], workers: int) -> OrderedModels:
        """From now on, let calls that wait for an engine's limits go in the order of these request ids. Return the chat models
        that do this.

        ``workers`` is the number of requests in progress at a time.
        """
        models = self.vine.models
        self.vine.adapter.models = ordered = OrderedModels(models.catalog, models.backends, requests, workers)
        ordered.equal = models.equal
        return ordered

    def keep_calls(self, kept: KeepsCalls) -> None:
        """From now on, make equal calls only once: store each answer in ``kept``, and answer later equal calls from there."""
        self.vine.models.equal = EqualCalls(kept, self.vine.adapter.deterministic)

    def serve(self, request: Request, plan: DrawnPlan, guard: CallGuard) -> Answer:
        """Run one request under ``plan``, and return its answer, which may also be a failed call or an error of the
        application.

        The request's id is its key. ``guard`` authorizes the calls.
        """
        vine, workflow, objective = self.vine, self.workflow, plan.objective
        planner = plan.planner or self._planner(plan.weights)
        policy = vine.session(objective, request=request, clock=vine.new_clock(), planner=planner)
        try:
            with self.purses.paying(policy, guard):
                state, failure, detail = final_state(workflow, vine, self.app, request, policy=policy, objective=objective)
        except WorkflowError as error:  # for example a graph that waits for a person; other rows may not
            state, failure, detail = None, "tool", str(error)
        text = None
        if failure is None:
            text, failure, detail = self._text(request, state)
        equal = [usage for done in policy.invocations for usage in done.usages if usage.is_equal]
        return Answer(
            key=request.id,
            answer=text,
            failure=failure,
            detail=detail,
            equal_calls=len(equal),
            saved_usd=sum(usage.list_usd or 0.0 for usage in equal),
            **measured(policy),
        )

    def _text(self, request: Request, state: Any) -> tuple[str | None, FailureKind | None, str | None]:
        """Return the graph's result as JSON; if it cannot be stored, return None, the failure's kind and its detail."""
        try:
            if self.workflow.answer:
                return self.workflow.signals.answer_text(state), None, None
            given = self.workflow.graph_input(request)
            values = dict(state) if isinstance(state, dict) else {"answer": state}
            return (
                canonical({key: value for key, value in values.items() if key != PATH_KEY and not _is(given, key, value)}),
                None,
                None,
            )
        except WorkflowError as error:
            return None, "tool", str(error)
        except BaseException as error:  # raised by one of the application's objects
            if not is_of_code(error):
                raise
            return None, "tool", type(error).__name__


class _HeapAtRest:
    """After the first request, exempts long-lived objects (dataset, libraries, clients) from garbage collection until the block
    ends.

    Otherwise scanning them repeatedly took a tenth of the processor time of a batch over HTTP.
    """

    def __enter__(self) -> _HeapAtRest:
        self._is_done = bool(gc.get_freeze_count())  # the application has frozen objects itself, and may rely on it
        self._is_ours = False
        return self

    def at(self, done: int) -> None:
        """Once the first request has ended, exempt all objects that exist then from garbage collection. ``done`` is the number
        of ended requests.
        """
        if done and not self._is_done:
            gc.collect()
            gc.freeze()
            self._is_done = self._is_ours = True

    def __exit__(self, *error: object) -> None:
        if self._is_ours:
            gc.unfreeze()


def _is(given: dict[str, Any], key: str, value: Any) -> bool:
    """Return whether the application left an input unchanged: ``value``, the value of ``key`` in the final state, is the input
    object itself.

    ``given`` has the graph's input.
    """
    return key in given and given[key] is value


class DatasetRun:
    """Serves the requests of a batch that have no answer yet. A request begins only if ``steering`` has a plan for it.

    Attributes:
        tally: Counts of requests by outcome, including those of interrupted runs.
        because: Why some requests are unanswered; None if all are answered.

    Args:
        app: The application.
        server: Serves the requests: the application, or a substitute such as other processes.
        found: The requests.
        answers: The stored answers.
        ledger: The ledger in which every call is reserved.
        steering: Chooses the plan of each request.
        elapsed_s: Returns the seconds since the batch was first started. None in virtual time, which is the requests' total
            seconds divided by the workers.
        deadline_s: The maximum duration of the batch in seconds; None sets no limit.
        workers: The number of requests in progress at a time, >= 1.
    """

    _orders_calls = True
    """Whether calls wait for the limits of engines in the order of the batch."""

    def __init__(
        self,
        app: DatasetApplication,
        found: DatasetRequests,
        answers: Answers,
        ledger: RequestLedger,
        steering: Steering,
        *,
        server: Server,
        elapsed_s: Callable[[], float] | None,
        deadline_s: float | None,
        workers: int,
    ) -> None:
        self._app, self._server, self._found, self._answers, self._ledger = app, server, found, answers, ledger
        self._steering, self._elapsed_s, self._workers = steering, elapsed_s, workers
        self._deadline_s = deadline_s
        self.tally = Tally(found)
        self.because: str | None = None
        self._virtual_s = 0.0
        self._crew = Crew(self._next, self._begin_to_end, size=workers, name="vinelm batch")
        self._lock = self._crew.changed
        self._guards: dict[str, UnitBudget] = {}
        self._ordered: OrderedModels | None = None
        self._is_over = False
        self._began_s = self._ended_s = time.monotonic()
        done = self._resumed()
        self._left = [key for key in reversed(found.order) if key not in done]
        self._total = len(found.order)
        self._done = len(done)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the batch was first started."""
        return self._virtual_s / self._workers if self._elapsed_s is None else self._elapsed_s()

    @property
    def committed_usd(self) -> float:
        """Dollars spent and reserved, including interrupted runs."""
        return self._ledger.committed_usd

    @property
    def left(self) -> int:
        """The number of different requests that have no answer so far."""
        return self._total - self._done

    @property
    def is_over(self) -> bool:
        """Whether :meth:`run` has ended without an error."""
        return self._is_over

    def run(self, on_done: Callable[[int, int], None]) -> None:
        """Serve until no request is left, money or time is used up, or Ctrl-C is pressed.

        After Ctrl-C the requests in progress may end; a second Ctrl-C does not wait for them. After the deadline, or after an
        error that ends the batch, the requests in progress get a grace period (:data:`GRACE_S`). A request that has not ended
        by then is abandoned: it makes no further call, and has no answer.

        Raises:
            VineLMError: The store or the configuration is invalid, or all first requests failed.
            KeyboardInterrupt: After the requests in progress have ended.
        """
        if self._orders_calls:
            self._ordered = self._app.order_calls([self._found.first[key].id for key in reversed(self._left)], self._workers)
        with self._ledger.ahead(lambda: len(self._left)):
            try:
                with _HeapAtRest() as heap:
                    self._crew.work(partial(self._tick, heap, on_done))
            except BaseException as raised:
                if raised is not self._crew.error:
                    self.because = INTERRUPTED
                raise
        self._is_over = True

    def _tick(self, heap: _HeapAtRest, on_done: Callable[[int, int], None]) -> None:
        on_done(self._done, self._total)
        heap.at(self._done)
        self._leave_behind()

    def _leave_behind(self) -> None:
        """Abandon the requests in progress if the grace period after the deadline or after an error is over; otherwise do
        nothing.

        Abandoned requests make no further call, so that the batch ends.
        """
        now_s, (most_s, least_s) = time.monotonic(), GRACE_S
        is_late = self._crew.error is not None and now_s >= self._crew.failed_at_s + most_s
        if self._deadline_s is not None:
            grace_s = min(max(0.1 * self._deadline_s, least_s), most_s)
            if self._elapsed_s is not None:
                is_late = is_late or self.elapsed_s >= self._deadline_s + grace_s
            else:  # virtual time stands still while a request hangs: real time without progress counts
                is_late = is_late or now_s >= max(self._began_s + self._deadline_s, self._ended_s) + grace_s
        if not is_late or self._crew.is_left:
            return
        with self._lock:
            self._crew.stop(leave=True)
            self.because = DEADLINE
            for guard in list(self._guards.values()):
                guard.close()

    def _resumed(self) -> set[str]:
        """Count the answers of interrupted runs; return the keys of the answered requests."""
        done: set[str] = set()
        for answer in self._answers.brief():
            done.add(answer.key)
            self.tally.add(answer)
            self._virtual_s += answer.latency_s
            self._steering.ended(answer.key, cost_usd=answer.cost_usd, seconds=answer.latency_s)
        return done

    def _begin_to_end(self, job: tuple[str, Request, DrawnPlan]) -> None:
        self._serve(*job)

    def _next(self) -> tuple[str, Request, DrawnPlan] | None:
        """Return the next request with its key and its plan; None if no further request should begin."""
        with self._lock:
            while not self._crew.is_stopping and self._left:
                key = self._left[-1]
                if self._steering.waits(key):
                    self._lock.wait(TICK_S)
                    continue
                self._left.pop()
                drawn = self._steering.next(key, elapsed_s=self.elapsed_s, reserved_usd=self._ledger.reserved_usd)
                if drawn is not None:
                    return key, self._found.first[key], drawn
                self.because = self.because or self._bound()
            return None

    def _bound(self) -> str:
        """Return the reason for an unanswered request: the deadline or the budget, whichever is used up further."""
        time_used = self.elapsed_s / self._deadline_s if self._deadline_s is not None else 0.0
        return DEADLINE if time_used > self._ledger.used else BUDGET

    def _serve(self, key: str, request: Request, drawn: DrawnPlan) -> None:
        made: list[Answer] = []
        lost_usd = 0.0

        def answer(guard: UnitBudget) -> Answer:
            nonlocal lost_usd
            self._guards[request.id] = guard
            try:
                made.append(replace(self._server.serve(request, drawn, guard), key=key))
            finally:
                del self._guards[request.id]
                if self._ordered is not None:
                    self._ordered.ended(request.id)
            beyond_usd = guard.spent_usd + guard.reserved_usd - made[0].cost_usd
            lost_usd = beyond_usd if beyond_usd > _ROUNDING_USD else 0.0
            return made[0]

        self._note_end(key, self._ledger.serve(request.id, answer, self._answers.add), made, lost_usd)

    def _note_end(self, key: str, found: Answer | None, made: Sequence[Answer], lost_usd: float = 0.0) -> None:
        """Count an ended request, and report its cost and seconds to the object that chooses the plans.

        Args:
            key: The request's key.
            found: The stored answer; None if the budget refused a call, so that the request stays unanswered.
            made: A list with the answer that this run has produced, whose cost and seconds are counted; empty if there is none.
            lost_usd: The dollars charged for calls of unknown outcome.
        """
        with self._lock:
            paid_usd, seconds = (made[0].cost_usd, made[0].latency_s) if made else (0.0, 0.0)
            self._steering.ended(key, cost_usd=paid_usd, seconds=seconds, lost_usd=lost_usd)
            self._virtual_s += seconds
            self._ended_s = time.monotonic()
            self._lock.notify_all()
            if found is None:
                self.because = BUDGET
                return
            self.tally.add(found)
            self._done += 1
            self._stop_if_broken()

    def _stop_if_broken(self) -> None:
        if not self.tally.by_status["ok"] and self._done >= FIRST_FAILURES:
            reason = next(iter(self.tally.reasons), "")
            raise StageBroken(
                f"the first {FIRST_FAILURES} requests all failed ({reason}): mend that and run the same line with another store"
            )

"""One unit of profiling: the last invocation of a (request, prefix), from the parent's checkpoint to the next stage, scored."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END
from langgraph.types import Command

from vinelm.adapters.langgraph import PATH_KEY, build_graph, with_graph_exits
from vinelm.catalog import Catalog
from vinelm.errors import CallError, FailureKind, InputError, VineLMError, WorkflowError
from vinelm.observation import Observation
from vinelm.profiler.budget.unit_budget import UnitBudget
from vinelm.profiler.execution.checkpoints import StateError, UnitSaver
from vinelm.profiler.execution.job import Job, TopUp, UnitOutcome
from vinelm.profiler.execution.unit_adapter import UNIT_BUDGET, UnitAdapter
from vinelm.profiler.execution.unit_policy import UnitPolicy
from vinelm.protocols import Backend
from vinelm.workflow import Request, Workflow


class UnitRunner:
    """Runs units of one workflow in this process. The graph is built once; each unit has a LangGraph thread of its own.

    Under the oracle stop rule a unit continues *past* the workflow's own stop: the check's verdict is recorded and does not end
    the request. Calls the models, which spends money. May be shared by threads as far as the workflow's own code allows.
    """

    def __init__(self, workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend]) -> None:
        self.workflow, self.catalog, self.backends = workflow, catalog, backends
        self.template = workflow.template.bind(tuple(catalog))
        self.control = UnitAdapter(catalog, backends, template=self.template)
        self.saver = UnitSaver()
        self.graph = build_graph(workflow, self.control, checkpointer=self.saver)
        self.template = self.control.adapter.template = with_graph_exits(self.template, self.graph)
        self._boundaries = [stage.name for stage in self.template.stages]
        self._first_boundaries = self._after_the_first()
        self._ending = self._after_the_loop()
        self._is_async = _is_async(self.graph.builder)
        self._threads = count()

    @property
    def is_virtual_time(self) -> bool:
        """Whether latencies do not pass on the wall."""
        return self.control.models.is_virtual_time

    def run(
        self, request: Request, prefix: tuple[str, ...], parent: bytes | None, budget: UnitBudget | None = None
    ) -> UnitOutcome:
        """Run the last invocation of ``prefix`` and the tools after it.

        Args:
            request: the request.
            prefix: the models of the invocations up to and including this one.
            parent: the checkpoint after ``prefix[:-1]``; None for the first invocation.
            budget: authorizes each call of a model; None to allow every call.

        Returns:
            The row and the checkpoint. A stage or tool that raises gives a row with its failure and the cost so far; a call
            that the budget refused gives no row.

        Raises:
            InputError: an error that every further unit would meet as well, such as a graph that does not follow its template
                or a missing key.
        """
        thread_id = f"u{next(self._threads)}"
        policy = UnitPolicy(self.template, prefix, self.control.models.new_clock(), request)
        token = UNIT_BUDGET.set(budget)
        try:
            problem = self._attempt(thread_id, policy, request, parent)
            if budget is not None and budget.was_refused:  # even if the application caught the exception
                return UnitOutcome(None, paid_usd=budget.spent_usd)
            if problem is not None:
                return UnitOutcome(self._failed(policy, problem))
            return self._finished(policy, request, thread_id)
        finally:
            UNIT_BUDGET.reset(token)
            self.saver.forget(thread_id)

    def _attempt(self, thread_id: str, policy: UnitPolicy, request: Request, parent: bytes | None) -> Exception | None:
        """Run the unit; return the exception that ended it, if any."""
        try:
            self._invoke(thread_id, policy, request, parent)
        except InputError:
            raise
        except Exception as error:
            return error
        return None

    # -- running -----------------------------------------------------------------------------------------------

    def _invoke(self, thread_id: str, policy: UnitPolicy, request: Request, parent: bytes | None) -> None:
        if parent is None:
            start = self.saver.normalised(self.workflow.graph_input(request))
            self._step(thread_id, policy, start, self._first_boundaries)
        else:
            self.saver.load(thread_id, parent[1:])
            if parent[:1] == _ENDED:  # the workflow stopped here: continue past its stop
                self._step(thread_id, policy, Command(goto=self._stage_of(policy.prefix)), self._boundaries)
        if not policy.invocations:
            self._step(thread_id, policy, None, self._boundaries)
        if not policy.invocations:
            stage = self._stage_of(policy.prefix)
            raise WorkflowError(
                f"workflow {self.workflow.name!r}: stage {stage!r} did not run as invocation {len(policy.prefix)} of request "
                f"{policy.request_id!r}: does the graph follow its template?"
            )

    def _after_the_first(self) -> list[str]:
        """The stages before which a first invocation pauses. The first stage is not among them if nothing precedes it and no
        loop visits it again: one step less, which saves a third of the overhead.
        """
        first, *rest = (stage.name for stage in self.template.invocations)
        opens_directly = ("__start__", first) in self.graph.builder.edges and first not in rest
        return [name for name in self._boundaries if name != first] if opens_directly else self._boundaries

    def _after_the_loop(self) -> str | None:
        """The node that every request goes through after the loop; None if there is none, or if the routes have several."""
        (end, *others) = self.control.ends or {END}
        return None if others or end == END or end in self._boundaries else end

    def _step(self, thread_id: str, policy: UnitPolicy, start: Any, boundaries: list[str]) -> None:
        """Run the graph up to the next of the boundaries, or to its end."""
        arguments: dict[str, Any] = {
            "config": _config(thread_id),
            "context": self.control.context(policy=policy, request=policy.request),
            "interrupt_before": boundaries,
            "durability": "exit",
        }
        graph = self.graph
        out = asyncio.run(graph.ainvoke(start, **arguments)) if self._is_async else graph.invoke(start, **arguments)
        if isinstance(out, Mapping) and "__interrupt__" in out and out["__interrupt__"]:
            raise WorkflowError(
                f"workflow {self.workflow.name!r} waits for a person (interrupt) in request {policy.request_id!r}: "
                "answer it in code while profiling"
            )

    def _stage_of(self, prefix: Sequence[str]) -> str:
        return self.template.invocations[len(prefix) - 1].name

    # -- the outcome ----------------------------------------------------------------------------------------------

    def _finished(self, policy: UnitPolicy, request: Request, thread_id: str) -> UnitOutcome:
        policy.at_boundary()
        snapshot = self.graph.get_state(_config(thread_id))
        waiting, depth = snapshot.next, len(policy.prefix)
        follower = self.template.stage_after(depth)
        if follower is not None and not set(waiting) <= {follower.name}:
            raise WorkflowError(
                f"workflow {self.workflow.name!r}: after {depth} invocations the graph goes to {', '.join(waiting)}, "
                f"its template to {follower.name!r}: make them agree"
            )
        stopped = policy.verdicts.get(depth, not waiting)
        values, problem = _values(snapshot.values), None
        if waiting and self._ending is not None and self.template.invocations[depth - 1].answerable:
            values, problem = self._ended(policy, thread_id, self._ending)
        success = False
        if problem is None:
            success, problem = self._score(request, values, depth)
        if problem is not None:
            return UnitOutcome(policy.observation("tool", problem))
        observation = policy.observation(success=success, stopped=stopped)
        if follower is None:
            return UnitOutcome(observation)
        return UnitOutcome(observation, (_WAITS if waiting else _ENDED) + self.saver.dump(thread_id))

    def _ended(self, policy: UnitPolicy, thread_id: str, ending: str) -> tuple[dict[str, Any], str | None]:
        """The state if the loop ended here: the nodes after the loop run on a copy. The second value says what went wrong."""
        fork = f"{thread_id}-ended"
        self.saver.load(fork, self.saver.dump(thread_id))
        try:
            self.graph.update_state(_config(fork), None, as_node=END)  # drop the pending next step
            self._step(fork, policy, Command(goto=ending), self._boundaries)
            return _values(self.graph.get_state(_config(fork)).values), None
        except InputError:
            raise
        except Exception as error:
            return {}, f"after the loop, {type(error).__name__}"  # its text may hold the answer
        finally:
            self.saver.forget(fork)

    def _failed(self, policy: UnitPolicy, error: Exception) -> Observation:
        last = policy.invocations[-1] if policy.invocations else None
        if isinstance(error, StateError):
            return policy.observation("state", str(error))
        if isinstance(error, MemoryError):
            return policy.observation("crash", "MemoryError: the unit needs more memory than its limit")
        if isinstance(error, VineLMError) and not isinstance(error, CallError):
            return policy.observation("tool", str(error))  # our own text, e.g. a call that reported a cost that is not finite
        if last is not None and last.failure is not None:
            return policy.observation(last.failure, last.detail)
        kind: FailureKind = error.kind if isinstance(error, CallError) else "tool"
        return policy.observation(kind, type(error).__name__)  # its text may hold a prompt

    def _score(self, request: Request, values: dict[str, Any], depth: int) -> tuple[bool, str | None]:
        """Success, and what is wrong with the scorer if it raised or did not return a bool."""
        if not self.template.invocations[depth - 1].answerable:
            return False, None
        try:
            verdict: object = self.workflow.score(request, values)
        except Exception as error:
            return False, f"score raised {type(error).__name__}"
        if not isinstance(verdict, (bool, np.bool_)):
            return False, f"score returned {type(verdict).__name__}, not a bool"
        return bool(verdict), None


def _config(thread_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}


def _values(state: Any) -> dict[str, Any]:
    """The state's own keys, as a checkpoint gives them back."""
    values = state if isinstance(state, Mapping) else vars(state)
    return {key: value for key, value in values.items() if key != PATH_KEY}


def _is_async(builder: Any) -> bool:
    """Some node or edge exists only as a coroutine: the graph must be run by ``ainvoke``."""
    nodes = [node.runnable for node in builder.nodes.values()]
    edges = [branch.path for branches in builder.branches.values() for branch in branches.values()]
    return any(getattr(runnable, "func", runnable) is None for runnable in (*nodes, *edges))


class LocalWorker:
    """Runs units in this process; the :class:`~vinelm.profiler.execution.job.Worker` of ``thread`` and ``inline``."""

    def __init__(self, units: UnitRunner) -> None:
        self._units = units

    def run(self, job: Job, top_up: TopUp) -> UnitOutcome:
        """See :meth:`~vinelm.profiler.execution.job.Worker.run`."""
        return self._units.run(job.request, job.prefix, job.parent, UnitBudget(job.upper_usd, top_up))

    def close(self) -> None:
        """Nothing to stop: a thread finishes its unit."""


_WAITS, _ENDED = b"w", b"e"
"""First byte of a checkpoint: the run waits before the next stage, or has ended by the workflow's own stop."""


def warm_up() -> None:
    """Run a trivial graph, so that what LangGraph imports and builds on first use is loaded before a process forks."""
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

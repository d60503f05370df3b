"""Runs an application from its start until a replayed job ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import count
from typing import Any, cast

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Interrupt

from vinelm.adapters.langgraph.inner_app import FunctionApp, runs_async
from vinelm.adapters.langgraph.path.path_channel import PATH_KEY
from vinelm.adapters.langgraph.runs.run_context import RunContext
from vinelm.adapters.langgraph.stated_settings import apart, refuse_for_function, stated_configurable, stated_context
from vinelm.profiler.execution.replayed.policy import ReplayPolicy, StageParkedError
from vinelm.profiler.execution.unit_policy import StageReachedError, answered
from vinelm.requests.workflow import Request, Workflow

_MOST_STEPS = 100_000
"""The most steps that one run may take; the template bounds its calls."""
_LONGEST_WAIT_S = 1.0  # for a thread that may itself wait for the event loop
_GRACE_S = 1.0
"""How long a function of the application may take to return after its job has ended."""


class Application:
    """A graph, entrypoint or function that can be run for many jobs. Threads may share this object.

    Attributes:
        has_supersteps: False for an entrypoint, all of whose tasks run in one superstep.

    Args:
        app: what :func:`vinelm.adapters.langgraph.build_graph` returned.
        workflow: the workflow, which defines the input of the graph and the answers to its interrupts.
    """

    def __init__(self, app: Any, workflow: Workflow) -> None:
        self._workflow = workflow
        self._is_function = isinstance(app, FunctionApp)
        refuse_for_function(workflow, app)
        self._keeps_states = not self._is_function and (
            app.checkpointer not in {None, False} or workflow.answer_interrupt is not None
        )
        self._app = app
        self._is_async = app.is_async if self._is_function else runs_async(app)
        self._threads = count()
        self.has_supersteps = self._is_function or isinstance(app, CompiledStateGraph)

    def run(self, request: Request, run: RunContext, policy: ReplayPolicy, callbacks: list[Any]) -> dict[str, Any] | None:
        """Run the application on a request, with the settings of ``run``, until it returns or the job ends.

        Returns:
            The state after the last superstep; for a function or an entrypoint its return value, or None if it did not return.

        Raises:
            WorkflowError: the graph has an interrupt that only a person can answer.
        """
        inputs = self._workflow.graph_input(request)
        config: dict[str, Any] = {"recursion_limit": _MOST_STEPS}
        if callbacks:
            config["callbacks"] = callbacks
        if self._is_function:
            return self._run_function(inputs, config, run, policy)
        context = stated_context(self._workflow, request, run, self._app)
        stated, app = stated_configurable(self._workflow, request), self._app
        if self._keeps_states:
            app, stated = apart(app, stated, f"u{next(self._threads)}")
        if stated:
            config["configurable"] = stated
        if self._is_async:
            return asyncio.run(_in_order(self._run_graph_async(app, inputs, config, context, policy), policy))
        return self._run_graph(app, inputs, config, context, policy)

    def _run_graph(
        self, app: Any, inputs: Any, config: dict[str, Any], context: Any, policy: ReplayPolicy
    ) -> dict[str, Any] | None:
        state = _State(policy, self._workflow)
        start = inputs
        try:
            while start is not None:
                for values in app.stream(start, config, context=context, stream_mode="values"):
                    state.add(values)
                start = state.take_answer()
        except (StageReachedError, StageParkedError):
            pass
        return state.values

    async def _run_graph_async(
        self, app: Any, inputs: Any, config: dict[str, Any], context: Any, policy: ReplayPolicy
    ) -> dict[str, Any] | None:
        state = _State(policy, self._workflow)
        start = inputs
        try:
            while start is not None:
                stream: AsyncIterator[Any] = app.astream(start, config, context=context, stream_mode="values")
                async for values in stream:
                    state.add(values)
                start = state.take_answer()
        except (StageReachedError, StageParkedError):
            await policy.calls_end()
        return state.values

    def _run_function(self, inputs: Any, config: dict[str, Any], context: Any, policy: ReplayPolicy) -> dict[str, Any] | None:
        app: FunctionApp = self._app

        async def run() -> dict[str, Any] | None:
            try:
                return await app.ainvoke(inputs, context=context)
            except (StageReachedError, StageParkedError):
                await policy.calls_end()
                return None

        with _inherited({**config, "max_concurrency": 1}):
            if self._is_async:
                return asyncio.run(_in_order(_returned(run(), policy), policy))
            try:
                return app.invoke(inputs, context=context)
            except (StageReachedError, StageParkedError):
                return None


class _State:
    """The last state of a graph before the job ended (``values``), and the interrupts that wait for an answer."""

    def __init__(self, policy: ReplayPolicy, workflow: Workflow) -> None:
        self._policy, self._workflow = policy, workflow
        self._asked: Sequence[Interrupt] = ()
        self.values: dict[str, Any] | None = None

    def add(self, values: Any) -> None:
        if isinstance(values, Mapping) and values.get("__interrupt__"):
            self._asked = values["__interrupt__"]
            return
        if self._policy.reached is None:  # what follows was computed without the answers that the unit did not buy
            found = values if isinstance(values, Mapping) else getattr(values, "__dict__", {"output": values})
            self.values = {key: value for key, value in found.items() if key != PATH_KEY}

    def take_answer(self) -> Any:
        """Return the value that resumes the interrupted graph; None if it is not interrupted."""
        asked, self._asked = self._asked, ()
        return answered(self._workflow, self._policy, asked) if asked else None


class _InOrder(ThreadPoolExecutor):
    """An executor that makes the event loop wait for each thread in turn while recorded answers are replayed.

    Otherwise thread timing would decide which coroutine continues first, and a replay could make its calls in a different order
    than was recorded.
    """

    def __init__(self, policy: ReplayPolicy) -> None:
        super().__init__()
        self._policy = policy

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done = super().submit(fn, *args, **kwargs)
        if self._policy.is_replaying:
            wait([done], timeout=_LONGEST_WAIT_S)
        return done


async def _in_order(run: Coroutine[Any, Any, dict[str, Any] | None], policy: ReplayPolicy) -> dict[str, Any] | None:
    asyncio.get_running_loop().set_default_executor(_InOrder(policy))
    return await run


async def _returned(run: Coroutine[Any, Any, dict[str, Any] | None], policy: ReplayPolicy) -> dict[str, Any] | None:
    """Await a function of the application and return its result; None if it does not return after the job has ended.

    The exception that ends the job may be lost in another task, such as a step of a LlamaIndex workflow, or be caught and
    retried. The function would then wait forever, or for long.
    """
    running = asyncio.ensure_future(run)
    while not running.done():
        has_ended = policy.halted is not None
        await asyncio.wait([running], timeout=_GRACE_S)
        if has_ended and not running.done():
            await policy.calls_end()
            running.cancel()
            await asyncio.wait([running], timeout=_GRACE_S)
            return None
    return running.result()


@contextmanager
def _inherited(config: dict[str, Any]) -> Iterator[None]:
    """Inside the block, let everything that a function runs inherit the callbacks and the ``max_concurrency`` in ``config``.

    With a ``max_concurrency`` of 1, graphs that the function runs make their calls in a fixed order.
    """
    kept = {name: config[name] for name in ("callbacks", "max_concurrency") if name in config}
    token = var_child_runnable_config.set(cast("Any", kept))
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


class RepeatGuard(BaseCallbackHandler):
    """Ends a replay that is about to repeat a node or tool that must not run twice.

    LangChain calls it before each node and tool.

    Args:
        policy: the policy of the replayed job.
        names: the nodes and tools that must not run again.
    """

    raise_error = True
    run_inline = True

    def __init__(self, policy: ReplayPolicy, names: tuple[str, ...]) -> None:
        self._policy, self._names = policy, frozenset(names)

    def on_tool_start(self, serialized: Mapping[str, Any] | None, input_str: str, **kwargs: Any) -> None:
        """Raise if the tool that is about to run must not run again and earlier invocations are still being replayed."""
        self._refuse(kwargs.get("name") or (serialized or {}).get("name"))

    def on_chain_start(self, serialized: Mapping[str, Any] | None, inputs: Any, **kwargs: Any) -> None:
        """Raise if the node that is about to run must not run again and earlier invocations are still being replayed."""
        node = (kwargs.get("metadata") or {}).get("langgraph_node")
        if kwargs.get("name") == node:
            self._refuse(node)

    def _refuse(self, name: Any) -> None:
        if name in self._names and self._policy.is_replaying:
            raise self._policy.refused(str(name))

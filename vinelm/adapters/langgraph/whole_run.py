"""Whole runs of an application that serve labelled requests, one after the other: as its own service would run it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from vinelm.adapters.langgraph.inner_app import FunctionApp, runs_async
from vinelm.errors import WorkflowError
from vinelm.requests.workflow import Request, Workflow

MOST_ANSWERS = 100
"""Interrupts of one request that are answered; a graph that asks more often asks for ever."""


class WholeRuns:
    """Runs an application from its start to its end, whatever kind it is: with async nodes, a checkpointer, interrupts.

    Args:
        app: what :func:`vinelm.adapters.langgraph.build_graph` returned.
        workflow: makes the inputs and answers the interrupts.
    """

    def __init__(self, app: Any, workflow: Workflow) -> None:
        self._workflow = workflow
        is_function = isinstance(app, FunctionApp)
        self._has_threads = False
        if not is_function and (app.checkpointer not in {None, False} or workflow.answer_interrupt is not None):
            self._has_threads = True  # the application's own saver would keep what a verdict asks
            app = app.copy(update={"checkpointer": InMemorySaver()})
        self._app = app
        self._is_async = app.is_async if is_function else runs_async(app)
        self._threads = count()

    def invoke(self, request: Request, context: Any) -> Any:
        """Return the final state for a request. Spends money with real models, and raises what the application raises.

        Raises:
            WorkflowError: the graph waits for a person, and the workflow answers no interrupt.
        """
        given: Any = self._workflow.graph_input(request)
        config = {"configurable": {"thread_id": f"request-{next(self._threads)}"}} if self._has_threads else None
        for _ in range(MOST_ANSWERS):
            state = self._invoked(given, config, context)
            asked = state.get("__interrupt__") if isinstance(state, Mapping) else None
            if not asked:
                return state
            if self._workflow.answer_interrupt is None:
                raise WorkflowError("the graph waits for a person: answer it in code, with Workflow(answer_interrupt=)")
            given = Command(resume=self._workflow.answer_interrupt(request, asked[0].value))
        raise WorkflowError(f"the graph still waits for a person after {MOST_ANSWERS} answers")

    def _invoked(self, given: Any, config: Any, context: Any) -> Any:
        if self._is_async:
            return asyncio.run(self._app.ainvoke(given, config, context=context))
        return self._app.invoke(given, config, context=context)

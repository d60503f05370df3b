"""Runs an application for one labelled request, just as the application's own service would run it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from langgraph.types import Command

from vinelm.adapters.langgraph.inner_app import FunctionApp, runs_async
from vinelm.adapters.langgraph.runs.run_context import RunContext
from vinelm.adapters.langgraph.stated_settings import apart, stated_configurable, stated_context
from vinelm.errors import WorkflowError
from vinelm.requests.workflow import Request, Workflow

MOST_ANSWERS = 100
"""How many interrupts of one request are answered; a graph with more is assumed to ask for ever."""


def whole_run(workflow: Workflow, app: Any, request: Request, run: RunContext) -> Any:
    """Run the application for a request, and return its final state. Spends money with real models; the application's
    exceptions pass through.

    The application may have async nodes, a checkpointer, interrupts, a context and settings.

    Args:
        workflow: Makes the inputs, sets context and settings, and answers the interrupts.
        app: The result of :func:`vinelm.adapters.langgraph.build_graph`.
        request: The request.
        run: The result of ``vine.context(...)``.

    Raises:
        WorkflowError: The graph waits for a person, and the workflow answers no interrupt.
    """
    context, stated = stated_context(workflow, request, run, app), stated_configurable(workflow, request)
    is_function = isinstance(app, FunctionApp)
    if not is_function and (app.checkpointer not in {None, False} or workflow.answer_interrupt is not None):
        app, stated = apart(app, stated, request.id)
    is_async = app.is_async if is_function else runs_async(app)
    given: Any = workflow.graph_input(request)
    for _ in range(MOST_ANSWERS):
        config = {"configurable": stated}
        if is_async:
            state = asyncio.run(app.ainvoke(given, config, context=context))
        else:
            state = app.invoke(given, config, context=context)
        asked = state.get("__interrupt__") if isinstance(state, Mapping) else None
        if not asked:
            return state
        if workflow.answer_interrupt is None:
            raise WorkflowError("the graph waits for a person: answer it in code, with Workflow(answer_interrupt=)")
        given = Command(resume=workflow.answer_interrupt(request, asked[0].value))
    raise WorkflowError(f"the graph still waits for a person after {MOST_ANSWERS} answers")

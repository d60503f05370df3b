"""Computes the settings that a workflow passes to the runs of its requests: the application's context, and
``config["configurable"]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from inspect import isclass
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from vinelm.adapters.langgraph.inner_app import FunctionApp
from vinelm.adapters.langgraph.path.copied import copied
from vinelm.adapters.langgraph.runs.run_context import RunContext, attach
from vinelm.errors import VineLMError, WorkflowError
from vinelm.foreign_code import explained
from vinelm.requests.workflow import Request, Workflow

_OURS = ("checkpoint_id", "checkpoint_ns", "checkpoint_map")
"""Keys that say where a run begins, which the application must not set while it is profiled."""


def stated_configurable(workflow: Workflow, request: Request) -> dict[str, Any]:
    """Return the workflow's ``configurable`` for the request's runs; empty if it sets none.

    Raises:
        WorkflowError: the workflow's setting is not a mapping, or has a key reserved by LangGraph.
    """
    if workflow.configurable is None:
        return {}
    found = _stated(workflow, "configurable", workflow.configurable, request)
    if not isinstance(found, Mapping) or not all(isinstance(key, str) for key in found):
        raise WorkflowError(
            f"{_label(workflow, 'configurable')} returned {type(found).__name__}: return a dict with texts as keys"
        )
    for key in found:
        if key in _OURS or key.startswith("__"):
            label = _label(workflow, "configurable")
            raise WorkflowError(f"{label} has a key {key!r}, which LangGraph keeps for itself: leave it out")
    return dict(found)


def stated_context(workflow: Workflow, request: Request, run: RunContext, app: Any) -> Any:
    """Return the context to pass to ``app``: the application's context, which carries ``run``.

    Raises:
        WorkflowError: the workflow's own code raised.
        ConfigError: the context cannot carry VineLM's settings.
    """
    if workflow.context is None:
        return run
    found = _stated(workflow, "context", workflow.context, request)
    schema = getattr(app, "context_schema", None)
    # LangGraph makes an object of the schema from a dict, and would find one key too many if the dict carries ours.
    if isinstance(found, Mapping) and isclass(schema) and (is_dataclass(schema) or issubclass(schema, BaseModel)):
        found = _stated(workflow, "context", lambda _: schema(**found), request)
    return attach(run, found)


def apart(app: Any, stated: dict[str, Any], thread_id: str) -> tuple[Any, dict[str, Any]]:
    """Return the application with a separate checkpointer for one run, and the ``configurable`` to run it with.

    The application's own checkpointer would keep the run's states permanently, or mix them with those of another run.
    ``stated`` is the workflow's ``configurable``; if it has no thread id, ``thread_id`` is used.
    """
    return copied(app, checkpointer=InMemorySaver()), {"thread_id": thread_id, **stated}


def refuse_for_function(workflow: Workflow, app: Any) -> None:
    """Raise :class:`WorkflowError` if a workflow of a plain function sets LangGraph options, which have no effect there."""
    for name in ("context", "configurable"):
        if isinstance(app, FunctionApp) and getattr(workflow, name) is not None:
            label = _label(workflow, name)
            raise WorkflowError(f"{label} has no effect: build(vine) returned a function, which gets its inputs only")


def _stated(workflow: Workflow, name: str, ask: Callable[[Request], Any], request: Request) -> Any:
    def failed(error: Exception) -> WorkflowError:
        return WorkflowError(f"{_label(workflow, name)} raised {type(error).__name__} for request {request.id!r}")

    with explained(failed, passes=(VineLMError,)):
        return ask(request)


def _label(workflow: Workflow, name: str) -> str:
    return f"workflow {workflow.name!r}: its {name}(request)"

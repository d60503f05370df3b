"""Makes a workflow from a graph and a file of inputs. Its requests can run, but are not scored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vinelm.api import VineLM
from vinelm.datasets import RequestSet
from vinelm.errors import ConfigError
from vinelm.requests.workflow import Request, Workflow
from vinelm.scaffold.application import read_application


def graph_workflow(spec: str, folder: Path, requests: RequestSet) -> tuple[Workflow, VineLM | None]:
    """Return (workflow, the ``VineLM`` object in the graph's module); the object is None unless the module has exactly one.

    Args:
        spec: ``FILE.py:GRAPH``, as :func:`~vinelm.scaffold.target.find_target` takes it.
        folder: The working folder.
        requests: The rows, each of which is an input of the graph.

    Raises:
        ConfigError: No graph is named, or ``spec`` names code without a graph. Or the code makes models that VineLM does not
            wrap, so that it could not limit their cost.
        WorkflowError: The graph cannot be imported or built, or no node of it calls a chat model.
    """
    app = read_application(spec, folder)
    if app.target.is_code:
        raise ConfigError(f"{app.target.spec} is code without a graph: give it a workflow (docs/langgraph.md), and name that")
    known = {id(value): value for value in vars(app.target.module).values() if isinstance(value, VineLM)}
    own = next(iter(known.values())) if len(known) == 1 else None
    # Ready chat models of a catalog are made by the application, and called by VineLM.
    if app.calls and not (own is not None and own.catalog.live):
        places = ", ".join(f"{call.path.name}:{call.line}" for call in app.calls)
        raise ConfigError(
            f"{app.target.spec} makes its own models ({places}), whose dollars VineLM cannot bound: put vine.around(...) "
            "around them as `vinelm init` says, and run the same line again"
        )
    workflow = Workflow(
        name=app.target.module.__name__.rpartition(".")[2],
        build=app.target.built,
        requests=requests.requests,
        score=_unjudged,
        labels=tuple(requests.labels),
    )
    return workflow, own


def _unjudged(request: Request, state: Mapping[str, Any]) -> bool:
    return False

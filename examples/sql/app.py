"""Example (a): a text-to-SQL service. ``python -m examples.sql.app``, with ``--port`` over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from examples.example_cli import ServiceSettings, run
from examples.sql.graph import graph_over
from vinelm import Workflow
from vinelm.template import Loop, Stage, Template
from vinelm.workflows.nl2sql import ANSWER, SameRows, Scorer, SqlWriter, load_bundled, resource_digests, sql_signal


def workflow() -> Workflow:
    """Return the workflow: up to three statements per question, on the bundled databases."""
    data = load_bundled()
    databases = data.databases
    return Workflow(
        name="sql-service",
        template=Template((Loop((Stage("write"),), times=3),)),
        build=graph_over(databases),
        requests=data.requests,
        score=Scorer(data),
        labels=("gold_sql",),
        writer=SqlWriter(databases.folder),
        resources=resource_digests(data),
        signal=sql_signal,
        agree=SameRows(databases),
        answer=ANSWER,
    )


def answer(state: Mapping[str, Any]) -> str:
    """Render the service's answer: the statement on one line, the number of rows and the status."""
    return f"{' '.join(state['sql'].split())} -> {state['row_count']} rows ({state['status']})"


def listen(served: ServiceSettings) -> int:
    """Answer over HTTP until interrupted."""
    from examples.sql.http_server import serve
    from examples.sql.http_service import HttpService

    service = HttpService(served.workflow, served.vine, served.app, served.objective, is_simulated=served.is_simulated)
    return serve(service, served.port)


if __name__ == "__main__":
    raise SystemExit(run(workflow(), "examples.sql.app:workflow", answer, serve=listen))

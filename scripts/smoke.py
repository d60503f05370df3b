"""Profile, estimate, plan, run a batch and serve on simulated models, in one process: exit code 0 if all of it works.

    python scripts/smoke.py

`make floors` runs it where every dependency has the lowest version that pyproject.toml declares.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "docs" / "examples"
BOUNDS = "--dataset questions.jsonl --trie app.vine --budget-usd 0.2 --quiet"
LINES = (
    "profile my_app:workflow --models models.toml --store app.db --coverage 0.2 --isolation thread --quiet",
    "store check app.db",
    "estimate app.db -o app.vine --max-error 1",
    "plan app.vine --maximize accuracy --max-cost-usd 0.001",
    f"batch my_app:workflow {BOUNDS} --maximize accuracy --deadline 1h -o dollars.jsonl",
    f"batch my_app:workflow {BOUNDS} --maximize accuracy --deadline 20s -o seconds.jsonl",
    f"batch my_app:workflow {BOUNDS} --minimize cost --min-accuracy 0.7 --deadline 30s -o floor.jsonl",
    "evaluate app.db",
    "report app.db app.vine -o report",
)


def main() -> int:
    """Run every line in a folder of its own, then serve one request."""
    from vinelm.cli.main import main as vinelm

    with tempfile.TemporaryDirectory() as name:
        folder = shutil.copytree(EXAMPLES, Path(name) / "app")
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        for line in LINES:
            print(f"$ vinelm {line}", flush=True)
            if code := vinelm(line.split()):
                return code
        answers = [json.loads(line) for line in (folder / "dollars.jsonl").read_text(encoding="utf-8").splitlines()]
        assert all(answer["status"] == "ok" for answer in answers), "a request of the batch was not answered"
        serve()
        os.chdir(EXAMPLES)
    return 0


def serve() -> None:
    """Answer one request by a plan."""
    from vinelm import Catalog, Objective, VineLM, load_workflow
    from vinelm.adapters.langgraph import build_graph
    from vinelm.backends import create_backends

    workflow = load_workflow("my_app:workflow")
    catalog = Catalog.from_file("models.toml")
    with VineLM(catalog, create_backends(catalog, workflow=workflow), trie="app.vine", allow_unproven=True) as vine:
        app, request = build_graph(workflow, vine), workflow.requests[0]
        context = vine.context(Objective(maximize="accuracy", max_cost_usd=0.01), request=request, request_id=request.id)
        state = app.invoke(workflow.graph_input(request), context=context)
    print(f"served: {state['answer']}")


if __name__ == "__main__":
    sys.exit(main())

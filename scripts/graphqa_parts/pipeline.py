"""The bundled workflow from profile to served requests, through the verbs that an application uses, with simulated models."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import vinelm
from vinelm.backends.offline.presets import simulated_catalog
from vinelm.vinefile import save_trie
from vinelm.workflows import load_workflow

CALLS, PROFILED, SERVED = 400, 120, 10


def measured() -> dict[str, Any]:
    """Seconds of each step. The profile makes 400 calls; ten held-out requests are served under each policy."""
    marks = [("start", time.perf_counter())]
    with tempfile.TemporaryDirectory() as folder:
        store, file = Path(folder) / "graphqa.db", Path(folder) / "graphqa.vine"
        workflow = load_workflow("graphqa")
        marks.append(("load_s", time.perf_counter()))
        catalog = simulated_catalog(workflow.simulated_preset)
        profiled = vinelm.profile(workflow, catalog, store, requests=workflow.requests[:PROFILED], budget_calls=CALLS)
        marks.append(("profile_s", time.perf_counter()))
        trie = vinelm.estimate(store, check=False)
        save_trie(file, trie)
        marks.append(("estimate_s", time.perf_counter()))
        cap_usd = 2.0 * profiled.spent_usd / PROFILED
        goal = vinelm.Objective(maximize="accuracy", max_cost_usd=cap_usd)
        vinelm.plan(file, goal)
        marks.append(("plan_s", time.perf_counter()))
        found = vinelm.evaluate(store, trie, goal, serve=SERVED, workflow=workflow)
        marks.append(("serve_s", time.perf_counter()))
    took = {name: at - before for (name, at), (_, before) in zip(marks[1:], marks, strict=False)}
    return took | {"total_s": sum(took.values()), "rows": profiled.executed, "served": found.requests, "is_simulated": True}

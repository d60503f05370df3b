"""Thirteen well-known LangGraph application shapes: profiled, estimated, planned and served, on simulated models.

    python scripts/shapes.py                     # a table
    python scripts/shapes.py --json              # one object
    python scripts/shapes.py --shape router      # one of them

Each shape stands in ``apps/shapes/NAME``: ``graph_before.py`` as its public tutorial writes it, ``graph.py`` with VineLM. Per
shape:

- ``supported``: whether it was checked, profiled, estimated, planned and served; ``failed`` says what went wrong otherwise.
- ``changed_lines``: lines that differ between the two graphs.
- ``profile_rows``, ``coverage``: what was profiled.
- ``mae_points``: mean error, in points, of the estimated accuracy of some fixed plans (a model per stage) against the accuracy
  of serving them to requests that were not profiled. It holds the sampling noise of both; ``noise_points`` is that of the
  serving alone (one standard deviation).
- ``plan_vs_static``: accuracy and dollars of the served plan and of the best fixed plan, which the same trie chose for the same
  objective: the most accurate plan within half of the dollars of the most accurate fixed one.

The models are simulated: no figure says anything about a real one. Exit code 1 if more than one shape is not supported.
"""

from __future__ import annotations

import difflib
import os
import random
import sys
import tempfile
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "apps"))  # before this folder, which has a module of the same name

from shapes.measuring import Service, best_fixed_plan, expected, fixed_plans, profiled  # noqa: E402
from studies import Options, each, study  # noqa: E402

from vinelm import Objective  # noqa: E402
from vinelm.api.estimation import estimate_store  # noqa: E402

SHAPES = (
    "router",
    "corrective_rag",
    "self_rag",
    "plan_and_execute",
    "reflection",
    "react",
    "supervisor",
    "map_reduce",
    "parallel_experts",
    "sql_agent",
    "human_in_the_loop",
    "multi_turn",
    "graph_agents",
)
PROFILED, SERVED = 800, 100
PLANS = 4
"""Fixed plans that are served to measure the estimate."""


def main() -> int:
    """Measure the shapes and print what was found."""
    options = {
        "--shape": (None, "only this shape; may be given again", {"action": "append", "choices": SHAPES}),
        "--calls": (600, "model calls of each profile [default: 600]"),
        "--coverage": (0.1, "coverage at which a profile ends [default: 0.1]"),
        "--jobs": (2, "shapes at a time [default: 2]"),
        "--seed": (0, ""),
    }
    return study(__doc__, options, all_measured, fails=lambda found: len(found["unsupported"]) > 1)


def all_measured(options: Options) -> dict[str, Any]:
    found, started, names = {}, time.perf_counter(), options.shape or SHAPES
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # in the processes of the pool: they share the cores
    for name, one in zip(names, each(partial(trial, options=options), names, jobs=options.jobs, start="spawn"), strict=True):
        found[name] = one
        options.say(line(name, one))
    unsupported = [name for name, one in found.items() if not one["supported"]]
    seconds = round(time.perf_counter() - started, 1)
    options.say(f"{len(found) - len(unsupported)} of {len(found)} shapes supported, {seconds} s. Simulated models.")
    return {"shapes": found, "unsupported": unsupported, "seconds": seconds, "models": "simulated"}


def trial(name: str, options: Options) -> dict[str, Any]:
    """What one shape came to; an error ends its trial and is noted."""
    started = time.perf_counter()
    found: dict[str, Any] = {"supported": False, "changed_lines": changed_lines(name)}
    try:
        found |= measured(name, options)
        found["supported"] = True
    except Exception as error:
        found["failed"] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    found["seconds"] = round(time.perf_counter() - started, 1)
    return found


def measured(name: str, options: Options) -> dict[str, Any]:
    """Profile, estimate, plan and serve one shape."""
    shape = import_module(f"shapes.{name}.workflow").shape
    requests = shape.workflow.requests
    learned, served = requests[:PROFILED], requests[PROFILED : PROFILED + SERVED]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shape.db"
        rows = profiled(shape, path, learned, options.seed, budget_calls=options.calls, coverage=options.coverage)
        annotated = estimate_store(path, estimator="latent")
    service = Service(shape, annotated, options.seed)
    plans = fixed_plans(annotated)
    best, dollars = max((expected(annotated, models) for models in plans), key=lambda item: (item[0], -item[1]))
    objective = Objective(maximize="accuracy", max_cost_usd=dollars / 2)
    static = best_fixed_plan(annotated, objective)
    ours, theirs = service.planned(objective, served), service.fixed(static, served)
    errors = []
    for models in random.Random(options.seed).sample(plans, min(PLANS, len(plans))):
        errors.append(abs(expected(annotated, models)[0] - service.fixed(models, served).accuracy))
    return {
        "profile_rows": rows,
        "coverage": _rounded(annotated.meta["coverage"]),
        "nodes": annotated.trie.n_nodes,
        "mae_points": round(100 * sum(errors) / len(errors), 1),
        "noise_points": round(100 * (best * (1 - best) / len(served)) ** 0.5, 1),
        "plan_vs_static": {
            "max_cost_usd": _rounded(dollars / 2),
            "plan": {"accuracy": _rounded(ours.accuracy), "cost_usd": _rounded(ours.cost_usd)},
            "static": {"accuracy": _rounded(theirs.accuracy), "cost_usd": _rounded(theirs.cost_usd), "models": static},
            "points": round(100 * (ours.accuracy - theirs.accuracy), 1),
            "requests": len(served),
        },
    }


def changed_lines(name: str) -> int:
    """Lines that are changed, added or removed between the two graphs; blank ones do not count."""
    folder = ROOT / "apps" / "shapes" / name
    old, new = ((folder / file).read_text(encoding="utf-8").splitlines() for file in ("graph_before.py", "graph.py"))
    count = 0
    for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            count += max(sum(bool(text.strip()) for text in part) for part in (old[a:b], new[c:d]))
    return count


def line(name: str, found: dict[str, Any]) -> str:
    """One shape as a line of the table."""
    if not found["supported"]:
        return f"{name:18s} not supported: {found['failed']}"
    both = found["plan_vs_static"]
    size = f"{found['changed_lines']} lines, {found['profile_rows']:4d} rows, {found['nodes']:6,d} nodes"
    compared = " against ".join(f"{one['accuracy']:.1%} for ${one['cost_usd']:.5f}" for one in (both["plan"], both["static"]))
    estimate = f"MAE {found['mae_points']:4.1f} points (serving alone: sd {found['noise_points']:.1f})"
    return f"{name:18s} {size}, {estimate}; within ${both['max_cost_usd']:.5f}: plan {compared} static ({found['seconds']} s)"


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


if __name__ == "__main__":
    sys.exit(main())

"""Example (c): generate, test, fix, with the code in a sandbox. ``python -m examples.coding.app``.

Model-written code runs only behind a boundary (:mod:`examples.coding.boundary`), which needs bubblewrap.
"""

from __future__ import annotations

import ast
import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.coding.boundary import allow_unsafe, require_boundary, warn_if_unsafe
from examples.coding.graph import build
from examples.coding.sandbox import run_tests
from examples.example_cli import Defaults, Flag, run
from vinelm import Request, Workflow
from vinelm.template import Loop, Stage, Template


@dataclass(frozen=True, slots=True)
class Task:
    """A function to write.

    Args:
        name: name of the function.
        text: the task.
        right: a solution.
        failing_visible: a wrong solution that fails the visible tests.
        passing_visible: a wrong solution that fails only the hidden tests.
        visible: expressions that must be true, one a line, for the loop.
        hidden: the same for scoring.
        hard: difficulty in [0, 1].
    """

    name: str
    text: str
    right: str
    failing_visible: str
    passing_visible: str
    visible: str
    hidden: str
    hard: float


TASKS = tuple(
    Task(**{name: value.lstrip("\n") if name in ("visible", "hidden") else value for name, value in row.items()})
    for row in tomllib.loads((Path(__file__).parent / "data" / "tasks.toml").read_text(encoding="utf-8"))["task"]
)
_BY_NAME = {task.name: task for task in TASKS}


def requests() -> list[Request]:
    """Return one request per task; the hidden tests are the label."""
    return [Request(task.name, {"task": task.text, "tests": task.visible, "hidden": task.hidden}) for task in TASKS]


def score(request: Request, state: Mapping[str, Any]) -> bool:
    """Return whether the code passes the hidden tests."""
    return bool(state.get("code")) and run_tests(state["code"], request.data["hidden"])[0]


class CodeWriter:
    """The answers of simulated models: the solution, or a wrong one that the visible tests detect or do not detect.

    The kinds are those of the simulated models' errors: ``syntax_error`` does not parse, ``wrong_value`` fails a visible test,
    ``missing_filter`` fails only hidden tests.
    """

    kinds: Sequence[str] = ("syntax_error", "wrong_value", "missing_filter")

    def skills(self, request: Request) -> Mapping[str, float]:
        """Return the task's difficulty."""
        return {"nesting": _BY_NAME[request.id].hard}

    def right(self, request: Request, rng: random.Random) -> str:
        """Return the solution in a code block."""
        return _block(_BY_NAME[request.id].right)

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """Return the solution without its first colon, or one of the task's wrong solutions."""
        task = _BY_NAME[request.id]
        if kind == "syntax_error":
            return _block(task.right.replace("):", ")", 1))
        return _block(task.failing_visible if kind == "wrong_value" else task.passing_visible)


def tests_say(state: Mapping[str, Any]) -> str:
    """Return what the visible tests showed: ``passed``, ``failed``, or ``syntax error`` where the code could not be read."""
    if _parsed(state["code"]) is None:
        return "syntax error"
    return "passed" if state["passed"] else "failed"


def same_code(one: str, other: str) -> bool:
    """Return whether two modules are the same but for layout and comments; what cannot be read is no answer."""
    mine = _parsed(one)
    return mine is not None and mine == _parsed(other)


def _parsed(code: str) -> str | None:
    try:
        return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def report_of(state: Mapping[str, Any]) -> str:
    """Render a final state: what the tests said."""
    return str(state["report"])


def _block(code: str) -> str:
    return f"```python\n{code}```"


warn_if_unsafe()  # here, because `vinelm profile` loads the workflow only

workflow = Workflow(
    name="coding-loop",
    template=Template((Loop((Stage("write"),), times=3),)),
    build=build,
    requests=requests(),
    labels=("hidden",),
    score=score,
    writer=CodeWriter(),
    signal=tests_say,
    agree=same_code,
    answer=("code",),
)

if __name__ == "__main__":
    spec = "examples.coding.app:workflow"
    unsafe = Flag("--unsafe", "run model-written code without a sandbox: it can read your files and keys", allow_unsafe)
    defaults = Defaults(0.2, max_error=0.25, max_cost_usd=0.001)
    raise SystemExit(run(workflow, spec, report_of, defaults=defaults, flag=unsafe, require=require_boundary))

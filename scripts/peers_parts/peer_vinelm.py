"""VineLM itself by the commands of its README, unedited: init, check, profile, estimate, plan; then its real client serves.

python peer_vinelm.py choose
python peer_vinelm.py serve default      # what `vinelm plan` recommends: a plan, or to keep today's models
python peer_vinelm.py serve OBJECTIVE    # the plan for it, also where that is not recommended

``models.toml`` is written by hand, as the catalog of prices that every user writes; all else is written by `vinelm init`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

from project import TOGETHER, Project, opened

from vinelm import Objective, VineLM, read_dataset

MAX_TOKENS = {"linear": 1200, "branching": 64, "agent": 64}
BUDGET_REACHED = 3
ENTRY = """
[[model]]
name = "{name}"
provider = "openai"
model = "{name}"
api_base = "{base}"
api_key_env = "OPENAI_API_KEY"
max_tokens = {most}
price = {{ input = {input}, output = {output}, source = "the benchmark", as_of = {day} }}
"""


def write_catalog(project: Project) -> None:
    """Write ``models.toml`` for the address of this process."""
    base, most = os.environ["OPENAI_BASE_URL"], MAX_TOKENS[project.app]
    entries = (
        ENTRY.format(name=name, base=base, most=most, day=date.today(), input=i, output=o)
        for name, (i, o) in project.prices.items()
    )
    Path("models.toml").write_text("".join(entries), encoding="utf-8")


def vinelm(*arguments: str, accepted: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
    """Run a command; its output goes to a file of this folder, too."""
    command = [sys.executable, "-m", "vinelm.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    with Path("commands.txt").open("a", encoding="utf-8") as file:
        file.write(f"$ vinelm {' '.join(arguments)}\n{done.stdout}{done.stderr}\nexit code {done.returncode}\n")
    if done.returncode not in accepted:
        raise RuntimeError(f"vinelm {arguments[0]} ended with {done.returncode}: {(done.stderr or done.stdout)[-400:]}")
    return done


def choose(project: Project) -> None:
    """Take the application through the commands, with the dollars for its profile."""
    write_catalog(project)
    vinelm("init", "app.py:graph", "--dataset", "choosing.jsonl", "--label-field", "answer", "--apply", "--yes")
    vinelm("check", "workflow:workflow", "--models", "models.toml")
    given = ("--models", "models.toml", "--store", "app.db", "--budget-usd", str(project.dollars), "--json", "-q")
    vinelm("profile", "workflow:workflow", *given, accepted=(0, BUDGET_REACHED))
    vinelm("estimate", "app.db", "-o", "app.vine", "-q")
    plan = vinelm("plan", "app.vine", "--json", accepted=(0, 1))
    Path("chosen.json").write_text(plan.stdout)
    Path("edited.py").write_text(Path("app.py").read_text(encoding="utf-8"), encoding="utf-8")


def serve(objective: Objective, *, allow_unproven: bool) -> list[bool]:
    """Whether each held-out question was answered rightly, in their order."""
    sys.path.insert(0, os.getcwd())
    workflow = import_module("workflow").workflow
    modules = [sys.modules[name] for name in ("app", "workflow") if name in sys.modules]
    vine = next((value for module in modules for value in vars(module).values() if isinstance(value, VineLM)), None)
    vine = VineLM("models.toml") if vine is None else vine
    built: Any = workflow.build(vine)
    app = built.compile() if hasattr(built, "compile") else built
    vine.allow_unproven = allow_unproven
    vine.load("app.vine")

    def ask(request: Any) -> bool:
        config = {"configurable": {"thread_id": str(uuid.uuid4())}}
        try:
            with vine.request(policy=vine.session(objective)):
                state = app.invoke(workflow.graph_input(request), config)
        except Exception as error:  # a request that fails is a wrong answer, as it is for a user
            print(f"failed: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
            return False
        return bool(workflow.score(request, state))

    with ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(ask, read_dataset(Path("held_out.jsonl")).requests))


def main() -> None:
    """Choose, or serve under an objective."""
    project = opened()
    if sys.argv[1] == "choose":
        choose(project)
        return
    write_catalog(project)
    planned = json.loads(Path("chosen.json").read_text())["objective"]
    is_default = sys.argv[2] == "default"
    wanted = Objective.from_dict(planned if is_default else json.loads(sys.argv[2]))
    Path("served.json").write_text(json.dumps(serve(wanted, allow_unproven=not is_default)))


if __name__ == "__main__":
    main()

"""One stranger's application through the README's commands, in an empty folder: init, check, profile, estimate, plan, serve.

Nothing is edited. Where a command fails, the trial of this application ends there, with the line that it printed. The models
are simulated, and the application's own calls go to the same local server.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from first_trial_parts.stranger_figures import best_single, planned_figures, served_figures, verdict
from places import APPS, PYTHONPATH, ROOT
from strangers.cases import CASES, PRICES, Case, write_questions

PACKAGES = ROOT / "build" / "stranger-packages"
PINNED = ("langchain-openai==1.7.3", "tiktoken==0.14.0", "regex==2026.11.19")
"""What the applications import and VineLM does not need; installed without dependencies, into a folder of their own."""
TOGETHER = 2
"""Applications at a time."""
PROFILE_CALLS = 2000
"""Calls of one profile at most, so that the trial has an end where calls cost next to nothing."""
LONGEST_S = 600
BUDGET_REACHED = 3
"""Exit code of a profile that its budget ended: its rows are kept, and the next command is the same."""
ENTRY = """
[[model]]
name = "{name}"
provider = "openai"
model = "{name}"
api_base = "{base}"
api_key_env = "OPENAI_API_KEY"
max_tokens = 64
price = {{ input = {input}, output = {output}, source = "the trial", as_of = {day} }}
"""


class Stopped(Exception):
    """A command failed: the line that it printed."""


@dataclass
class Stranger:
    """What was found of one application. A null is unknown: the trial did not come so far, or nothing printed it."""

    app: str
    passed: list[str] = field(default_factory=list)
    stopped_at: str | None = None
    line: str = ""
    commands: int = 0
    edited_lines: int = 0
    written_by_hand: tuple[str, ...] = ("models.toml",)
    todos: int | None = None
    minutes: float = 0.0
    rows: int | None = None
    profile_usd: float | None = None
    plan_said: str = ""
    promised_accuracy: float | None = None
    promised_accuracy_interval: list[float] | None = None
    promised_usd: float | None = None
    promised_usd_interval: list[float] | None = None
    half_width: float | None = None
    plan_itself: dict[str, Any] | None = None
    objective: dict[str, Any] | None = None
    recommendation: Any = None
    verdict: str | None = None
    served: dict[str, dict[str, Any]] | None = None
    best_single: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)


def try_strangers(
    names: list[str], folder: Path, port: int, *, seed: int, budget_usd: float, show: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Try these applications, a few at a time; each is shown when it ends. One that fails stops no other."""
    packages = _packages()

    def one(name: str) -> dict[str, Any]:
        case = next(case for case in CASES if case.name == name)
        found = Trial(case, folder, port, seed=seed, budget_usd=budget_usd, packages=packages).run()
        show(found)
        return found

    with ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(one, names))


def _packages() -> Path | None:
    """The folder of what the applications import, filled the first time; None where it is installed already."""
    if find_spec("langchain_openai") is not None:
        return None
    if not (PACKAGES / "langchain_openai").is_dir():
        command = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", str(PACKAGES), *PINNED]
        subprocess.run(command, check=True)
    return PACKAGES


class Trial:
    """The trial of one application."""

    def __init__(self, case: Case, folder: Path, port: int, *, seed: int, budget_usd: float, packages: Path | None) -> None:
        self.case, self.found, self.budget_usd = case, Stranger(case.name), budget_usd
        self.home = folder / f"stranger-{case.name}"
        shutil.rmtree(self.home, ignore_errors=True)
        self.project = self.home / case.name
        self.project.mkdir(parents=True)
        base = f"http://127.0.0.1:{port}/{case.name}/v1"
        shutil.copy(APPS / "strangers" / case.name / "app.py", self.project / "app.py")
        write_questions(case, self.project, seed)
        self.held_out = (self.project / f"held_out.{case.suffix}").rename(self.home / f"held_out.{case.suffix}")
        entries = (ENTRY.format(name=name, base=base, day=date.today(), input=i, output=o) for name, (i, o) in PRICES.items())
        (self.project / "models.toml").write_text("".join(entries), encoding="utf-8")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("LANGCHAIN", "LANGSMITH"))},
            "OPENAI_BASE_URL": base,
            "OPENAI_API_KEY": "x",
            "OPENBLAS_NUM_THREADS": "1",
            "COLUMNS": "160",
            "PYTHONPATH": "" if packages is None else str(packages),
        }

    def run(self) -> dict[str, Any]:
        """Go through all steps, until one fails."""
        started = time.perf_counter()
        for step in (self.init, self.check, self.profile, self.estimate, self.plan, self.serve):
            name, before = step.__name__, time.perf_counter()
            try:
                step()
                self.found.passed.append(name)
            except Exception as error:  # a trial that cannot go on must not end the others
                is_theirs = isinstance(error, Stopped)
                self.found.stopped_at = name
                self.found.line = str(error) if is_theirs else f"the trial itself: {type(error).__name__}: {error}"
                break
            finally:
                self.found.seconds[name] = round(time.perf_counter() - before, 1)
        self.found.minutes = round((time.perf_counter() - started) / 60, 2)
        return asdict(self.found)

    def init(self) -> None:
        """Write the project; the application's models are replaced by the command's own edit."""
        given = ("--dataset", self.case.dataset, "--label-field", "answer", "--apply", "--yes")
        self._vinelm("init", self.case.target, *given)
        self.found.todos = (self.project / "workflow.py").read_text(encoding="utf-8").count("TODO: ")

    def check(self) -> None:
        """Check what init left."""
        self._vinelm("check", "workflow:workflow", "--models", "models.toml")

    def profile(self, times: int = 1) -> None:
        """Buy rows."""
        budget = ("--budget-usd", str(times * self.budget_usd), "--budget-calls", str(times * PROFILE_CALLS))
        given = ("--models", "models.toml", "--store", "app.db", *budget, "--json", "-q")
        done = self._vinelm("profile", "workflow:workflow", *given, accepted=(0, BUDGET_REACHED))
        told: dict[str, Any] = json.loads(done.stdout)
        self.found.profile_usd, self.found.rows = told.get("committed_usd"), told.get("executed")

    def estimate(self) -> None:
        """Estimate; where the evidence is too thin, buy more, as the message says."""
        command = ("estimate", "app.db", "-o", "app.vine", "-q")
        for times in (2, 4):
            if self._vinelm(*command, accepted=(0, 1)).returncode == 0:
                return
            self.profile(times)
        self._vinelm(*command)

    def plan(self) -> None:
        """Plan; with an objective only if the command wants one."""
        done = self._vinelm("plan", "app.vine", "--json", accepted=(0, 1, 2))
        if done.returncode == 2:
            done = self._vinelm("plan", "app.vine", "--maximize", "accuracy", "--json", accepted=(0, 1))
        told: dict[str, Any] = json.loads(done.stdout)
        self.found.plan_said = _line(done) if done.returncode else ""
        for name, value in planned_figures(told).items():
            setattr(self.found, name, value)
        self.found.verdict = verdict(self.found.recommendation)

    def serve(self) -> None:
        """Serve requests that were not profiled, under each policy."""
        wanted = json.dumps(self.found.objective or {"maximize": "accuracy"})
        command = ("-m", "first_trial_parts.stranger_serving", self.case.name, "app.vine", wanted, str(self.held_out))
        environment = self.environment | {"PYTHONPATH": os.pathsep.join([PYTHONPATH, self.environment["PYTHONPATH"]])}
        done = self._run([sys.executable, *command], environment)
        if done.returncode:
            raise Stopped(_line(done))
        told = json.loads(done.stdout.splitlines()[-1])
        outcomes, billed = told["outcomes"], told["billed_usd"]
        (self.home / "served.json").write_text(done.stdout, encoding="utf-8")
        figures = {policy: served_figures(found, outcomes["today"], billed[policy]) for policy, found in outcomes.items()}
        if figures["plan"]["errors"] == len(outcomes["plan"]):
            raise Stopped(f"every request failed: {figures['plan']['first_error']}")
        if not any(one["calls"] for one in outcomes["plan"]):
            raise Stopped("VineLM saw no call of a model: the plan chose nothing")
        self.found.served = figures
        self.found.best_single = best_single(figures, tuple(PRICES))

    def _vinelm(self, *arguments: str, accepted: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
        self.found.commands += 1
        done = self._run([str(Path(sys.executable).with_name("vinelm")), *arguments], self.environment)
        number = f"{self.found.commands:02}-{arguments[0]}.txt"
        text = f"$ vinelm {' '.join(arguments)}\n{done.stdout}{done.stderr}\nexit code {done.returncode}\n"
        (self.home / number).write_text(text, encoding="utf-8")
        if done.returncode not in accepted:
            raise Stopped(_line(done))
        return done

    def _run(self, command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command, cwd=self.project, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST_S
            )
        except subprocess.TimeoutExpired as late:
            raise Stopped(f"no end after {LONGEST_S} s") from late


def _line(done: subprocess.CompletedProcess[str]) -> str:
    """The line that says why: the first that begins with `error`, or with the name of a check that failed; else the last."""
    lines = [line.strip() for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
    why = next((i for i, line in enumerate(lines) if re.match(r"(error|fail|FAIL|wrong)\b", line)), None)
    if why is None:
        return lines[-1] if lines else f"exit code {done.returncode}, and no message"
    is_wrapped = not lines[why].startswith("error") and len(lines[why]) > 140
    return " ".join(lines[why : why + (3 if is_wrapped else 1)])

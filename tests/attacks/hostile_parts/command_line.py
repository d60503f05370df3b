"""Random command lines over damaged, odd and valid files: no traceback, no hang, and no input changed by a refused command."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Progress = Callable[[str], None]
CASES = 1_200
SECONDS = 30.0
"""A command that takes longer hangs. The valid commands of the pool take one or two seconds."""
NUMBERS = (
    "0",
    "-1",
    "1",
    "0.5",
    "2",
    "1e400",
    "nan",
    "-inf",
    "1e-320",
    "99999999999999999999",
    "0x10",
    "1_0",
    "١",
    "",
    "abc",
    "NaN",
)
TEXTS = (
    "",
    " ",
    "-",
    "--",
    "../..",
    "a" * 1_000,
    "\u202eevil",
    "a\tb\nc",
    "\x1b[31m",
    "%s%n",
    "{0}",
    "$(id)",
    "models.toml",
    "é",
)
OPTIONS: dict[str, tuple[str, ...]] = {
    "profile": (
        "--models", "--preset", "--dataset", "--limit", "--seed", "--store", "--coverage", "--budget-usd", "--budget-calls",
        "--sampler", "--isolation", "--workers", "--unit-timeout-s", "--memory-mb", "--stop",
    ),
    "estimate": ("--output", "--estimator", "--stop", "--max-error"),
    "plan": (
        "--maximize", "--minimize", "--min-accuracy", "--max-cost-usd", "--max-latency-s", "--cost-budget", "--risk",
        "--objective",
    ),
    "explain": ("--maximize", "--minimize", "--prefix", "--elapsed-s", "--load", "--max-cost-usd"),
    "check": ("--models", "--dataset", "--column"),
    "reprice": ("--models", "--store", "--output"),
    "export": ("--output",),
    "report": ("--output-dir",),
    "store": (),
    "trie": (),
    "calibrate": ("--models", "--model", "--levels", "--repeats", "--delay-s", "--output"),
}  # fmt: skip
WORDS = {
    "--maximize": ("accuracy",),
    "--minimize": ("cost", "latency"),
    "--risk": ("mean", "mean+sd", "dp"),
    "--stop": ("workflow", "oracle"),
    "--sampler": ("deciding", "priced", "cascade", "exhaustive"),
    "--isolation": ("process", "thread"),
    "--estimator": ("latent", "cascade", "average"),
    "--cost-budget": ("population", "per_request"),
    "--preset": ("paper", "paper-2"),
}
SUBCOMMANDS = {
    "store": ("info", "check", "merge", "import", "nothing"),
    "trie": ("show", "diff", "nothing"),
}
WORKFLOWS = ("nl2sql", "nothing:workflow", "broken:workflow", "broken", "os:path", "sys:exit", ":", "a:b:c", "odd.txt", "..")


def run(progress: Progress, *, cases: int = CASES, seed: int = 0) -> dict[str, Any]:
    """Run ``cases`` random commands, each in a process and a scratch folder of its own.

    Returns:
        ``attempts``, ``through`` (commands that ended in a traceback, a hang, a signal or a changed input) and ``exits``
        (how often each exit code came).
    """
    rng = random.Random(seed)
    exits: dict[str, int] = {}
    through: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hostile-cli-") as scratch:
        files = _fixtures(Path(scratch) / "files")
        for number in range(cases):
            folder = Path(scratch) / "case"
            shutil.copytree(files, folder, copy_function=shutil.copy)
            args = _command(rng, sorted(path.name for path in files.iterdir()))
            code, output, problem = _attempt(folder, args)
            problem = problem or _problem(code, output, folder, files)
            exits[str(code)] = exits.get(str(code), 0) + 1
            if problem:
                through.append(f"{problem}: vinelm {' '.join(map(repr, args))}: {output[-200:]!r}"[:800])
            shutil.rmtree(folder)
            if number % 50 == 49:
                progress(f"command line: {number + 1} of {cases}, {len(through)} through")
    return {"attempts": cases, "through": through, "exits": exits}


def _command(rng: random.Random, names: list[str]) -> list[str]:
    command = rng.choice(sorted(OPTIONS))
    args = [command]
    if command in SUBCOMMANDS:
        args.append(rng.choice(SUBCOMMANDS[command]))
    usual = 2 if command == "report" else 1
    for _ in range(usual if rng.random() < 0.85 else rng.randrange(3)):
        args.append(_file(rng, command, names) if rng.random() < 0.7 else _value(rng, names))
    if command in {"plan", "explain"} and rng.random() < 0.8:
        args += rng.choice((["--maximize", "accuracy"], ["--minimize", "cost"]))
    for option in rng.sample(OPTIONS[command], min(len(OPTIONS[command]), rng.randrange(4))):
        args += [option, rng.choice(WORDS[option]) if option in WORDS and rng.random() < 0.7 else _value(rng, names)]
    if command == "profile":
        args += ["--limit", "3", "--budget-calls", "4", "--quiet"]
    if rng.random() < 0.2:
        args.append("--json")
    return args


def _file(rng: random.Random, command: str, names: list[str]) -> str:
    """An argument of the kind that the command takes, valid or damaged."""
    if command in {"profile", "check"}:
        return rng.choice(WORKFLOWS)
    suffix = {"plan": ".vine", "explain": ".vine", "trie": ".vine", "calibrate": ".toml"}.get(command, ".db")
    if command == "report" and rng.random() < 0.5:
        suffix = ".vine"
    return rng.choice(["good" + suffix] * 4 + [name for name in names if name.endswith(suffix)])


def _value(rng: random.Random, names: list[str]) -> str:
    kind = rng.random()
    return rng.choice(names) if kind < 0.6 else rng.choice(NUMBERS) if kind < 0.85 else rng.choice(TEXTS)


def _fixtures(folder: Path) -> Path:
    """A valid store and trie, and files that only look like them."""
    from vinelm.cli.main import main

    folder.mkdir()
    store, trie = folder / "good.db", folder / "good.vine"
    quiet = ["--isolation", "thread", "--quiet", "--json"]
    with _silenced():
        made = main(["profile", "nl2sql", "--limit", "12", "--coverage", "0.05", "--store", str(store), *quiet])
        made = made or main(["estimate", str(store), "-o", str(trie), "--no-check", "--json"])
    if made:
        raise RuntimeError(f"the fixtures could not be made: exit {made}")
    rng = random.Random(1)
    for path in (store, trie):
        content = path.read_bytes()
        (folder / f"cut{path.suffix}").write_bytes(content[: len(content) // 2])
        for number in range(3):
            damaged = bytearray(content)
            for _ in range(20):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            (folder / f"damaged{number}{path.suffix}").write_bytes(damaged)
    (folder / "empty.db").write_bytes(b"")
    (folder / "odd.txt").write_bytes(bytes(range(256)) * 4)
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "broken.py").write_text("workflow = 3\nraise ValueError('a\\nb')\n")
    (folder / "models.toml").write_text(
        '[[model]]\nname = "sim-a"\nprovider = "simulated"\nmodel = "gemma-27b"\n'
        'price = { input = 1.0, output = 2.0, source = "a test", as_of = 2026-01-01 }\n'
    )
    (folder / "wrong.toml").write_text('[[model]]\nname = "a"\nprice = { input = -1e999, output = "x" }\n')
    (folder / "cut.toml").write_text('[[model]]\nname = "a')
    (folder / "folder.db").mkdir()
    (folder / "questions.jsonl").write_text('{"id": "1"}\nnot json\n{"id": "1"}\n')
    return folder


class _silenced:  # noqa: N801 - used like a function
    def __enter__(self) -> None:
        self._kept = os.dup(1), os.dup(2)
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)

    def __exit__(self, *error: object) -> None:
        for at, kept in enumerate(self._kept, start=1):
            os.dup2(kept, at)
            os.close(kept)


def _attempt(folder: Path, args: list[str]) -> tuple[int, str, str]:
    """Run the command in a fork of this process, so that nothing is imported again; its exit code, output and problem."""
    out = folder.parent / "output"
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _run_here(folder, args, out)
    ends_at = time.monotonic() + SECONDS
    while time.monotonic() < ends_at:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            killed = os.WIFSIGNALED(status)
            code = -os.WTERMSIG(status) if killed else os.WEXITSTATUS(status)
            return code, out.read_text(errors="replace"), "killed by a signal" if killed else ""
        time.sleep(0.002)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -9, out.read_text(errors="replace"), "hang"


def _run_here(folder: Path, args: list[str], out: Path) -> None:
    code = 99
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 2**20,) * 2)
        os.chdir(folder)
        descriptor = os.open(out, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        from vinelm.cli.main import main

        code = main(args)
        sys.stdout.flush()
    except BaseException as error:  # reported by exit code 99 and the text
        os.write(2, f"Traceback: {type(error).__name__}: {error}".encode())
    finally:
        os._exit(code)


def _problem(code: int, output: str, folder: Path, files: Path) -> str:
    if "Traceback" in output or "error: unexpected " in output:
        return "traceback"
    if code not in {0, 1, 2, 3}:
        return f"exit {code}"
    if "\x1b[31m" in output or "\u202e" in output:
        return "control characters printed"
    if code == 2 and any(_digest(folder / path.name) != _digest(path) for path in files.iterdir()):
        return "a refused command changed a file"
    return ""


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else str(path.is_dir())

"""Other tools that choose models, really run: the same applications, server, questions, and dollars for choosing.

    python scripts/bench_peers.py --data DIR --json                       # all applications and peers
    python scripts/bench_peers.py --apps agent --peers agentopt --json    # some of them; the agent needs no data
    python scripts/bench_peers.py --data DIR --results results/peers.json

Each peer is installed at pinned versions into an environment of its own under build/peers/, and follows the recipe that its
adapter names (``peers_parts/peer_*.py``). The server, not the peer, meters dollars. "linear" replays the recorded first
answers of nine real models to exam questions, "branching" those of six models of RouterBench; their other steps and the whole
"agent" are simulated. VineLM serves what it recommends; beside that, its most accurate plan at each rival's own dollars per
request, also where it recommends to keep today's models because too little is proven of the plan: its rivals do not ask that
either.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from peers_parts.figures import by_question, lines_changed, paired, served
from peers_parts.questions import APPS, PRICES, STAGES, TODAY, Question, questions
from studies import Options, study

from vinelm.errors import ConfigError

ROOT = Path(__file__).resolve().parents[1]
PARTS = Path(__file__).parent / "peers_parts"
SOURCES = ROOT / "apps" / "peers_apps"
DOLLARS = {"linear": 6.0, "branching": 1.5, "agent": 0.08}
"""For choosing: each model alone on 60 to 130 questions; 2 to 5 % of what every path on every question costs."""
LONGEST_S = 3600
"""Seconds that a peer may take to choose, or to serve; it has failed then. A busy machine must not fail one."""


@dataclass(frozen=True)
class Peer:
    """A way to choose: its adapter, the environment that it runs in, what its adapter is told, and what it is called."""

    title: str
    adapter: str
    environment: str
    told: tuple[str, ...] = ()


PEERS = {
    "today": Peer("today's model: the strongest everywhere", "peer_single", "plain", ("today",)),
    "single": Peer("best single model", "peer_single", "plain", ("best",)),
    "agentopt": Peer("agentopt", "peer_agentopt", "agentopt"),
    "cascadeflow": Peer("cascadeflow", "peer_cascadeflow", "cascadeflow"),
    "litellm": Peer("LiteLLM's router", "peer_litellm", "litellm"),
    "llmrouter": Peer("LLMRouter", "peer_llmrouter", "llmrouter"),
    "vinelm": Peer("VineLM: what `vinelm plan` recommends", "peer_vinelm", "vinelm", ("default",)),
}


@dataclass
class Run:
    """One peer in one application: what it chose, whether it was right, the dollars of each held-out question."""

    figures: dict[str, Any]
    right: list[bool] = field(default_factory=list)
    usd: list[float] = field(default_factory=list)


def main() -> int:
    """Run the benchmark and print what was found."""
    options = {
        "--apps": (None, "some of the applications, separated by commas"),
        "--peers": (None, "some of the peers, separated by commas"),
        "--seed": (0, ""),
        "--keep": (Path, "a folder for the projects, with what each peer printed", {"dest": "folder"}),
    }
    return study(__doc__, options, measured, data="folder with recorded answers", needs_data=False, fails=failed)


def measured(options: Options) -> dict[str, Any]:
    apps = _names(options.apps, APPS if options.data else ("agent",))
    peers = _names(options.peers, tuple(PEERS))
    if options.data is None and apps != ["agent"]:
        raise ConfigError("linear and branching replay recorded answers: give their folder with --data")
    started = time.perf_counter()
    for name in dict.fromkeys(PEERS[peer].environment for peer in peers):
        install(name)
    with tempfile.TemporaryDirectory() as temporary, server(options.seed, options.data) as port:
        folder = (options.folder or Path(temporary)).resolve()
        bench = Bench(folder, port, options.data, options.seed, is_quiet=options.json)
        with ThreadPoolExecutor(len(apps)) as pool:
            found = dict(zip(apps, pool.map(lambda app: bench.app(app, peers), apps), strict=True))
    return {
        "apps": found,
        "titles": {peer: PEERS[peer].title for peer in peers},
        "versions": {name: pinned(name) for name in dict.fromkeys(PEERS[peer].environment for peer in peers)},
        "minutes": (time.perf_counter() - started) / 60,
    }


def failed(found: dict[str, Any]) -> bool:
    return any("failed" in one for app in found["apps"].values() for one in app["rows"].values())


def _names(given: str | None, known: Sequence[str]) -> list[str]:
    names = list(known) if given is None else given.split(",")
    unknown = sorted(set(names) - {*known, *APPS})
    if unknown:
        raise ConfigError(f"unknown: {', '.join(unknown)}: there are {', '.join(known)}")
    return names


def pinned(name: str) -> list[str]:
    """What is installed for a peer: the lines of its requirements."""
    lines = (PARTS / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def python_of(name: str) -> Path:
    """The interpreter of an environment."""
    return ROOT / "build" / "peers" / name / "bin" / "python"


def install(name: str) -> None:
    """Make the environment, unless it has what is pinned; a line ``# alone: PACKAGE`` is installed without its dependencies."""
    python, wanted = python_of(name), PARTS / "requirements" / f"{name}.txt"
    mark = python.parents[1] / "installed.txt"
    if mark.is_file() and mark.read_text(encoding="utf-8") == wanted.read_text(encoding="utf-8"):
        return
    subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
    pip = [str(python), "-m", "pip", "install", "-qq"]
    subprocess.run([*pip, "-r", str(wanted)], check=True, cwd=ROOT)
    for line in wanted.read_text(encoding="utf-8").splitlines():
        if line.startswith("# alone: "):
            subprocess.run([*pip, "--no-deps", line.removeprefix("# alone: ")], check=True)
    mark.write_text(wanted.read_text(encoding="utf-8"), encoding="utf-8")


@contextmanager
def server(seed: int, data: Path | None) -> Iterator[int]:
    """The port of the server, a process of its own as long as the block runs."""
    command = [sys.executable, "-m", "peers_parts.server", str(seed), "-" if data is None else str(data.resolve())]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


class Bench:
    """All peers in one application after the other."""

    def __init__(self, folder: Path, port: int, data: Path | None, seed: int, *, is_quiet: bool) -> None:
        self.folder, self.port, self.data, self.seed, self.is_quiet = folder, port, data, seed, is_quiet

    def app(self, app: str, peers: Sequence[str]) -> dict[str, Any]:
        """The figures of every peer, and of VineLM at each rival's dollars with the difference on the same requests."""
        choosing, held_out = questions(app, self.data, self.seed)
        runs: dict[str, Run] = {}
        for peer in peers:
            runs[peer] = self.peer(app, peer, choosing, held_out)
            self._say(app, peer, runs[peer])
        rows = {peer: run.figures for peer, run in runs.items()}
        for peer, run in runs.items():
            if peer != "today" and run.right and runs.get("today", run).right and "today" in runs:
                today = runs["today"]
                rows[peer]["less_today"] = paired(run.right, run.usd, today.right, today.usd)
        if "vinelm" in runs and runs["vinelm"].right:
            rivals = [peer for peer in peers if peer != "vinelm" and runs[peer].right]
            for peer in rivals:
                same = next(one for one in rivals if runs[one].usd == runs[peer].usd)  # the same models: served once
                done = rows[same].get("vinelm_at_its_dollars") if runs[same].right == runs[peer].right else None
                rows[peer]["vinelm_at_its_dollars"] = done or self.at_dollars(app, peer, runs[peer], held_out)
        return {
            "rows": rows,
            "dollars_for_choosing": DOLLARS[app],
            "questions": {"choosing": len(choosing), "held_out": len(held_out)},
            "models": len(PRICES[app]),
        }

    def peer(self, app: str, peer: str, choosing: list[Question], held_out: list[Question]) -> Run:
        """Choose with the dollars, then serve; a peer that fails has the last line that it printed."""
        home = self.folder / app / peer
        source = (SOURCES / f"{app}.py").read_text(encoding="utf-8")
        prepare(home, app, source, choosing)
        started = time.perf_counter()
        try:
            self.run(app, peer, "choose", *PEERS[peer].told)
            seconds = time.perf_counter() - started
            right, usd = self.serve(app, peer, held_out, *PEERS[peer].told)
        except subprocess.CalledProcessError as error:
            return Run({"failed": (str(error.stderr).strip().splitlines() or ["no message"])[-1][:300]})
        chosen = json.loads((home / "chosen.json").read_text())
        figures = {
            **served(right, usd),
            "choosing_usd": self.used(f"{app}.{peer}-choose")["total_usd"],
            "choosing_minutes": seconds / 60,
            "lines_changed": lines_changed(source, (home / "edited.py").read_text(encoding="utf-8")),
            "chosen": chosen.get("objective") if peer == "vinelm" else chosen,
        }
        return Run(figures, right, usd)

    def at_dollars(self, app: str, peer: str, rival: Run, held_out: list[Question]) -> dict[str, Any]:
        """VineLM's plan at the dollars per request that a rival spent, proven or not, and its difference to the rival."""
        objective = {"maximize": "accuracy", "max_cost_usd": rival.figures["usd"]}
        try:
            right, usd = self.serve(app, "vinelm", held_out, json.dumps(objective), name=f"vinelm-at-{peer}")
        except subprocess.CalledProcessError as error:
            return {"failed": (str(error.stderr).strip().splitlines() or ["no message"])[-1][:300]}
        self._say(app, f"vinelm at {peer}'s", Run(served(right, usd), right, usd))
        return {**served(right, usd), "less_rival": paired(right, usd, rival.right, rival.usd)}

    def serve(
        self, app: str, peer: str, held_out: list[Question], *told: str, name: str = ""
    ) -> tuple[list[bool], list[float]]:
        """Whether each held-out question was answered rightly, and its dollars as the server has metered them."""
        home, name = self.folder / app / peer, f"{name or peer}-serve"
        write_questions(home / "held_out.jsonl", held_out)
        self.run(app, peer, "serve", *told, name=name)
        right = json.loads((home / "served.json").read_text())
        return right, by_question(self.used(f"{app}.{name}"), [one.id for one in held_out])

    def run(self, app: str, peer: str, what: str, *told: str, name: str = "") -> None:
        """Run the peer's adapter in its environment and in the folder of its project."""
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("LANGCHAIN", "LANGSMITH", "OPENAI"))},
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self.port}/{app}.{name or f'{peer}-{what}'}/v1",
            "OPENAI_API_KEY": "x",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # nothing is fetched
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "160",
            "PYTHONPATH": str(PARTS),
        }
        command = [str(python_of(PEERS[peer].environment)), str(PARTS / f"{PEERS[peer].adapter}.py"), what, *told]
        home = self.folder / app / peer
        try:
            done = subprocess.run(
                command, cwd=home, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST_S
            )
        except subprocess.TimeoutExpired as late:
            raise subprocess.CalledProcessError(124, command, stderr=f"no end after {LONGEST_S} s") from late
        (home / f"{name or what}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        done.check_returncode()

    def used(self, name: str) -> dict[str, Any]:
        """What the server has metered under a name."""
        with urlopen(f"http://127.0.0.1:{self.port}/{name}/used") as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _say(self, app: str, peer: str, run: Run) -> None:
        if self.is_quiet:
            return
        told = run.figures
        if "failed" in told:
            print(f"{app:10} {peer:24} failed: {told['failed']}", flush=True)
            return
        low, high = told["accuracy_interval"]
        words = f"{app:10} {peer:24} {told['accuracy']:.1%} [{low:.1%}, {high:.1%}], ${told['usd']:.6f} a request"
        if "choosing_usd" in told:
            words += f", chosen with ${told['choosing_usd']:.4f} in {told['choosing_minutes']:.1f} min"
            words += f", {told['lines_changed']} lines: {json.dumps(told['chosen'])[:160]}"
        print(words, flush=True)


def prepare(home: Path, app: str, source: str, choosing: Sequence[Question]) -> None:
    """The folder of a project, as its adapter finds it: ``peers_parts/project.py`` says what is in it."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (home / "app.py").write_text(source, encoding="utf-8")
    write_questions(home / "choosing.jsonl", choosing)
    told = {"app": app, "stages": STAGES[app], "today": TODAY[app], "prices": PRICES[app], "dollars": DOLLARS[app]}
    (home / "project.json").write_text(json.dumps(told))


def write_questions(path: Path, asked: Sequence[Question]) -> None:
    """Questions with their answers, as JSON lines."""
    lines = (json.dumps({"question": one.text, "answer": one.answer}) + "\n" for one in asked)
    path.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

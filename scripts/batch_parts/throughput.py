"""Throughput of ``vinelm.batch`` against a bare loop: the same application, server and number of calls at a time.

    python scripts/batch_parts/throughput.py --requests 2000 --rounds 3

The server stands on loopback and answers after a fixed time (``local_openai.py``); each arm runs in a process of its own, whose
peak memory is read when it ends. The arms take turns: where others use the machine as well, one run says little. The bare loop
is what a user writes today: ``app.batch(inputs, {"max_concurrency": W})``.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from langgraph.graph import END, START, StateGraph
from local_openai import local_openai

import vinelm
from vinelm.adapters.langgraph import build_graph
from vinelm.catalog import Catalog
from vinelm.trie import Trie

LATENCY_S = 0.2
WORKERS = 16
REQUESTS = 50_000
ARMS = ("bare", "batch")
DOCUMENTS, DOCUMENT = 40, "A line of a document that several questions are asked about. " * 8
OBJECTIVE = vinelm.Objective(maximize="accuracy")
ENTRY = """[[model]]
name = "{name}"
provider = "openai"
model = "{name}"
engine = "local"
api_base = "{url}"
max_tokens = 16
price = {{ input = {price}, output = {price}, source = "made up", as_of = 2026-01-01 }}
"""
PRICES = {"small": 1.0, "large": 4.0}


class State(TypedDict, total=False):
    """Of the bench's graph."""

    document: str
    question: str
    answer: str


def answer(state: State, model: Any) -> State:
    return {"answer": model.invoke(f"{state['document']}\n{state['question']}").text}


def build(vine: Any) -> StateGraph[State]:
    graph = StateGraph(State)
    graph.add_node("answer", vine.stage("answer", answer))
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph


def workflow(dataset: Path) -> vinelm.Workflow:
    """The workflow over these requests; nobody scores its answers."""
    requests = vinelm.read_dataset(dataset).requests
    return vinelm.Workflow(name="bench", build=build, requests=requests, score=lambda request, state: True)


def trie(catalog: Catalog) -> vinelm.AnnotatedTrie:
    """A trie of one invocation, on either model."""
    template = vinelm.Template((vinelm.Stage("answer"),)).bind(tuple(PRICES))
    nodes = Trie.from_template(template)
    names = [nodes.models[index] if index >= 0 else "" for index in nodes.model]
    right = np.array([{"": 0.0, "small": 0.5, "large": 0.7}[name] for name in names])
    cost = np.array([PRICES.get(name, 0.0) * 1e-4 for name in names])
    ends = (nodes.depth > 0) * 1.0
    zeros = np.zeros(len(nodes))
    return vinelm.AnnotatedTrie(nodes, template, catalog, right, ends, right, cost, zeros, ends * LATENCY_S, zeros)


def write_dataset(path: Path, requests: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for number in range(requests):
            row = {
                "id": f"r{number}",
                "document": f"Document {number % DOCUMENTS}. {DOCUMENT}",
                "question": f"Question {number}?",
            }
            file.write(json.dumps(row) + "\n")


def arm(kind: str, folder: Path, url: str, workers: int) -> dict[str, float]:
    """Run one arm in this process; its figures."""
    catalog = Catalog.of(folder / "models.toml")
    work, annotated = workflow(folder / "docs.jsonl"), trie(catalog)
    began, cpu = time.perf_counter(), time.process_time()
    if kind == "bare":
        vine = vinelm.VineLM(catalog, trie=annotated, allow_unproven=True)
        app = build_graph(work, vine)
        config: Any = {"max_concurrency": workers}
        found = app.batch([work.graph_input(one) for one in work.requests], config, context=vine.context(OBJECTIVE))
        answered = len(found)
    else:
        output = folder / "answers.jsonl"
        done = vinelm.batch(work, annotated, OBJECTIVE, output=output, budget_usd=1000.0, workers=workers)
        answered = done.by_status["ok"]
    return {
        "answered": answered,
        "seconds": time.perf_counter() - began,
        "cpu_ms": 1000 * (time.process_time() - cpu) / answered,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def throughput(
    requests: int, *, workers: int = WORKERS, latency_s: float = LATENCY_S, rounds: int = 1, arms: Sequence[str] = ARMS
) -> dict[str, Any]:
    """Run the arms in turn, in processes of their own; their figures over all rounds, and the ratio of their throughputs.

    Args:
        requests: Of each run.
        workers: Requests under way at a time.
        latency_s: Seconds before each answer of the server.
        rounds: Runs of each arm. The one that begins changes from round to round.
        arms: Which ones.
    """
    found: dict[str, Any] = {"requests": requests, "workers": workers, "latency_s": latency_s, "rounds": rounds}
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in arms}
    with tempfile.TemporaryDirectory() as name, local_openai(latency_s) as url:
        folder = Path(name)
        write_dataset(folder / "docs.jsonl", requests)
        (folder / "models.toml").write_text("".join(ENTRY.format(name=one, url=url, price=PRICES[one]) for one in PRICES))
        for turn in range(rounds):
            for kind in arms if turn % 2 == 0 else reversed(arms):
                given = [sys.executable, __file__, "--arm", kind, "--folder", name, "--url", url, "--workers", str(workers)]
                told = subprocess.run(given, stdout=subprocess.PIPE, text=True, check=True)
                runs[kind].append(json.loads(told.stdout.splitlines()[-1]))
                for left in folder.glob("answers.*"):
                    left.unlink()
    for kind, each in runs.items():
        found[kind] = {"answered": sum(one["answered"] for one in each), "seconds": sum(one["seconds"] for one in each)}
        found[kind] |= {"cpu_ms": sum(one["cpu_ms"] for one in each) / rounds, "peak_mb": max(one["peak_mb"] for one in each)}
    if len(arms) == len(ARMS):
        found["ratio"] = found["bare"]["seconds"] / found["batch"]["seconds"]
        found["more_cpu_ms"] = found["batch"]["cpu_ms"] - found["bare"]["cpu_ms"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--latency-s", type=float, default=LATENCY_S, help="seconds before each answer of the server")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each arm, in turn")
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm:
        print(json.dumps(arm(options.arm, options.folder, options.url, options.workers)))
    else:
        settings = {"workers": options.workers, "latency_s": options.latency_s, "rounds": options.rounds}
        print(json.dumps(throughput(options.requests, **settings), indent=2))


if __name__ == "__main__":
    main()

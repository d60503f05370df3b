"""The questions of the three applications, and what each model answers: recorded where it is said so, simulated elsewhere.

linear: 600 exam questions and the recorded first answers of nine real models, with the recorded tokens and 2024 prices.
branching: questions of two kinds (RouterBench: ARC and WinoGrande) and the recorded answers and dollars of six of its eleven
models, so that every combination of models can be tried.
agent: sums and products; all models are simulated.
"""

from __future__ import annotations

import ast
import csv
import gzip
import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

APPS = ("linear", "branching", "agent")
CHOOSING = 320
"""Questions with which a peer may choose."""
HELD_OUT = {"linear": 280, "branching": 300, "agent": 240}
"""Questions on which it is judged."""
EASY_SKILL = 0.985
"""Fraction of right answers of every model in the simulated steps: to copy a letter, to say a kind."""
Prices = Mapping[str, tuple[float, float]]
"""Dollars per million tokens of each model, in and out; in the order of the catalog, cheap before dear."""
LINEAR_PRICES = {
    "llama-2-7b-chat": (0.52, 0.67),
    "gemini-1.0-pro": (0.5, 1.5),
    "gpt-35-turbo": (1.5, 2.0),
    "llama-2-70b-chat": (1.54, 1.77),
    "cohere-command-r-plus": (3.0, 15.0),
    "gemini-1.5-pro-preview-0409": (7.0, 21.0),
    "mistral-large": (8.0, 24.0),
    "gpt-4": (30.0, 60.0),
    "claude-3-opus-20240229": (15.0, 75.0),
}
BRANCHING_PRICES = {
    "mistral-7b-chat": (0.2, 0.2),
    "mixtral-8x7b-chat": (0.6, 0.6),
    "Yi-34B-Chat": (0.8, 0.8),
    "claude-instant-v1": (0.8, 2.4),
    "gpt-3.5-turbo-1106": (1.0, 2.0),
    "gpt-4-1106-preview": (10.0, 30.0),
}
AGENT_PRICES = {"tiny": (0.1, 0.4), "mid": (0.5, 2.0), "big": (3.0, 12.0)}
TODAY = {"linear": "gpt-4", "branching": "gpt-4-1106-preview", "agent": "big"}
"""The model that the source of each application names: the strongest."""
PRICES: Mapping[str, Prices] = {"linear": LINEAR_PRICES, "branching": BRANCHING_PRICES, "agent": AGENT_PRICES}
STAGES = {"linear": ("solve", "write"), "branching": ("reception", "science_desk", "commonsense_desk"), "agent": ("model",)}


@dataclass(frozen=True)
class Recorded:
    """One recorded call: the letter (empty if none could be read), tokens, and seconds where they are known."""

    letter: str
    tokens_in: int
    tokens_out: int
    latency_s: float = 0.0


@dataclass(frozen=True)
class Question:
    """A question, its right answer, its kind where the application sorts by kind, and the recorded call of each model."""

    id: str
    text: str
    answer: str
    kind: str = ""
    recorded: Mapping[str, Recorded] | None = None


def draw(*parts: Any) -> float:
    """A number in [0, 1) that depends on the parts alone."""
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:6], "big") / 2**48


def questions(app: str, data: Path | None, seed: int) -> tuple[list[Question], list[Question]]:
    """Those to choose with and those held out, in an order drawn by the seed; ``data`` is the folder of recorded tables."""
    if app == "agent":
        found = list(_sums(seed))
    elif data is None:
        raise ValueError(f"{app} replays recorded answers: give their folder with --data")
    else:
        found = list(_exams(data) if app == "linear" else _kinds(data))
    random.Random(f"{app} {seed}").shuffle(found)
    number = HELD_OUT[app]
    return found[number : number + CHOOSING], found[:number]


def _exams(data: Path) -> Iterator[Question]:
    calls: dict[tuple[str, str], dict[str, Recorded]] = {}
    for row in _rows(data / "outcomes" / "exam_retries.csv.gz"):
        if row["round"] == "1":
            tokens = int(float(row["tokens_in"] or 0)), max(int(float(row["tokens_out"] or 0)), 1)
            call = Recorded(row["answer"], *tokens, float(row["latency_s"] or 0))
            calls.setdefault((row["dataset"], row["question_id"]), {})[row["model"]] = call
    for row in _lines(data / "math" / "exams.jsonl.gz"):
        choices = row["choices"] if isinstance(row["choices"], dict) else ast.literal_eval(row["choices"])
        lines = [row["context"], row["question"], *(f"{letter}) {text}" for letter, text in choices.items())]
        key = (row["exam"], str(row["question_id"]))
        if key in calls:
            yield Question("/".join(key), "\n".join(filter(None, lines)), row["answer"], recorded=calls[key])


def _kinds(data: Path) -> Iterator[Question]:
    """RouterBench has dollars and no tokens: they are such that tokens times price is the recorded dollars."""
    calls: dict[str, dict[str, Recorded]] = {}
    answers: dict[str, str] = {}
    for row in _rows(data / "mixed" / "routerbench.csv.gz"):
        model = row["model"].rpartition("/")[2]
        if model not in BRANCHING_PRICES:
            continue
        price_in, price_out = BRANCHING_PRICES[model]
        out = max(int(float(row["response_chars"] or 0)) // 4, 1)
        tokens_in = max(round((float(row["cost_usd"]) * 1e6 - out * price_out) / price_in), 1)
        calls.setdefault(row["question_id"], {})[model] = Recorded(row["answer"], tokens_in, out)
        if float(row["correct"]) == 1:
            answers[row["question_id"]] = row["answer"]
    for row in _lines(data / "mixed" / "routerbench_questions.jsonl.gz"):
        key = row["question_id"]
        if row["task"] != "code" and key in answers:
            yield Question(key, row["prompt"], answers[key], row["task"], calls[key])


def _sums(seed: int) -> Iterator[Question]:
    rng, seen = random.Random(f"agent {seed}"), set[tuple[int, int]]()
    while len(seen) < CHOOSING + HELD_OUT["agent"]:
        a, b = rng.randrange(11, 99), rng.randrange(11, 99)
        if (a, b) not in seen:
            sign = "++*"[len(seen) % 3]
            seen.add((a, b))
            yield Question(f"{a}{sign}{b}", f"What is {a} {sign} {b}?", str(a + b if sign == "+" else a * b))


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)

"""Parallel experts: three proposals and a judge."""

import random
import re

from shapes.kit import Prompt, Shape
from shapes.parallel_experts.graph import build

from vinelm import Parallel, Request, Stage, Template, Workflow

EXPERTS = ("call_llm_1", "call_llm_2", "call_llm_3")


def requests(count=1000):
    rng, rows = random.Random(9), []
    for number in range(count):
        a, b, c = rng.randrange(11, 99), rng.randrange(11, 99), rng.randrange(2, 900)
        rows.append(Request(f"q{number}", {"topic": f"What is {a} * {b} - {c}?", "answer": str(a * b - c)}))
    return rows


def expert(prompt: Prompt, is_right: bool):
    return prompt.row["answer"] if is_right else str(prompt.off(int(prompt.row["answer"])))


def judge(prompt: Prompt, is_right: bool):
    """A right judge finds the right proposal where there is one; another takes any."""
    proposed = re.findall(r"Proposed: (-?\d+)", prompt.text)
    return prompt.row["answer"] if is_right and prompt.row["answer"] in proposed else prompt.rng.choice(proposed or ["0"])


shape = Shape(
    Workflow(
        name="parallel-experts",
        template=Template((Parallel(tuple(Stage(name, answerable=False) for name in EXPERTS)), Stage("aggregator"))),
        build=build,
        requests=requests(),
        labels=("answer",),
        score=lambda request, state: state["combined_output"] == request.data["answer"],
    ),
    answers={**dict.fromkeys(EXPERTS, expert), "aggregator": judge},
    skills={
        "call_llm_1": {"aggregation": 0.3},
        "call_llm_2": {"aggregation": 1.0},
        "call_llm_3": {"nesting": 1.0},
        "aggregator": {"filters": -1.5},
    },
)

"""Router: questions of three kinds."""

import datetime
import random

from shapes.kit import Prompt, Shape
from shapes.router.graph import build

from vinelm import Branch, Request, Stage, Template, Workflow

WORDS = ["garden", "window", "bottle", "orange", "pepper", "market", "silver", "planet", "harbour", "lantern"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
KINDS = ("arithmetic", "spelling", "calendar")
SPECIALIST = {"llm_call_1": "arithmetic", "llm_call_2": "spelling", "llm_call_3": "calendar"}


def requests(count=1000):
    rng, rows = random.Random(1), []
    for number in range(count):
        kind = KINDS[number % 3]
        if kind == "arithmetic":
            a, b, c = rng.randrange(11, 99), rng.randrange(3, 30), rng.randrange(2, 500)
            question, answer = f"What is {a} * {b} + {c}?", str(a * b + c)
        elif kind == "spelling":
            word = rng.choice(WORDS)
            question, answer = f"Write {word!r} backwards.", word[::-1]
        else:
            day = datetime.date(2026, 1, 1) + datetime.timedelta(days=rng.randrange(700))
            question, answer = f"Which weekday is {day.isoformat()}?", DAYS[day.weekday()]
        rows.append(Request(f"q{number}", {"input": question, "kind": kind, "answer": answer}))
    return rows


def route(prompt: Prompt, is_right: bool):
    return {"step": prompt.row["kind"] if is_right else prompt.rng.choice([k for k in KINDS if k != prompt.row["kind"]])}


def specialist(prompt: Prompt, is_right: bool):
    """A specialist that was given a question of another kind mostly does not answer it."""
    knows = SPECIALIST[prompt.stage] == prompt.row["kind"] or prompt.rng.random() < 0.2
    if is_right and knows:
        return prompt.row["answer"]
    return {"arithmetic": "1", "spelling": "abc", "calendar": "Someday"}[SPECIALIST[prompt.stage]]


shape = Shape(
    Workflow(
        name="router",
        template=Template(
            (
                Stage("llm_call_router", answerable=False),
                Branch({kind: (Stage(node),) for node, kind in SPECIALIST.items()}),
            )
        ),
        build=build,
        requests=requests(),
        labels=("answer", "kind"),
        score=lambda request, state: state["output"] == request.data["answer"],
    ),
    answers={"llm_call_router": route, **dict.fromkeys(SPECIALIST, specialist)},
    skills={
        "llm_call_router": {"filters": -3.0},
        "llm_call_1": {"aggregation": 0.8},
        "llm_call_2": {"nesting": 0.6},
        "llm_call_3": {"dates": 0.6},
    },
)

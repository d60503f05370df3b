"""Map-reduce: the order that is worth most, of two to six."""

import random
import re

from shapes.kit import Prompt, Shape
from shapes.map_reduce.graph import build

from vinelm import Request, Stage, Template, Workflow

ORDER = re.compile(r"order (\w): (\d+) x (\d+)")


def requests(count=1000):
    rng, rows = random.Random(8), []
    for number in range(count):
        orders = [(name, rng.randrange(11, 60), rng.randrange(3, 40)) for name in "ABCDEF"[: 2 + number % 5]]
        text = ", ".join(f"order {name}: {pieces} x {price}" for name, pieces, price in orders)
        best = max(orders, key=lambda order: order[1] * order[2])
        rows.append(Request(f"q{number}", {"topic": f"Today came {text}.", "answer": f"{best[0]} {best[1] * best[2]}"}))
    return rows


def split(prompt: Prompt, is_right: bool):
    found = ["order {}: {} x {}".format(*order) for order in ORDER.findall(prompt.text)]
    if not is_right:
        del found[prompt.rng.randrange(len(found))]
    return {"subjects": found}


def value(prompt: Prompt, is_right: bool):
    _, pieces, price = ORDER.findall(prompt.text)[-1]
    true = int(pieces) * int(price)
    return str(true if is_right else prompt.off(true))


def best(prompt: Prompt, is_right: bool):
    values = [int(number) for number in re.findall(r" = (-?\d+)", prompt.text)]
    wanted = values.index(max(values))
    others = [i for i in range(len(values)) if i != wanted]
    return {"id": wanted if is_right or not others else prompt.rng.choice(others)}


def score(request, state):
    found = re.match(r"order (\w): .* = (-?\d+)", state["best_selected"])
    return found is not None and " ".join(found.groups()) == request.data["answer"]


shape = Shape(
    Workflow(
        name="map-reduce",
        template=Template(
            (Stage("generate_topics", answerable=False), Stage("generate_value", answerable=False), Stage("best_order"))
        ),
        build=build,
        requests=requests(),
        labels=("answer",),
        score=score,
    ),
    answers={"generate_topics": split, "generate_value": value, "best_order": best},
    skills={"generate_topics": {"nesting": -2.0}, "generate_value": {"aggregation": -0.5}, "best_order": {"filters": -3.0}},
    subject=lambda prompt: prompt.last.text if prompt.stage == "generate_value" else "",
)

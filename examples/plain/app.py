"""Example (d): plain Python that calls a model, without a graph. ``python -m examples.plain.app``."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from examples.example_cli import Defaults, run
from examples.plain.orders import TURNS, build
from vinelm import Request, Workflow
from vinelm.template import Loop, Stage, Template

PRICES = {"lamp": 24.5, "desk": 189.0, "chair": 74.9, "shelf": 55.25, "mirror": 39.0, "rug": 120.8}


def requests() -> list[Request]:
    """Return 30 letters with the orders in them."""
    rows = []
    for number, (first, second) in enumerate(itertools.permutations(PRICES, 2)):
        lines = [
            {"item": item, "pieces": 1 + (number * factor) % 9, "price": PRICES[item]}
            for item, factor in ((first, 5), (second, 7))
        ]
        words = " and ".join(f"{line['pieces']} of the {line['item']} at {line['price']:.2f} each" for line in lines)
        rows.append(Request(f"{first}-{second}", {"letter": f"Dear shop, please send me {words}. Yours, A.", "order": lines}))
    return rows


def score(request: Request, state: Mapping[str, Any]) -> bool:
    """Return whether the order is the one of the letter, and its total right to the cent."""
    try:
        order = json.loads(state["answer"])
        total = round(sum(line["pieces"] * line["price"] for line in request.data["order"]), 2)
        return bool(order["lines"] == request.data["order"] and abs(order["total"] - total) < 0.005)
    except (ValueError, TypeError, KeyError):
        return False


def same_order(one: str, other: str) -> bool:
    """Return whether two answers are the same order; one that is no JSON is no answer."""
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


class OrderWriter:
    """The answers of simulated models, right or wrong.

    The kinds are those of the simulated models' errors: ``syntax_error`` is no JSON, ``wrong_aggregate`` a wrong total, which
    the application notices, and ``wrong_column`` a line that was misread, which it does not.
    """

    kinds: Sequence[str] = ("syntax_error", "wrong_aggregate", "wrong_column")

    def skills(self, request: Request) -> Mapping[str, float]:
        """Return the difficulty: large orders are harder to sum up."""
        return {"aggregation": min(sum(line["pieces"] for line in request.data["order"]) / 20, 1.0)}

    def right(self, request: Request, rng: random.Random) -> str:
        """Return the order of the letter."""
        return _written(request.data["order"])

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """Return an answer with an error of that kind."""
        lines = [dict(line) for line in request.data["order"]]
        if kind == "syntax_error":
            return "Here is the order: " + _written(lines)
        if kind == "wrong_aggregate":
            return _written(lines, extra=rng.choice((-10.0, 0.9, 10.0)))
        lines[rng.randrange(len(lines))]["pieces"] += 1
        return _written(lines)


def _written(lines: Sequence[Mapping[str, Any]], extra: float = 0.0) -> str:
    total = round(sum(line["pieces"] * line["price"] for line in lines) + extra, 2)
    return json.dumps({"lines": list(lines), "total": total})


workflow = Workflow(
    name="plain-orders",
    template=Template((Stage("extract"), Loop((Stage("repair"),), times=TURNS))),
    build=build,
    requests=requests(),
    labels=("order",),
    score=score,
    writer=OrderWriter(),
    signal="status",
    agree=same_order,
    answer=("answer",),
)

if __name__ == "__main__":
    spec = "examples.plain.app:workflow"
    raise SystemExit(run(workflow, spec, lambda state: state["answer"], defaults=Defaults(0.2, max_error=0.25)))

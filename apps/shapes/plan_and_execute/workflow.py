"""Plan and execute: what one to three kinds of goods cost together."""

import random
import re

from langchain_core.messages import HumanMessage, ToolMessage
from shapes.kit import Prompt, Shape, Use
from shapes.plan_and_execute.graph import build
from shapes.shop import PRICES_EUR

from vinelm import Loop, Request, Stage, Template, Workflow

TASK = "Find out what {} x {} costs"
DONE = re.compile(r"Find out what (\d+) x (\w+) costs', '(-?\d+)'")


def requests(count=1000):
    rng, rows = random.Random(14), []
    for number in range(count):
        items = {item: rng.randrange(2, 9) for item in rng.sample(list(PRICES_EUR), 1 + number % 3)}
        wanted = ", ".join(f"{pieces} x {item}" for item, pieces in items.items())
        total = sum(pieces * PRICES_EUR[item] for item, pieces in items.items())
        rows.append(Request(f"q{number}", {"input": f"What do {wanted} cost?", "items": items, "answer": str(total)}))
    return rows


def steps(prompt: Prompt, done=()):
    return [TASK.format(pieces, item) for item, pieces in prompt.row["items"].items() if item not in done]


def plan(prompt: Prompt, is_right: bool):
    """A wrong plan forgets the last step."""
    wanted = steps(prompt)
    return {"steps": wanted if is_right else wanted[:-1] or ["Guess what it costs"]}


def execute(prompt: Prompt, is_right: bool):
    """Look the price up, multiply, answer; a wrong agent guesses at once."""
    task = next(message.text for message in reversed(prompt.messages) if isinstance(message, HumanMessage))
    found = re.findall(r"(\d+) x (\w+)", task)
    if not found or not is_right:
        return str(prompt.rng.randrange(10, 900))
    pieces, item = found[0]
    made = [call["name"] for call in prompt.calls]
    if "price" not in made:
        return Use("price", {"item": item})
    if "calculate" not in made:
        return Use("calculate", {"expression": f"{pieces} * {PRICES_EUR[item]}"})
    return next(message.text for message in reversed(prompt.messages) if isinstance(message, ToolMessage))


def replan(prompt: Prompt, is_right: bool):
    """A right replanner notices what is missing; a wrong one answers at once."""
    done = {item: int(value) for _, item, value in DONE.findall(prompt.text)}
    left = steps(prompt, done)
    if left and is_right:
        return {"action": {"steps": left}}
    total = sum(done.values())
    return {"action": {"response": str(total if is_right or left else prompt.off(total))}}


shape = Shape(
    Workflow(
        name="plan-and-execute",
        template=Template(
            (
                Stage("planner", answerable=False),
                Loop((Stage("agent", answerable=False), Stage("replan")), times=4),
            )
        ),
        build=build,
        requests=requests(),
        labels=("answer", "items"),
        score=lambda request, state: state.get("response") == request.data["answer"],
    ),
    answers={"planner": plan, "agent": execute, "replan": replan},
    skills={"planner": {"nesting": -1.5}, "agent": {"joins": -1.0}, "replan": {"aggregation": -1.8}},
)

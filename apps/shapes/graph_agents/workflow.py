"""Agents on a graph: how many people live in a town, or which of a town's neighbours by rail is the largest."""

import random

from shapes.graph_agents.graph import build
from shapes.graph_agents.rails import RAILS, look_up
from shapes.kit import Prompt, Shape
from shapes.towns import FACTS, NAMES

from vinelm import Branch, Loop, Request, Stage, Template, Workflow


def requests(count=1000):
    rng, rows = random.Random(15), []
    for number in range(count):
        town = rng.choice(NAMES)
        if number % 2:
            largest = max(RAILS[town], key=lambda name: FACTS[name, "population"])
            row = {"question": f"Which town next to {town} by rail is the largest?", "kind": "multi_hop", "answer": largest}
        else:
            row = {"question": f"What is the population of {town}?", "kind": "direct"}
            row["answer"] = look_up(f"population of {town}")
        rows.append(Request(f"q{number}", {**row, "town": town}))
    return rows


def classify(prompt: Prompt, is_right: bool):
    kinds = ("direct", "multi_hop")
    return {"kind": kinds[(prompt.row["kind"] == "multi_hop") == is_right]}


def first_query(prompt: Prompt, is_right: bool):
    """The query that every way to the answer begins with; a wrong one names another town."""
    town = prompt.row["town"] if is_right else prompt.rng.choice([name for name in NAMES if name != prompt.row["town"]])
    return f"rail from {town}" if prompt.row["kind"] == "multi_hop" else f"population of {town}"


def act(prompt: Prompt, is_right: bool):
    """What is missing is a query already; a wrong one forgets the last town, or misspells the only one."""
    wanted = prompt.text.rsplit("Find: ", 1)[1]
    return wanted if is_right else wanted.rsplit(", ", 1)[0] if ", " in wanted else wanted[:-1]


def reason(prompt: Prompt, is_right: bool):
    """The answer once the populations of the neighbours are there; a wrong one takes the first town that it sees."""
    notebook = prompt.text.split("Notebook:\n", 1)[1].rsplit("\nQuestion:", 1)[0].splitlines()
    query, _, found = notebook[-1].partition(": ")
    if found.startswith("error"):
        return {"answer": None, "missing": first_query(prompt, is_right)}
    if query.startswith("rail"):
        return {"answer": None, "missing": f"population of {found}"} if is_right else {"answer": found.split(", ")[0]}
    if prompt.row["kind"] == "direct":
        return {"answer": found if is_right else found[:-1]}
    known = [part.split(" ") for part in found.split(", ")]
    return {"answer": max(known, key=lambda part: int(part[1]))[0] if is_right else known[0][0]}


LOOK_UP = Loop((Stage("act", answerable=False), Stage("reason")), times=3, memory=2)
ARMS = {"direct": (Stage("act_direct"),), "multi_hop": (Stage("plan", answerable=False), LOOK_UP)}

shape = Shape(
    Workflow(
        name="graph-agents",
        template=Template((Stage("classify", answerable=False), Branch(ARMS))),
        build=build,
        requests=requests(),
        labels=("answer", "kind", "town"),
        score=lambda request, state: state.get("answer") == request.data["answer"],
    ),
    answers={"classify": classify, "act_direct": first_query, "plan": first_query, "act": act, "reason": reason},
    skills={
        "classify": {"filters": -3.0},
        "act_direct": {"joins": -0.5},
        "plan": {"nesting": -1.5},
        "act": {"joins": -0.8},
        "reason": {"aggregation": -0.8},
    },
)

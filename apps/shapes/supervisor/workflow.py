"""Supervisor: who has more inhabitants, and by how many."""

import random
import re

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from shapes.kit import Prompt, Shape, Use
from shapes.supervisor.graph import build
from shapes.towns import FACTS, NAMES, sentence

from vinelm import Branch, Loop, Request, Stage, Template, Workflow
from vinelm.template import END

WORKERS = ("researcher", "calculator", "writer")


def requests(count=1000):
    rng, rows = random.Random(6), []
    for number in range(count):
        one, other = rng.sample(NAMES, 2)
        one, other = sorted((one, other), key=lambda town: -FACTS[town, "population"])
        question = f"How many more people live in {one} than in {other}?"
        answer = f"{one} has {FACTS[one, 'population'] - FACTS[other, 'population']} more."
        rows.append(Request(f"q{number}", {"question": question, "towns": [one, other], "answer": answer}))
    return rows


def results(prompt: Prompt, tool: str):
    return [message.text for message in prompt.messages if isinstance(message, ToolMessage) and message.name == tool]


def unknown(prompt: Prompt):
    """The towns whose facts were not found yet."""
    found = "\n".join(results(prompt, "look_up"))
    return [town for town in prompt.row["towns"] if sentence(town, "population") not in found]


def written(prompt: Prompt):
    return any(isinstance(message, AIMessage) and message.text.endswith("more.") for message in prompt.messages)


def supervise(prompt: Prompt, is_right: bool):
    if unknown(prompt):
        wanted = "researcher"
    elif not results(prompt, "calculate"):
        wanted = "calculator"
    else:
        wanted = "FINISH" if written(prompt) else "writer"
    others = [name for name in (*WORKERS, "FINISH") if name != wanted]
    return {"next": wanted if is_right else prompt.rng.choice(others)}


def research(prompt: Prompt, is_right: bool):
    left = unknown(prompt)
    if left and is_right:
        return Use("look_up", {"query": f"{left[0]} population"})
    if left and prompt.rng.random() < 0.5:
        return Use("look_up", {"query": f"{left[0]} visitors {len(prompt.calls)}"})
    return "That is what I found."


def compute(prompt: Prompt, is_right: bool):
    if isinstance(prompt.last, ToolMessage) and prompt.last.name == "calculate":
        return f"The result is {prompt.last.text}."
    numbers = [int(number) for number in re.findall(r"population (\d+)", "\n".join(results(prompt, "look_up")))]
    high, low = (max(numbers), min(numbers)) if numbers else (100, 1)
    return Use("calculate", {"expression": f"{high} - {low}" if is_right else f"{high} - {low + 10}"})


def write(prompt: Prompt, is_right: bool):
    number = (results(prompt, "calculate") or ["some"])[-1]
    return f"{prompt.row['towns'][0 if is_right else 1]} has {number} more."


def score(request, state):
    said = [message.text for message in state["messages"] if isinstance(message, AIMessage) and message.text.endswith("more.")]
    return said[-1:] == [request.data["answer"]]


STEPS = {
    "researcher": (Loop((Stage("researcher", answerable=False),), times=4, early_exit=True),),
    "calculator": (Loop((Stage("calculator", answerable=False),), times=2, early_exit=True),),
    "writer": (Stage("writer", answerable=False),),
    "FINISH": END,
}

shape = Shape(
    Workflow(
        name="supervisor",
        template=Template((Loop((Stage("supervisor"), Branch(STEPS)), times=6, memory=2),)),
        build=build,
        requests=requests(),
        inputs=lambda request: {"messages": [HumanMessage(request.data["question"])]},
        labels=("answer", "towns"),
        score=score,
    ),
    answers={"supervisor": supervise, "researcher": research, "calculator": compute, "writer": write},
    skills={
        "supervisor": {"filters": -3.5},
        "researcher": {"joins": -2.0},
        "calculator": {"aggregation": -1.0},
        "writer": {"nesting": -2.0},
    },
)

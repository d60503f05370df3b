"""Reflection: lists of words to sort, with a critic that may be wrong."""

import random

from langchain_core.messages import AIMessage, HumanMessage
from shapes.kit import Prompt, Shape
from shapes.reflection.graph import build

from vinelm import Loop, Request, Stage, Template, Workflow

WORDS = [
    "amber",
    "anchor",
    "basket",
    "beacon",
    "candle",
    "carpet",
    "dagger",
    "desert",
    "ember",
    "falcon",
    "garden",
    "harbour",
    "island",
    "jungle",
    "kernel",
    "ladder",
]
LOOKS_RIGHT = "Looks right."


def requests(count=1000):
    rng, rows = random.Random(4), []
    for number in range(count):
        words = rng.sample(WORDS, 5)
        rows.append(Request(f"q{number}", {"words": ", ".join(words), "answer": ", ".join(sorted(words))}))
    return rows


def drafts(prompt: Prompt):
    """The lists so far; a critic sees them as the user's."""
    return [message.text for message in prompt.messages if message.text.count(", ") == 4 and "Sort" not in message.text]


def swapped(prompt: Prompt):
    words = prompt.row["answer"].split(", ")
    at = prompt.rng.randrange(len(words) - 1)
    words[at], words[at + 1] = words[at + 1], words[at]
    return ", ".join(words)


def generate(prompt: Prompt, is_right: bool):
    if prompt.last.text == LOOKS_RIGHT and isinstance(prompt.last, HumanMessage):
        return drafts(prompt)[-1]
    return prompt.row["answer"] if is_right else swapped(prompt)


def reflect(prompt: Prompt, is_right: bool):
    is_sorted = drafts(prompt)[-1:] == [prompt.row["answer"]]
    return LOOKS_RIGHT if is_sorted == is_right else "The second word is out of order."


def demands(prompt: Prompt):
    """A critique that is right helps the next draft."""
    if prompt.stage != "generate" or not drafts(prompt):
        return {}
    return {"nesting": 0.5 if drafts(prompt)[-1] == prompt.row["answer"] else -0.8}


def score(request, state):
    last = state["messages"][-1]
    return isinstance(last, AIMessage) and last.text == request.data["answer"]


shape = Shape(
    Workflow(
        name="reflection",
        template=Template((Loop((Stage("generate"), Stage("reflect", answerable=False)), times=4),)),
        build=build,
        requests=requests(),
        inputs=lambda request: {"messages": [HumanMessage(f"Sort these words: {request.data['words']}.")]},
        labels=("answer", "words"),
        score=score,
    ),
    answers={"generate": generate, "reflect": reflect},
    skills={"generate": {"nesting": 0.6}, "reflect": {"filters": -1.0}},
    demands=demands,
)

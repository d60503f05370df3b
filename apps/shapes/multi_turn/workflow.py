"""Multi-turn chat: four turns on each thread; all but the first need what the user said before."""

import random
import re

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from shapes.kit import Prompt, Shape, Use
from shapes.multi_turn.graph import build

from vinelm import Loop, Request, Stage, Template, Workflow

TURNS = 4


def requests(threads=250):
    """One request per turn; its history is what was said before, with right answers."""
    rng, rows = random.Random(13), []
    for thread in range(threads):
        history, first = [], rng.randrange(11, 99)
        for turn in range(TURNS):
            number = rng.randrange(11, 99)
            question = f"And times {number} instead?" if turn else f"What is {first} * {number}?"
            row = {"question": question, "history": list(history), "answer": str(first * number)}
            rows.append(Request(f"t{thread}-{turn}", {**row, "thread": f"t{thread}"}))
            history += [question, str(first * number)]
    return rows


def conversation(request: Request):
    history = request.data["history"]
    said = [(HumanMessage, AIMessage)[i % 2](text) for i, text in enumerate(history)]
    return {"messages": [*said, HumanMessage(request.data["question"])]}


def chat(prompt: Prompt, is_right: bool):
    """Calculate with the number of the first question, then answer with the result."""
    if isinstance(prompt.last, ToolMessage):
        return prompt.last.text
    first, *others = re.findall(r"\d+", " ".join(m.text for m in prompt.messages if isinstance(m, HumanMessage)))
    expression = f"{first} * {others[-1]}" if others else first
    return Use("calculate", {"expression": expression if is_right else f"{expression} + {prompt.rng.choice((1, 2, 10))}"})


def score(request, state):
    last = state["messages"][-1]
    return isinstance(last, AIMessage) and last.text == request.data["answer"]


shape = Shape(
    Workflow(
        name="multi-turn",
        template=Template((Loop((Stage("chatbot"),), times=3),)),
        build=build,
        requests=requests(),
        inputs=conversation,
        labels=("answer", "history", "thread"),
        score=score,
    ),
    answers={"chatbot": chat},
    skills={"chatbot": {"aggregation": 0.1}},
    thread=lambda request: request.data["thread"],
    turn=lambda request: {"messages": [HumanMessage(request.data["question"])]},
)

"""Multi-turn chat: four turns on each thread, each of which needs the answer to the one before."""

import random
import re

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from shapes.kit import Prompt, Shape, Use
from shapes.multi_turn.graph import build

from vinelm import Loop, Request, Stage, Template, Workflow

TURNS = 4


def requests(threads=60):
    """One request per turn; its history is what a right chatbot has said before."""
    rng, rows = random.Random(13), []
    for thread in range(threads):
        history, value = [], 0
        for turn in range(TURNS):
            number = rng.randrange(11, 99)
            if turn == 0:
                question, step, value = f"What is {number} * 17?", f"{number} * 17", number * 17
            else:
                question, step, value = f"And plus {number}?", f"+ {number}", value + number
            row = {"question": question, "history": list(history), "step": step, "answer": str(value)}
            rows.append(Request(f"t{thread}-{turn}", {**row, "thread": f"t{thread}"}))
            history += [question, str(value)]
    return rows


def conversation(request: Request):
    history = request.data["history"]
    said = [(HumanMessage, AIMessage)[i % 2](text) for i, text in enumerate(history)]
    return {"messages": [*said, HumanMessage(request.data["question"])]}


def chat(prompt: Prompt, is_right: bool):
    """Calculate with the number said last, then answer with the result."""
    if isinstance(prompt.last, ToolMessage):
        return prompt.last.text
    said = [message.text for message in prompt.messages if isinstance(message, AIMessage) and message.text]
    before = (re.findall(r"-?\d+", said[-1]) or ["0"])[-1] if said else ""
    step = prompt.row["step"]
    expression = f"{before} {step}" if step.startswith("+") else step
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
        labels=("answer", "step", "history", "thread"),
        score=score,
    ),
    answers={"chatbot": chat},
    skills={"chatbot": {"aggregation": 0.1}},
    thread=lambda request: request.data["thread"],
    turn=lambda request: {"messages": [HumanMessage(request.data["question"])]},
)

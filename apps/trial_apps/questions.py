"""The data set of all applications, and the file of their models."""

import os
import random

from vinelm import Request

MODELS = os.environ["FIRST_TRIAL_MODELS"]


def requests(count: int = 160) -> list[Request]:
    """Sums and products with their answers."""
    rng, rows = random.Random(7), []
    for number in range(count):
        a, b, sign = rng.randrange(11, 99), rng.randrange(11, 99), rng.choice("++*")
        answer = a + b if sign == "+" else a * b
        rows.append(Request(f"q{number:03}", {"question": f"What is {a} {sign} {b}?", "answer": str(answer)}))
    return rows


def asked(request: Request) -> dict:
    """The input of a chat."""
    return {"messages": [{"role": "user", "content": request.data["question"]}]}


def said_last(request: Request, state) -> bool:
    """Whether the chat's last message is the answer."""
    return state["messages"][-1].text.strip() == request.data["answer"]


def answered(request: Request, state) -> bool:
    """Whether the state's answer is right."""
    return str(state.get("answer", "")).strip() == request.data["answer"]

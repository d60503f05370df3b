"""ReAct: one to eight prices to look up, a sum, an answer; 25 calls of the model at the most."""

import random

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from shapes.kit import Prompt, Shape, Use
from shapes.react.graph import build
from shapes.shop import PRICES_EUR

from vinelm import Loop, Request, Stage, Template, Workflow


def requests(count=1000):
    rng, rows = random.Random(5), []
    for number in range(count):
        items = {item: rng.randrange(1, 9) for item in rng.sample(list(PRICES_EUR), 1 + number % 8)}
        wanted = ", ".join(f"{pieces} x {item}" for item, pieces in items.items())
        total = sum(pieces * PRICES_EUR[item] for item, pieces in items.items())
        rows.append(Request(f"q{number}", {"question": f"What do {wanted} cost?", "items": items, "answer": str(total)}))
    return rows


def step(prompt: Prompt, is_right: bool):
    """The next tool call, or the answer. A wrong step misspells an item, or answers too early."""
    asked = [call["args"].get("item") for call in prompt.calls if call["name"] == "price"]
    left = [item for item in prompt.row["items"] if item not in asked]
    if left:
        if is_right:
            return Use("price", {"item": left[0]})
        is_typo = prompt.rng.random() < 0.6
        return Use("price", {"item": f"{left[0]}{len(asked)}"}) if is_typo else str(prompt.off(int(prompt.row["answer"])))
    if not any(call["name"] == "calculate" for call in prompt.calls):
        items = dict(prompt.row["items"])
        if not is_right:
            items[next(iter(items))] += 1
        return Use("calculate", {"expression": " + ".join(f"{n} * {PRICES_EUR[item]}" for item, n in items.items())})
    return next(message.text for message in reversed(prompt.messages) if isinstance(message, ToolMessage))


def score(request, state):
    last = state["messages"][-1]
    return isinstance(last, AIMessage) and last.text == request.data["answer"]


shape = Shape(
    Workflow(
        name="react",
        template=Template((Loop((Stage("model"),), times=25, memory=2),)),
        build=build,
        requests=requests(),
        inputs=lambda request: {"messages": [HumanMessage(request.data["question"])]},
        labels=("answer", "items"),
        score=score,
    ),
    answers={"model": step},
    skills={"model": {"nesting": -1.8}},
)

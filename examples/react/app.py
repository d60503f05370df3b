"""Example (b): a ReAct agent with ``create_agent`` and three tools. ``python -m examples.react.app``."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from examples.example_cli import Defaults, run
from examples.react.graph import PRICES_EUR, RATES, build, stated_amount
from vinelm import Request, Workflow
from vinelm.template import Loop, Stage, Template


def requests() -> list[Request]:
    """Return 48 questions with their answers."""
    rows = []
    for number, (item, currency) in enumerate(itertools.product(PRICES_EUR, RATES)):
        pieces = 2 + (number * 5) % 11
        answer = f"{pieces * PRICES_EUR[item] * RATES[currency]:.2f} {currency}"
        question = f"What do {pieces} pieces of the {item} cost in {currency}?"
        row = {"question": question, "item": item, "pieces": pieces, "currency": currency, "answer": answer}
        rows.append(Request(f"{item}-{currency}", row))
    return rows


def score(request: Request, state: Mapping[str, Any]) -> bool:
    """Return whether the agent's last message states the right amount, to the cent."""
    last = state["messages"][-1]
    if not isinstance(last, AIMessage) or last.tool_calls:
        return False
    return bool(stated_amount(last.text) == request.data["answer"])


def step(state: Mapping[str, Any]) -> str:
    """Return what the last step was: an ``answer`` of the agent, tools that ``found`` what they looked for, or an ``error``."""
    last = state["messages"][-1]
    if not isinstance(last, ToolMessage):
        return "answer"
    said = itertools.takewhile(lambda message: isinstance(message, ToolMessage), reversed(state["messages"]))
    return "error" if any(message.text.startswith("error") or message.status == "error" for message in said) else "found"


def same_amount(one: str, other: str) -> bool:
    """Return whether two answers state the same amount of the same currency."""
    return one == other


class ScriptWriter:
    """The tool calls and answers of simulated models, right or wrong.

    The kinds are those of the simulated models' errors: ``syntax_error`` is a call that the tool rejects, ``wrong_aggregate`` a
    wrong answer without tool calls.
    """

    kinds: Sequence[str] = ("syntax_error", "wrong_aggregate")

    def skills(self, request: Request) -> Mapping[str, float]:
        """Return the difficulty: another currency needs one more step."""
        return {"aggregation": 0.6 if request.data["currency"] != "EUR" else 0.2}

    def right(self, request: Request, rng: random.Random) -> str:
        """Return all calls and the answer."""
        row = request.data
        rate = RATES[row["currency"]]
        calls = [{"name": "price", "args": {"item": row["item"]}}]
        if row["currency"] != "EUR":
            calls.append({"name": "exchange_rate", "args": {"currency": row["currency"]}})
        expression = f"{row['pieces']} * {PRICES_EUR[row['item']]} * {rate}"
        calls.append({"name": "calculate", "args": {"expression": expression}})
        return json.dumps({"calls": calls, "answer": f"That is {row['answer']}."})

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        """Return a call that fails, or a guess."""
        row = request.data
        if kind == "syntax_error":
            calls = [{"name": "price", "args": {"item": f"{row['item']} no. {rng.randrange(1000)}"}}]
            return json.dumps({"calls": calls, "answer": "I could not find the price."})
        guess = row["pieces"] * PRICES_EUR[row["item"]] * rng.choice((0.9, 1.1, 1.25))
        return json.dumps({"calls": [], "answer": f"About {guess:.2f} {row['currency']}."})


workflow = Workflow(
    name="react-agent",
    template=Template((Loop((Stage("model"),), times=5),)),
    build=build,
    requests=requests(),
    labels=("answer", "item", "pieces", "currency"),
    inputs=lambda request: {"messages": [HumanMessage(request.data["question"])]},
    score=score,
    writer=ScriptWriter(),
    signal=step,
    agree=same_amount,
    answer=("amount",),
)

if __name__ == "__main__":
    spec = "examples.react.app:workflow"
    raise SystemExit(
        run(
            workflow,
            spec,
            lambda state: str(state["messages"][-1].text),
            defaults=Defaults(0.1, max_error=0.25, max_cost_usd=0.01),
        )
    )

"""The workflow that reads the amount of a cheque, written in words, with models of 135 to 270 million parameters.

These models often fail. The application asks for the digits, checks whether there are as many as the words imply, and asks once
more if not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypedDict

from vinelm.catalog import Catalog
from vinelm.requests.protocols import Vine
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Loop, Stage, Template

LEAST, MOST = 11, 999
_ONES = [
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen",
    "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_READ = "forty-two = 42\nthree hundred and seven = 307\nnineteen = 19\n{} ="
_AGAIN = (
    "one hundred and eighty-four = 184\nfour hundred and thirty = 430\ntwo hundred and eleven = 211\nsix hundred = 600\n"
    "seventy-five = 75\neight hundred and nine = 809\n{} ="
)


class ChequeState(TypedDict, total=False):
    """The state of the graph: the amount in words, and the digits that a model has read."""

    words: str
    digits: str


def in_words(number: int) -> str:
    """Return a number from 1 to 999 in English words."""
    hundreds, rest = divmod(number, 100)
    if hundreds:
        return f"{_ONES[hundreds - 1]} hundred{f' and {in_words(rest)}' if rest else ''}"
    tens, ones = divmod(rest, 10)
    if tens < 2:
        return _ONES[rest - 1]
    return _TENS[tens - 2] + (f"-{_ONES[ones - 1]}" if ones else "")


def is_plausible(words: str, digits: str) -> bool:
    """Return whether ``digits`` could be the amount that ``words`` gives.

    ``digits`` must have as many digits as the amount, and end in 0 if the amount does. This is the application's own check,
    which finds only some of the wrong answers.
    """
    ends_in_zero = words.endswith(("ty", "hundred", "ten"))
    return digits.isdecimal() and len(digits) == (3 if "hundred" in words else 2) and (not ends_in_zero or digits[-1] == "0")


def workflow(catalog: Catalog, *, today: str, seed: int, requests: int) -> Workflow:
    """Return the cheque workflow. Its prompts suit small models, which need only complete the last line of a text.

    Args:
        catalog: The models.
        today: The model of both steps in the current setup.
        seed: The seed of the amounts.
        requests: The number of requests, at most 989; no amount occurs twice.
    """

    def asking(prompt: str) -> Callable[[ChequeState, Any], ChequeState]:
        def ask(state: ChequeState, model: Any) -> ChequeState:
            return {"digits": model.invoke(prompt.format(state["words"]), stop=["\n"]).text.strip()}

        return ask

    def build(vine: Vine) -> Any:
        from langgraph.graph import END, START, StateGraph

        graph = StateGraph(ChequeState)
        graph.add_node("read", vine.stage("read", asking(_READ), default=today))
        graph.add_node("check", lambda state: {})
        graph.add_node("again", vine.stage("again", asking(_AGAIN), default=today))
        graph.add_node("finish", vine.finish)
        graph.add_edge(START, "read")
        graph.add_edge("read", "check")
        passed = vine.route(lambda state: is_plausible(state["words"], state["digits"]), again="again", end="finish", times=1)
        graph.add_conditional_edges("check", passed)
        graph.add_edge("again", "check")
        graph.add_edge("finish", END)
        return graph

    amounts = random.Random(seed).sample(range(LEAST, MOST + 1), requests)
    return Workflow(
        name="cheques",
        template=Template((Stage("read"), Loop((Stage("again"),), times=1))),
        build=build,
        requests=[Request(str(amount), {"words": in_words(amount), "amount": str(amount)}) for amount in amounts],
        labels=("amount",),
        score=lambda request, state: state["digits"] == request.data["amount"],
        signal="status",
        agree=lambda one, other: one == other,
        answer=("digits",),
        models=catalog,
    )

"""Reads orders out of letters in plain Python: extract, check the sum, repair. No graph, no framework."""

from __future__ import annotations

import json
from typing import Any

TURNS = 2
EXTRACT = """Read the order in this letter. Answer with JSON only:
{{"lines": [{{"item": "...", "pieces": 0, "price": 0.0}}], "total": 0.0}}

{letter}"""
REPAIR = """{fault}. Correct it and answer with JSON only, in the same form.

Letter: {letter}

Your answer: {answer}"""


def fault(answer: str) -> str | None:
    """Return what is wrong with an answer as far as the letter is not needed to see it; None if nothing is."""
    try:
        order = json.loads(answer)
        total = sum(line["pieces"] * line["price"] for line in order["lines"])
    except (ValueError, TypeError, KeyError):
        return "The answer is not JSON of the form that was asked for"
    if abs(total - order["total"]) > 0.005:
        return f"The lines sum up to {total:.2f}, the total says {order['total']}"
    return None


def build(extract: Any, repair: Any) -> Any:
    """The application: a function of a letter."""

    def read_order(inputs: dict[str, Any]) -> dict[str, Any]:
        letter = inputs["letter"]
        answer = extract.invoke(EXTRACT.format(letter=letter)).text
        for _ in range(TURNS):
            problem = fault(answer)
            if problem is None:
                break
            answer = repair.invoke(REPAIR.format(fault=problem, letter=letter, answer=answer)).text
        return {"answer": answer}

    return read_order

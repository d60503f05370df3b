"""Example (e): an agent whose tools are called ahead, with and without. ``python -m examples.shop.app``."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage, convert_to_openai_messages

from examples.shop.graph import build
from examples.shop.model import ScriptedClerk
from examples.shop.server import CUSTOMERS, Shop, customer_id, serving
from vinelm import Catalog, Speculation, VineLM
from vinelm.errors import VineLMError

PRACTICE = 40
"""Customers whose conversations are learnt from; the others are served."""


def question(number: int) -> str:
    """Return what a customer asks."""
    what = "What does my newest order cost?" if number % 3 == 1 else "What do my orders cost in all?"
    return f"{what} I am {customer_id(number)}."


def application(shop: Shop, address: str) -> tuple[VineLM, Any, ScriptedClerk]:
    """The agent over the shop, with its model and its VineLM."""
    clerk = ScriptedClerk()
    price = {"input": 0.0, "output": 0.0, "source": "scripted", "as_of": "2026-11-27"}
    vine = VineLM(Catalog.from_chat_models({"scripted": clerk}, prices={"scripted": price}))
    return vine, build(vine, clerk, address), clerk


def practise(agent: Any, log: Path) -> None:
    """Let the agent talk to customers, and keep the messages."""
    with log.open("w", encoding="utf-8") as file:
        for number in range(PRACTICE):
            state = agent.invoke({"messages": [HumanMessage(question(number))]})
            file.write(
                json.dumps({"task": customer_id(number), "messages": convert_to_openai_messages(state["messages"])}) + "\n"
            )


def mine(folder: Path) -> None:
    """Run ``vinelm tools mine`` on the messages in the folder."""
    words = ["tools", "mine", "messages.jsonl", "--read-only", "get_*", "-o", "shop.patterns"]
    print("$ vinelm " + " ".join(words), flush=True)
    subprocess.run([sys.executable, "-m", "vinelm.cli.main", *words], check=True, cwd=folder)


def serve(vine: VineLM, agent: Any, limit: int) -> bool:
    """Answer customers without and with tools called ahead, and print what it took; return whether answers are the same."""
    is_same, alone_s, ahead_s = True, 0.0, 0.0
    for number in range(PRACTICE, min(PRACTICE + limit, CUSTOMERS)):
        (alone, took_s), (ahead, with_s) = (
            answered(agent, number, vine.context(speculate=how)) for how in (None, Speculation())
        )
        is_same, alone_s, ahead_s = is_same and alone == ahead, alone_s + took_s, ahead_s + with_s
        print(f"{customer_id(number):>15}  {took_s:.2f} s alone, {with_s:.2f} s ahead  {ahead}")
    counts = vine.tool_counts
    found = [f"{counts.get(what, 0)} {words}" for what, words in (("started", "reads ahead"), ("ready", "ready"),
             ("joined", "under way"), ("unused", "not asked for"))]  # fmt: skip
    print(f"in all {alone_s:.1f} s alone, {ahead_s:.1f} s ahead: x {ahead_s / alone_s:.2f}; {', '.join(found)}")
    print(f"All answers are the same: {'yes' if is_same else 'NO'}")
    return is_same


def answered(agent: Any, number: int, context: Any) -> tuple[str, float]:
    """Return the answer to a customer, and the seconds that it took."""
    started = time.perf_counter()
    state = agent.invoke({"messages": [HumanMessage(question(number))]}, context=context)
    return state["messages"][-1].text, time.perf_counter() - started


def main(argv: list[str] | None = None) -> int:
    """Learn, serve, compare; returns the exit code: 0 success, 1 if an answer differs, 2 bad input, 130 interrupted."""
    parser = argparse.ArgumentParser(description="An agent over a shop's HTTP service: its tools alone, and called ahead.")
    parser.add_argument("--limit", type=int, default=4, help="number of customers to serve [default: 4]")
    parser.add_argument("--think-s", type=float, default=0.2, help="seconds of the scripted model for a step [default: 0.2]")
    parser.add_argument("--distance-s", type=float, default=0.15, help="seconds of the shop for an answer [default: 0.15]")
    options = parser.parse_args(argv)
    if options.limit < 1 or not (options.think_s >= 0.0 and options.distance_s >= 0.0):
        parser.error("give --limit at least 1, and seconds >= 0")
    try:
        with tempfile.TemporaryDirectory() as folder, serving(shop := Shop()) as address:
            vine, agent, clerk = application(shop, address)
            practise(agent, Path(folder) / "messages.jsonl")
            mine(Path(folder))
            vine.load(patterns=Path(folder) / "shop.patterns")
            answered(agent, 0, vine.context())  # what is imported then takes no customer's time
            clerk.think_s, shop.distance_s = options.think_s, options.distance_s
            print(f"A scripted model takes {clerk.think_s:g} s for a step, the shop {shop.distance_s:g} s for an answer.")
            return 0 if serve(vine, agent, options.limit) else 1
    except VineLMError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"error: vinelm tools mine failed with exit code {error.returncode}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())

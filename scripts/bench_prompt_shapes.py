"""What the shapes of prompts cost: microseconds of a call, and the memory of a tree of 100,000 calls.

    python scripts/bench_prompt_shapes.py [--calls 100000] [--json]

Four stages, each with a static part, and requests that several calls send, with an answer that is the call's own behind them.
"""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

from studies import study

from vinelm.prompts.radix import PromptTree
from vinelm.prompts.shape import shape_of
from vinelm.prompts.stored import packed

KEY = b"of a benchmark"
TIMED = 2_000


def calls(count: int, static: int, request: int) -> Iterator[tuple[str, str, list[str]]]:
    """Stage, request and parts of each call; sizes in tokens of four bytes."""
    rng = random.Random(0)
    heads = {stage: (f"{stage} " * (2 * static))[: 4 * static] for stage in "abcd"}
    for number in range(count):
        name = str(rng.randrange(max(count // 25, 1)))
        text = (f"{name} " * (4 * request))[: 4 * request]
        yield "abcd"[number % 4], name, [heads["abcd"[number % 4]], text, f"answer {number % 50} " * rng.randrange(1, 30)]


def measured(count: int = 100_000, static: int = 1_200, request: int = 800) -> dict[str, float]:
    """Return the best of five microseconds per call of hashing, packing and adding, and MiB of the tree."""
    some = list(calls(TIMED, static, request))
    shapes = [shape_of(parts, KEY) for _, _, parts in some]
    figures = {
        "hash_us": _best(lambda: [shape_of(parts, KEY) for _, _, parts in some]),
        "pack_us": _best(lambda: [packed((shape,), KEY) for shape in shapes]),
        "add_us": _best(lambda: _tree(zip(some, shapes, strict=True))),
    }
    tracemalloc.start()
    tree = _tree((call, shape_of(call[2], KEY)) for call in calls(count, static, request))
    figures["tree_mib"] = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.reset_peak()
    tree.labels()
    figures["peak_mib_with_labels"] = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return {"calls": count, "tokens": static + request, **{name: round(value, 1) for name, value in figures.items()}}


def _tree(found) -> PromptTree:
    tree = PromptTree()
    for (stage, request, _), shape in found:
        tree.add(stage, request, shape)
    return tree


def _best(work) -> float:
    def once() -> float:
        begun = time.perf_counter()
        work()
        return time.perf_counter() - begun

    return min(once() for _ in range(5)) / TIMED * 1e6


def main() -> int:
    def lines(found: dict[str, Any]) -> Iterator[str]:
        return (f"{name:22} {value:,}" for name, value in found.items())

    return study(__doc__, {"--calls": (100_000, "")}, lambda options: measured(options.calls), lines)


if __name__ == "__main__":
    sys.exit(main())

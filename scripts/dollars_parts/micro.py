"""What the shape of a prompt costs in time and memory."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from typing import Any

from dollars_parts.workloads import text_of

from vinelm.prompts.shape import shape_of

CALLS = 2_000
PARTS = (2_000, 300, 100)
"""Tokens of the parts of a prompt: static, request, what earlier stages said."""


def shape_costs(calls: int = CALLS) -> dict[str, Any]:
    """Median microseconds of a shape, and the MB that those of 100,000 calls take."""
    static, key = text_of("static", PARTS[0]), b"k" * 16
    prompts = [(static, text_of(f"r{n}", PARTS[1]), text_of(f"s{n}", PARTS[2])) for n in range(calls)]
    taken = []
    for prompt in prompts:
        started = time.perf_counter()
        shape_of(prompt, key)
        taken.append(time.perf_counter() - started)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = [shape_of(prompt, key) for prompt in prompts]
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "shapes_us_per_call": statistics.median(taken) * 1e6,
        "shapes_mb_per_1e5": (after - before) / len(kept) * 1e5 / 1e6,
    }

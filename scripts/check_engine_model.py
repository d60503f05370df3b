"""Hold the engine model of the bench of batches against a real engine: the computed tokens of each prompt, call by call.

    python -m venv ENGINE && ENGINE/bin/pip install xllamacpp gguf
    python scripts/check_engine_model.py --data DIR --python ENGINE/bin/python [--json]

The real engine is llama.cpp with one slot, over a small model with random weights, on this processor: it counts the tokens of
a prompt that it computes, and keeps the last sequence. The calls are Helium's Debate, MapReduce and Reflect over real contexts,
as they come and sorted by context; follow-ups hold what the model answered. Seconds are not compared. Exit code 1 if a count
differs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batch_parts.engine import Engine, SlotCache
from batch_parts.loads import really_answered

LOADS = ("debate", "mapreduce", "reflect")
SPECIAL = 3
"""Tokens of the model that are no bytes; they come first."""


@dataclass
class RealEngine:
    """The engine in a process of its own; counts the computed tokens of each prompt.

    Args:
        python: An interpreter that has xllamacpp and gguf.
    """

    python: Path
    counted: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        script = Path(__file__).parent / "batch_parts" / "llama_slot.py"
        self._process = subprocess.Popen(
            [self.python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def answer(self, text: str, tokens_out: int) -> str:
        """Return what the model answers, a character for each token."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        tokens = [ord(one) + SPECIAL if ord(one) < 256 else ord(one) - 256 for one in text]
        self._process.stdin.write(json.dumps([tokens, tokens_out]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(
                f"{self.python} runs no engine: install xllamacpp and gguf there, and try scripts/batch_parts/llama_slot.py"
            )
        computed, said = json.loads(line)
        self.counted.append(computed)
        return "".join(chr(one - SPECIAL) if one >= SPECIAL else chr(one + 256) for one in said)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def compared(name: str, data: Path, contexts: int, python: Path, *, shuffled: bool) -> dict[str, Any]:
    """Make the calls of a batch one by one with both; returns the computed tokens of each and the calls that differ."""
    real = RealEngine(python)
    prompts = really_answered(name, data, contexts, real.answer, shuffled=shuffled)
    real.close()
    engine, modelled = Engine(SlotCache(), block_tokens=1, most_running=1), []
    for number, prompt in enumerate(prompts):
        before = engine.prefilled
        engine.submit(number, prompt)
        engine.advance()
        modelled.append(engine.prefilled - before)
    return {
        "load": name,
        "order": "as they come" if shuffled else "sorted by context",
        "calls": len(prompts),
        "prompt_tokens": engine.prompted,
        "computed_by_the_engine": sum(real.counted),
        "computed_by_the_model": sum(modelled),
        "calls_that_differ": sum(one != other for one, other in zip(real.counted, modelled, strict=True)),
    }


def main(words: Sequence[str] | None = None) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--python", type=Path, required=True, help="an interpreter that has xllamacpp and gguf")
    parser.add_argument("--contexts", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    found = [
        compared(name, options.data, options.contexts, options.python, shuffled=shuffled)
        for name in LOADS
        for shuffled in (True, False)
    ]
    if options.json:
        print(json.dumps(found))
    else:
        for one in found:
            print(", ".join(f"{key} {value:,}" if isinstance(value, int) else f"{key} {value}" for key, value in one.items()))
    return int(any(one["calls_that_differ"] for one in found))


if __name__ == "__main__":
    sys.exit(main())

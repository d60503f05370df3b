"""Attacks on VineLM, bounded and on this machine's loopback only: what was tried, and what got through.

Parts: lying model servers for each of LangChain's packages; faults injected into every method of ours that a served
request passes, in stages and on every other way in; agents of many users whose tools are called ahead; stages that pay and do
not finish, whose requests are resumed; Ctrl-C during a first use; trie files with valid checksums and wrong
contents; random command lines over damaged files; generated Python against the sandbox of the coding example; generated SQL
against the limits of the SQL workflows. Run it as an ordinary user. It sends nothing beyond loopback and writes only to scratch
folders. Exit code 1 if anything got through.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import attack_paths  # noqa: F401 - where some parts find what they import

PARTS = {
    "servers": "lying servers x providers",
    "faults": "faults in our own methods, on_error='default'",
    "ways_in": "the same on every other way in",
    "tools_ahead": "tools ahead: whose, when, and in which context",
    "interrupts": "Ctrl-C during a first use",
    "unfinished": "stages that pay and do not finish",
    "tries": "trie files with valid checksums",
    "command_line": "random command lines",
    "sandbox": "generated Python against the sandbox",
    "sql": "generated SQL against its limits",
    "evidence": "served rows with odd values",
    "service": "odd objectives and bodies, example service",
    "callers": "names of others, functions in states",
}


def main() -> int:
    """Run the parts and print their counts; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run [default: all]")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    sys.path.append(str(Path(__file__).resolve().parents[2]))  # which has examples/
    for part in options.parts:
        began = time.perf_counter()
        found = dict(import_module(f"hostile_parts.{part}").run(_Progress(part)))
        results[part] = {
            "attempts": next((found[key] for key in ATTEMPTS if key in found), 0),
            "through": _through(found),
            "seconds": round(time.perf_counter() - began, 1),
            "facts": found,
        }
        one = results[part]
        print(f"{part}: {one['attempts']} attempts, {len(one['through'])} through", file=sys.stderr, flush=True)
        for line in one["through"]:  # at once: a later part may end the program
            print(f"  {line[:200]}", file=sys.stderr, flush=True)
    through = sum(len(found["through"]) for found in results.values())
    if options.json:
        attempts = sum(found["attempts"] for found in results.values())
        print(json.dumps({"parts": results, "attempts": attempts, "through": through}, indent=1, default=str))
    else:
        _print_table(results)
    return 1 if through else 0


ATTEMPTS = ("attempts", "calls", "injected", "count")
"""Key of the number of attacks in a part's facts."""
THROUGH = ("through", "app_failures", "too_many_calls", "told_prompt", "untold")
"""Keys of what got through, as lists of texts."""


def _through(found: dict[str, Any]) -> list[str]:
    lines = [str(line) for key in THROUGH for line in found.get(key, ())]
    got = found.get("got_through", ())
    lines += [str(line) for line in got] if isinstance(got, list | tuple) else []
    return lines + [f"{one['name']}: {one.get('found')}" for one in found.get("attacks", ()) if not one["stopped"]]


class _Progress:
    """Prints a line, or every tenth step of a count, whichever a part reports."""

    def __init__(self, part: str) -> None:
        self._part = part

    def __call__(self, *told: Any) -> None:
        if len(told) == 2 and told[0] % 10 and told[0] != told[1]:
            return
        line = f"{told[0]} of {told[1]}" if len(told) == 2 else str(told[0])
        print(f"{self._part}: {line}", file=sys.stderr)


def _print_table(results: dict[str, Any]) -> None:
    print(f"{'attack':<46} {'attempts':>9} {'through':>8} {'seconds':>8}")
    for part, found in results.items():
        print(f"{PARTS[part]:<46} {found['attempts']:>9,} {len(found['through']):>8} {found['seconds']:>8.0f}")
        kinds = found["facts"].get("kinds", {})
        for kind, counts in kinds.items() if isinstance(kinds, dict) else ():
            through = sum(len(lines) for lines in counts.values() if isinstance(lines, list))
            print(f"  {kind:<44} {counts['injected']:>9,} {through:>8}")
        for line in found["through"]:
            print(f"  {line[:200]}")
        if found["facts"].get("skipped"):
            print(f"  not run: {found['facts']['skipped']}")


if __name__ == "__main__":
    sys.exit(main())

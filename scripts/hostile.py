"""Attacks on VineLM, bounded and on this machine's loopback only: what was tried, and what got through.

Parts: lying model servers for every provider whose wire is ours; faults injected into every method of ours that a served
request passes; trie files with valid checksums and wrong contents; random command lines over damaged files; generated Python
against the sandbox of the coding example; generated SQL against the limits of the SQL workflows. Run it as an ordinary user. It
sends nothing beyond loopback and writes only to scratch folders. Exit code 1 if anything got through.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from importlib import import_module
from typing import Any

PARTS = {
    "servers": "lying servers x providers",
    "faults": "faults in our own methods, on_error='default'",
    "tries": "trie files with valid checksums",
    "command_line": "random command lines",
    "sandbox": "generated Python against the sandbox",
    "sql": "generated SQL against its limits",
}


def main() -> int:
    """Run the parts and print their counts; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run [default: all]")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for part in options.parts:
        began = time.perf_counter()
        results[part] = import_module(f"hostile_parts.{part}").run(_say)
        results[part]["seconds"] = round(time.perf_counter() - began, 1)
    through = sum(len(found["through"]) for found in results.values())
    if options.json:
        print(
            json.dumps(
                {"parts": results, "attempts": sum(r["attempts"] for r in results.values()), "through": through}, indent=1
            )
        )
    else:
        _print_table(results)
    return 1 if through else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _print_table(results: dict[str, Any]) -> None:
    print(f"{'attack':<46} {'attempts':>9} {'through':>8} {'seconds':>8}")
    for part, found in results.items():
        print(f"{PARTS[part]:<46} {found['attempts']:>9,} {len(found['through']):>8} {found['seconds']:>8.0f}")
        for line in found["through"]:
            print(f"  {line[:200]}")
        if found.get("skipped"):
            print(f"  not run: {found['skipped']}")


if __name__ == "__main__":
    sys.exit(main())

"""Runs the hostile snippets: how many get out of the sandbox, and what the worst of them takes."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graphqa_parts.hostile_snippets import FLOODS, HELD, REFUSED

from vinelm.workflows.graphqa.act import Ran, in_sandbox, run_snippet
from vinelm.workflows.graphqa.act_process import DATA_BYTES

MOST_PRINTED, SECRET = 4096, "XYZZY-SECRET"
MARKS = (SECRET, "root:", "uid=")
"""What a snippet that read the environment, a file or ran a program would print."""
ROOM_MB = 256.0
"""What a process holds beside its data: code, and pages that it shares."""


def measured(functions: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """Count snippets and escapes: of the list those that ran, of the sandbox those that were not stopped or told something.

    A flood may end with an error or with cut text; it escapes if it takes more memory or text than it may.
    """
    os.environ["GRAPHQA_SECRET"] = SECRET
    seconds, printed, largest_mb, escapes = 0.0, 0, 0.0, []
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.chdir(folder):
            for name, run, snippets in (
                ("refused", run_snippet, REFUSED),
                ("held", in_sandbox, HELD),
                ("flood", run_snippet, FLOODS),
            ):
                for code in snippets:
                    started = time.perf_counter()
                    ran = run(code, functions)
                    seconds, printed = max(seconds, time.perf_counter() - started), max(printed, len(ran.printed.encode()))
                    held_mb = _largest_mb()
                    largest_mb = max(largest_mb, held_mb)
                    if _escaped(name, ran) or held_mb > DATA_BYTES / 2**20 + ROOM_MB:
                        escapes.append(code)
        if os.listdir(folder):
            escapes.append("a file was written")
    return {
        "snippets": len(REFUSED) + len(HELD) + len(FLOODS),
        "refused_unread": len(REFUSED),
        "held_by_the_sandbox_alone": len(HELD),
        "floods": len(FLOODS),
        "escapes": len(escapes),
        "escaped": escapes,
        "longest_s": seconds,
        "most_printed_bytes": printed,
        "largest_process_mb": largest_mb or None,
        "pool_lives": run_snippet("print(1)", functions).printed == "1",
    }


def _escaped(kind: str, ran: Ran) -> bool:
    said = f"{ran.printed}{ran.error}"
    if any(mark in said for mark in MARKS) or len(ran.printed.encode()) > MOST_PRINTED or "\n" in (ran.error or ""):
        return True
    if kind == "refused":
        return ran.status == "ok" or bool(ran.printed)
    return ran.status == "ok" and not (kind == "flood" and (ran.is_cut or not ran.printed))


def _largest_mb() -> float:
    """The most memory that a process below this one has held which is still there; 0 where the system does not say so."""
    largest, parents = 0.0, {os.getpid()}
    for path in sorted(Path("/proc").glob("[0-9]*/status"), key=lambda path: int(path.parent.name)):
        try:
            told = dict(line.split(":", 1) for line in path.read_text().splitlines())
        except OSError:
            continue
        if int(told["PPid"]) in parents:
            parents.add(int(told["Pid"]))
            largest = max(largest, int(told.get("VmHWM", "0 kB").split()[0]) / 1024)
    return largest

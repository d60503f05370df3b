"""Ctrl-C during the first use of a process, at random moments, up to three times; then the same process has to work."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attack_paths import SHARED

ROOT = Path(__file__).resolve().parents[3]
CALLS_OF_PYTHON = 700_000
"""Calls of Python functions in a first import and the first requests, about: an interrupt falls on one of them."""
CHILD = """
import os, signal, sys, traceback
moments, calls = [int(one) for one in sys.argv[1:]], 0

def serve():
    from vinelm import VineLM, VineMiddleware  # first: what the application imports by itself is not ours to keep whole
    from hostile_parts.chat_way import ChatWay
    from hostile_parts.staged_way import StagedWay
    ChatWay().serve("invoke, cap", "chat")
    StagedWay().serve("async, no cap", "staged")

def hook(frame, event, argument):
    global calls
    calls += event == "call"
    if event == "call" and calls == moment:
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

for moment in moments:
    calls = 0
    sys.setprofile(hook)
    try:
        serve()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
serve()
"""


def run(progress: Callable[[str], object], *, processes: int = 60, seed: int = 5) -> Mapping[str, Any]:
    """Interrupt so many processes and return the counts."""
    rng = random.Random(seed)
    plans = [[str(int(CALLS_OF_PYTHON * rng.random() ** 2)) for _ in range(rng.randint(1, 3))] for _ in range(processes)]
    with ThreadPoolExecutor(max(min(os.cpu_count() or 1, 4), 1)) as pool:
        broken = [line for line in pool.map(_broken, plans) if line]
    progress(f"{processes} processes, {len(broken)} broken")
    return {"attempts": processes, "interrupts": sum(map(len, plans)), "through": broken}


def _broken(moments: list[str]) -> str:
    """Why a process does not work after the interrupts; empty if it does."""
    command = [sys.executable, "-c", CHILD, *moments]
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": SHARED}, capture_output=True, text=True, check=False, timeout=300
    )
    last = ended.stderr.strip().splitlines()[-1:] or ["no message"]
    return "" if ended.returncode == 0 else f"interrupted at {', '.join(moments)}: {last[0][:200]}"

"""Faults in functions of ours: which functions a request enters, and how one of them raises."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from vinelm.adapters.langgraph.runs.graph_run import GraphRun

HOUSE = Path(__file__).resolve().parents[3]
OURS = tuple(f"{HOUSE / top}/" for top in ("vinelm", "controller"))


class InjectedFault(Exception):
    """The fault."""


def entered(serve: Callable[[], object]) -> set[tuple[str, str]]:
    """Module and qualified name of our functions that ``serve`` enters, in any thread."""
    found: set[tuple[str, str]] = set()

    def hook(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            found.add((frame.f_globals["__name__"], frame.f_code.co_qualname))

    threading.setprofile(hook)
    sys.setprofile(hook)
    try:
        serve()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return found


@contextmanager
def failing(module: str, name: str, at: int, is_lasting: bool) -> Iterator[list[int]]:
    """Let that function raise at its call number ``at``, or from then on; yields a list with the number of faults."""
    owner: Any = sys.modules[module]
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    original = vars(owner)[last]
    calls, faults = [0], [0]

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == at or (is_lasting and calls[0] > at):
                faults[0] += 1
                raise InjectedFault("a prompt and a key")
            return function(*args, **kwargs)

        return faulty

    if isinstance(original, property):
        replaced: Any = property(wrapped(original.fget))  # type: ignore[arg-type]
    elif isinstance(original, (classmethod, staticmethod)):
        replaced = type(original)(wrapped(original.__func__))
    else:
        replaced = wrapped(original)
    places = [(owner, last)]
    if not path:  # other modules have imported it by name
        held = [one for key, one in sys.modules.items() if key.startswith("vinelm") and one is not owner]
        places += [(one, key) for one in held for key, value in list(vars(one).items()) if value is original]
    for place, key in places:
        setattr(place, key, replaced)
    try:
        yield faults
    finally:
        for place, key in places:
            setattr(place, key, original)


class Captured:
    """The runs that were made while it is installed, to read their traces afterwards."""

    def __init__(self) -> None:
        self.runs: list[GraphRun] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Keep every run that is made inside the block."""
        init, runs = GraphRun.__init__, self.runs

        def kept(run: GraphRun, *args: Any, **kwargs: Any) -> None:
            init(run, *args, **kwargs)
            runs.append(run)

        GraphRun.__init__ = kept  # type: ignore[method-assign]
        try:
            yield
        finally:
            GraphRun.__init__ = init  # type: ignore[method-assign]

    def notes(self) -> str:
        """Everything that the traces tell."""
        return " | ".join(str(step.get("note", "")) for run in self.runs for step in run.policy.trace())

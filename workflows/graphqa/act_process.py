"""The process that runs code actions: it forks one process per session, each with its own pydantic-monty worker."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, BinaryIO, TypeAlias

from vinelm.extras import required_extra
from vinelm.workflows.limited.session_process import end_after, serve_sessions, wait_for_children

with required_extra("graph", "running code actions"):
    import pydantic_monty as monty

MOST_SECONDS = 2.0
"""The maximum seconds that a snippet runs, not counting calls to the graph."""
MOST_BYTES = 50_000_000
MOST_HOST_CALLS = 10_000
MOST_DEPTH = 200
MOST_PRINTED = 4096
"""The maximum number of UTF-8 bytes of printed text in a result; the rest is dropped, and ``is_cut`` is set."""
MOST_SAID = 16_000_000
"""The maximum number of bytes of one call's arguments as JSON: a list may contain one long text a million times."""
WAIT_S = 20.0
"""The maximum seconds to wait for a worker of the sandbox."""
SPACE_BYTES = 4 << 30
"""The bytes that a session may map in addition to the process's mappings at its start; most are never used."""
DATA_BYTES = 512 << 20
"""The bytes of memory that a session and its worker may each have. It allows for arguments of a call, which leave the
interpreter before they are counted."""
_ERROR_CHARS = 300
_LIMITS = {
    "TimeoutError: feed time": f"TimeoutError: the snippet ran longer than {MOST_SECONDS:.0f} s",
    "MemoryError": f"MemoryError: the snippet took more than {MOST_BYTES // 1_000_000} MB",
    "RuntimeError: suspension limit": f"RuntimeError: more than {MOST_HOST_CALLS:,} calls: give the functions lists of ids",
}
"""The descriptions of limits for the model, without measured figures, so that equal snippets give equal prompts."""

Ask: TypeAlias = Callable[[str, Sequence[Any], Mapping[str, Any]], Mapping[str, Any]]


def main(descriptor: int) -> None:
    """For each socket received over the socket ``descriptor``, fork a process that runs snippets.

    Return when the application has ended.
    """
    serve_sessions(descriptor, _answer, space_bytes=SPACE_BYTES, data_bytes=DATA_BYTES, ended=_ended)


def executed(code: str, names: Sequence[str], ask: Ask) -> dict[str, Any]:
    """Run a snippet under the limits of this module, and return its result.

    Args:
        code: The snippet.
        names: The names of the functions that the snippet may call.
        ask: Called when the snippet calls such a function, with its name and arguments; returns the ``value`` or the ``error``
            of the call.

    Returns:
        ``status`` ("ok", "error", or "died" if the worker died), ``printed``, ``error`` (one line or None), ``is_cut``.
    """
    printed = _Printed()
    limits: monty.ResourceLimits = {
        "max_feed_duration_secs": MOST_SECONDS,
        "max_memory": MOST_BYTES,
        "max_suspensions": MOST_HOST_CALLS,
        "max_recursion_depth": MOST_DEPTH,
        "max_total_sleep_secs": 0.0,
    }
    error = None
    asked, started_s = _Asked(ask), math.inf
    try:
        with _pool().checkout(limits=limits) as session:
            started_s = time.monotonic()
            lookup = {name: partial(asked, name) for name in names}
            session.feed_run(code, external_lookup=lookup, print_callback=printed)
    except monty.MontyCrashedError:
        if time.monotonic() - started_s - asked.seconds < MOST_SECONDS:
            return {"status": "died"}
        error = _LIMITS["TimeoutError: feed time"]  # one long step of arithmetic: its pool kills the worker
    except monty.MontyError as failure:
        error = _line(failure)
    text = {"printed": printed.text, "error": error, "is_cut": printed.is_cut}
    return {"status": "ok" if error is None else "error", **text}


def _answer(line: bytes, stream: BinaryIO) -> None:
    question = json.loads(line)
    silent_s = question["silent_s"]  # nobody waits longer; it may hang in what leaves the interpreter, which no limit ends

    def ask(name: str, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        said = _line_of({"call": name, "args": list(args), "options": dict(options)})
        if len(said) > MOST_SAID:
            return {"error": f"{name}: more than {MOST_SAID // 1_000_000} MB of arguments: give fewer ids at once"}
        end_after(0.0)
        stream.write(said)
        stream.flush()
        answer = stream.readline()
        end_after(silent_s)
        return json.loads(answer)

    end_after(silent_s)
    found = _line_of(executed(question["code"], question["names"], ask))
    end_after(0.0)
    stream.write(found)
    stream.flush()


def _line_of(plain: Mapping[str, Any]) -> bytes:
    return json.dumps(plain, default=list).encode() + b"\n"


class _Asked:
    """Passes each function call of a snippet to ``ask``, and sums the seconds that the answers took (``seconds``)."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.seconds = 0.0

    def __call__(self, name: str, /, *args: Any, **options: Any) -> Any:
        asked_s = time.monotonic()
        said = self._ask(name, args, options)
        self.seconds += time.monotonic() - asked_s
        if "error" in said:
            raise ValueError(said["error"])
        return said["value"]


class _Printed:
    """Collects the text that a snippet prints, up to :data:`MOST_PRINTED`.

    It must not raise, because the snippet would then run until its time limit.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._left = MOST_PRINTED
        self.is_cut = False

    def __call__(self, stream: str, text: str) -> None:
        raw = text[: self._left].encode("utf-8", "replace")[: self._left]
        kept = raw.decode("utf-8", "ignore")
        self.is_cut |= len(kept) < len(text)
        self._left -= len(raw)
        self._parts.append(kept)

    @property
    def text(self) -> str:
        return "".join(self._parts).strip()


def _line(error: monty.MontyError) -> str:
    is_located = isinstance(error, monty.MontyRuntimeError | monty.MontySyntaxError)
    located: Any = error
    text = located.display("type-msg") if is_located else f"TypeError: {error}"
    text = next((said for start, said in _LIMITS.items() if text.startswith(start)), text)
    frames = located.traceback() if is_located else ()
    where = f" (line {frames[-1].line})" if frames else ""
    return " ".join(text.split())[:_ERROR_CHARS] + where


def _ended() -> None:
    if _pool.cache_info().currsize:
        _pool().__exit__(None, None, None)


@cache
def _pool() -> monty.Monty:
    """Return the pool with this process's single sandbox worker, which is started once and runs until the process ends."""
    wait_for_children()  # the pool's worker is one
    pool = monty.Monty(max_processes=1, checkout_timeout=WAIT_S)
    pool.__enter__()
    return pool

"""Lying servers against each of LangChain's packages under VineLM's meter: time, money and memory of each call.

Runs on loopback, for minutes; ``python tests/attacks/hostile.py --parts servers`` prints the counts.
"""

from __future__ import annotations

import asyncio
import datetime
import math
import os
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage

from vinelm.backends import create_backends
from vinelm.catalog import Catalog, Model, Price
from vinelm.clock import WallClock
from vinelm.errors import CallError
from vinelm.requests.protocols import CallContext
from vinelm.rows.observation import Usage

from . import contradictions  # noqa: F401 - adds its kinds
from .lies import KINDS, Kind
from .lying_server import LyingServer
from .wires import WIRES, Wire

TIMEOUT_S = 1.0
SLACK_S = 2.5
"""Of a busy machine, for each call: connecting, backoff, imports."""
HANG_S = 25.0
MOST_MIB = 250.0
"""The most that the process may grow by one call: an answer of 16 MiB, parsed."""
MOST_ATTEMPTS = {"free": 6, "charged": 2, "open": 2}
PROMPT = "a prompt that nobody else may read"
ALL = tuple(wire.name for wire in WIRES)
WAYS = tuple((is_async, is_streamed) for is_async in (False, True) for is_streamed in (False, True))
PRICE = Price(input=1.0, output=10.0, cached=0.1, source="made up", as_of=datetime.date(2026, 1, 1))
ENVIRONMENT = {
    "VINELM_HOSTILE_KEY": "sk-hostile", "AWS_ACCESS_KEY_ID": "AKIAHOSTILE", "AWS_SECRET_ACCESS_KEY": "hostile",
    "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """What one call came to. ``attempt_usd``: the upper bound of an attempt; ``bill_usd``: of one, if the lie states it."""

    label: str
    outcome: str
    wall_s: float
    requests: int
    usages: tuple[Usage, ...]
    attempt_usd: float
    grown_mib: float
    bill_usd: float = 0.0

    def got_through(self, kind: Kind) -> Iterator[str]:
        """Yield what the lie did that it must not do, one line each."""
        booked_usd = math.fsum(usage.cost_usd for usage in self.usages)
        if self.outcome.startswith("raised") or self.outcome == "hung":
            yield f"{self.label}: {self.outcome}"
        if self.wall_s > TIMEOUT_S * max(self.requests, 1) + SLACK_S:
            yield f"{self.label}: {self.wall_s:.1f} s for {self.requests} requests of {TIMEOUT_S} s"
        if len(self.usages) != 1 and self.outcome != "hung":
            yield f"{self.label}: reported {len(self.usages)} records"
        if not 0.0 <= booked_usd <= 2.02 * self.attempt_usd:
            yield f"{self.label}: booked ${booked_usd:.6g}, reserved ${2 * self.attempt_usd:.6g}"
        if booked_usd < 0.999 * self.bill_usd:
            yield f"{self.label}: booked ${booked_usd:.6g} of ${self.bill_usd:.6g}"
        if kind.money == "free" and booked_usd > 0:
            yield f"{self.label}: booked ${booked_usd:.6g} for what was refused"
        if kind.money == "charged" and booked_usd < 0.97 * self.attempt_usd * self.requests:
            yield f"{self.label}: booked ${booked_usd:.6g} for {self.requests} attempts of up to ${self.attempt_usd:.6g}"
        if self.requests > MOST_ATTEMPTS[kind.money]:
            yield f"{self.label}: {self.requests} requests"
        if self.grown_mib > MOST_MIB:
            yield f"{self.label}: the process grew by {self.grown_mib:.0f} MiB"


def run(
    progress: Callable[[str], None] = lambda line: None, *, only: Container[str] | None = None, providers: Container[str] = ALL
) -> dict[str, Any]:
    """Tell every lie to every provider, synchronously and asynchronously, streamed and not; return the counts.

    Starts servers on loopback and spends no money.

    Args:
        progress: receives a line per kind of lie.
        only: names of the kinds; None for all.
        providers: names of the providers.
    """
    wires = [wire for wire in WIRES if wire.name in providers and _is_installed(wire)]
    found: dict[str, Any] = {}
    with _environment(ENVIRONMENT):
        for wire in wires:  # import each SDK before anything is timed
            for way in WAYS:
                _one(KINDS[-1], wire, *way)
        for kind in (kind for kind in KINDS if only is None or kind.name in only):
            calls = _calls(kind, wires)
            found[kind.name] = _facts(kind, calls)
            progress(f"{kind.name}: {len(calls)} calls, {len(found[kind.name]['got_through'])} got through")
    lines = [line for facts in found.values() for line in facts["got_through"]]
    return {
        "providers": [wire.name for wire in wires],
        "timeout_s": TIMEOUT_S,
        "kinds": len(found),
        "calls": sum(facts["calls"] for facts in found.values()),
        "got_through": lines,
        "by_kind": found,
    }


def _calls(kind: Kind, wires: Iterable[Wire]) -> list[Call]:
    ways = [way for way in WAYS if kind.only is None or way[1] == (kind.only == "stream")]
    cases = [(kind, wire, *way) for wire in wires for way in ways]
    if kind.is_large:  # one by one, so that the growth is that of a single call
        return [_one(*case) for case in cases]
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda case: _one(*case), cases))


def _facts(kind: Kind, calls: list[Call]) -> dict[str, Any]:
    return {
        "calls": len(calls),
        "outcomes": dict(Counter(call.outcome for call in calls)),
        "wall_s_max": round(max(call.wall_s for call in calls), 2),
        "requests_max": max(call.requests for call in calls),
        "booked_of_reserved_max": round(
            max(sum(usage.cost_usd for usage in call.usages) / (2 * call.attempt_usd) for call in calls), 3
        ),
        "grown_mib_max": round(max(call.grown_mib for call in calls), 1),
        "got_through": [line for call in calls for line in call.got_through(kind)],
    }


def _one(kind: Kind, wire: Wire, is_async: bool, is_streamed: bool) -> Call:
    """Tell one lie to one provider, in a thread of its own that is left alone if it hangs."""
    server = LyingServer()
    server.reply = lambda asked, out: kind.lie(wire, asked, out)
    model = _model(wire, server)
    (backend,) = create_backends(Catalog([model], {wire.name: _table(is_streamed)})).values()
    usages: list[Usage] = []
    call = CallContext(stage="s", prefix=("m",), clock=WallClock(), on_usage=usages.append)
    chat = backend.chat_model(model, call)
    outcome = ["hung"]
    thread = threading.Thread(target=_ask, args=(chat, is_async, outcome), daemon=True)
    _forget_peak()
    before_mib, started_s = _peak_mib(), time.monotonic()
    thread.start()
    thread.join(HANG_S)
    wall_s = time.monotonic() - started_s
    label = f"{kind.name} {wire.name} {'async' if is_async else 'sync'} {'streamed' if is_streamed else 'whole'}"
    attempt_usd = backend.upper_bound_usd(model, [HumanMessage(PROMPT)]) / 2  # type: ignore[attr-defined]
    bill_usd = PRICE.cost_usd(*kind.bill[wire.name]) if wire.name in kind.bill else 0.0
    found = Call(label, outcome[0], wall_s, server.requests, tuple(usages), attempt_usd, _peak_mib() - before_mib, bill_usd)
    backend.close()  # type: ignore[attr-defined]
    server.close()
    return found


def _ask(chat: Any, is_async: bool, outcome: list[str]) -> None:
    try:
        said = asyncio.run(chat.ainvoke(PROMPT)) if is_async else chat.invoke(PROMPT)
        said.text.encode(errors="replace")  # what a server has sent is handed on, lone surrogates too
        outcome[0] = "answer"
    except CallError as error:
        outcome[0] = error.kind
    except BaseException as error:
        outcome[0] = f"raised {type(error).__name__}"


def _model(wire: Wire, server: LyingServer) -> Model:
    fields: dict[str, Any] = {"api_base": server.root + wire.path, "max_tokens": 1024, "timeout_s": TIMEOUT_S, **wire.fields}
    return Model(name="m", provider=wire.name, model_id=wire.model_id, engine="e", price=PRICE, **fields)


def _table(is_streamed: bool) -> dict[str, Any]:
    return {"stream": is_streamed, "backoff_s": 0.001, "max_wait_s": 0.05}


PACKAGES = {"anthropic": "langchain_anthropic", "bedrock": "langchain_aws"} | dict.fromkeys(
    ("gemini", "vertex"), "langchain_google_genai"
)


def _is_installed(wire: Wire) -> bool:
    return find_spec(PACKAGES.get(wire.name, "langchain_openai")) is not None


def _peak_mib() -> float:
    """Return the most memory of the process since :func:`_forget_peak`, or since it began where that has no effect."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

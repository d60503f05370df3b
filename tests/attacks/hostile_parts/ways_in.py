"""Faults in VineLM itself, on every way in: what the part ``faults`` does to stages, done to whatever else serves requests.

The ways: chat models (in every form of a call, in a subgraph, outside of a graph), agents with the middleware, and stages in a
fleet, with dollars of a day, with evidence, with our observers; and a fleet whose Redis or thread fails. Counted for each:
requests that failed, and calls in flight, live rows and open rows that stay after a request. With dollars of a day also calls
that no account authorized, and dollars that none counts; there a call may be refused instead: the cap wins.
"""

from __future__ import annotations

import gc
import logging
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from vinelm.errors import CallRefused

from . import fleet_faults
from .agent_way import AgentWay
from .chat_way import ChatWay
from .faults import BOUNDARIES, LAST_RESORT, OF_OTHERS, STAND_INS, THE_CALL
from .injection import Captured, entered, failing
from .staged_way import DollarsWay, EvidenceWay, FleetWay, TelemetryWay
from .way import Way

CALLS = (1, 2)
ONCE = LAST_RESORT | {
    "InFlightLoadMonitor.finished",
    "SessionLoad._finished",
    "InFlight.end",
    "RequestRows._close",
    "may_be_capped",
}
"""These fail once, not for good: without them no call can be taken out of what is in flight, and nobody knows whether a request
has a cap: its calls are refused then, as under one."""
KINDS = ("chat models", "agents", "fleet", "dollars of a day", "evidence", "telemetry", "broken Redis", "fleet's thread")


@contextmanager
def made(kind: str, redis: str | None) -> Iterator[Way | None]:
    """The attacked application; None where this machine lacks what it needs."""
    name = f"hostile-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as folder:
        way: Any = None
        if kind == "chat models":
            way = ChatWay()
        elif kind == "agents":
            way = AgentWay()
        elif kind == "evidence":
            way = EvidenceWay(Path(folder))
        elif kind == "telemetry":
            way = TelemetryWay()
        elif redis is not None:
            way = FleetWay(redis, name) if kind == "fleet" else DollarsWay(redis, name, Path(folder))
        try:
            yield way
        finally:
            if way is not None:
                way.close()


def attack(kind: str, way: Way, progress: Callable[[str], object], calls: Sequence[int], every: int) -> Mapping[str, Any]:
    """Inject every fault into the requests of one way in, and return the counts."""
    targets: set[tuple[str, str]] = set()
    for case in way.cases:
        targets |= entered(lambda case=case: way.serve(case, f"warm {case}"))
    outside = BOUNDARIES | way.boundaries
    found: dict[str, Any] = {"functions": 0, "injected": 0, "refused": 0, "app_failures": []}
    found |= {key: [] for key in ("behind", "unguarded", "told_prompt")}
    for module, name in sorted(targets)[::every]:
        if "<" in name or module.startswith(THE_CALL) or name in outside or name.startswith((*OF_OTHERS, *STAND_INS)):
            continue
        found["functions"] += 1
        progress(f"{kind}: {module}.{name}")
        for at in calls:
            for is_lasting in (False,) if name in ONCE else (False, True):
                for case in way.cases:
                    _serve(way, case, (module, name, at, is_lasting), found)
    return found


def _serve(way: Way, case: str, fault: tuple[str, str, int, bool], found: dict[str, Any]) -> None:
    where = f"{fault[1]} call {fault[2]}{'+' if fault[3] else ''}, {case}"
    captured, failure = Captured(), None
    before, unguarded, calls = dict(way.behind()), way.backend.unguarded, way.backend.calls
    with captured.installed(), failing(*fault) as faults:
        try:
            way.serve(case, where)
        except CallRefused as error:
            is_allowed = way.is_capped or case.endswith(", cap")
            found["refused"] += faults[0] > 0
            failure = None if is_allowed else error
        except Exception as error:
            failure = error
    if not faults[0] and failure is None:
        return
    found["injected"] += 1
    if "a prompt and a key" in captured.notes():
        found["told_prompt"].append(where)
    del captured  # the runs: what they held is to be gone
    if failure is not None:
        found["app_failures"].append(f"{where}: {type(failure).__name__}")
        failure.__traceback__ = None
    after = way.behind()
    if any(after[key] > before[key] for key in after):
        gc.collect()
        after = way.behind()
    found["behind"] += [f"{where}: {key}" for key in after if after[key] > before[key] + 1e-9]
    if way.backend.unguarded > unguarded and (way.is_capped or case.endswith(", cap")):
        found["unguarded"].append(where)
    if way.backend.calls > calls + way.most_calls:
        found["app_failures"].append(f"{where}: {way.backend.calls - calls} calls")


def run(
    progress: Callable[[str], object],
    *,
    kinds: Sequence[str] = KINDS,
    calls: Sequence[int] = CALLS,
    every: int = 1,
    redis: str | None = None,
) -> Mapping[str, Any]:
    """Inject every fault and return the counts. Nothing leaves loopback.

    Args:
        progress: called with one line for each function attacked.
        kinds: the ways in.
        calls: the numbers of the call that raises, from 1.
        every: attacks each ``every``-th function only.
        redis: URL of a Redis for the fleet; None starts one where the program is installed.

    Returns:
        ``injected``, ``through`` (places), ``skipped`` (ways that need what this machine lacks), and ``kinds``: by way in,
        ``functions``, ``injected``, ``refused``, and what got through: ``app_failures``, ``behind``, ``unguarded`` and
        ``told_prompt``.
    """
    by_kind: dict[str, Mapping[str, Any]] = {}
    skipped = []
    logging.disable(logging.WARNING)
    try:
        with ExitStack() as stack, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            url = redis if redis is not None else stack.enter_context(_redis())
            by_kind |= fleet_faults.attack(kinds, url, progress, every)
            for kind in [kind for kind in kinds if kind not in {"broken Redis", "fleet's thread"}]:
                with made(kind, url) as way:
                    if way is None:
                        skipped.append(f"{kind}: no redis-server")
                    else:
                        by_kind[kind] = attack(kind, way, progress, calls, every)
    finally:
        logging.disable(logging.NOTSET)
    through = [
        f"{kind}: {key}: {line}"
        for kind, found in by_kind.items()
        for key in ("app_failures", "behind", "unguarded", "told_prompt")
        for line in found.get(key, ())
    ]
    injected = sum(found["injected"] for found in by_kind.values())
    return {"injected": injected, "through": through, "skipped": skipped, "kinds": by_kind}


@contextmanager
def _redis() -> Iterator[str | None]:
    from redis_for_bench import own_redis

    try:
        manager = own_redis()
        server = manager.__enter__()
    except SystemExit:
        yield None
        return
    try:
        yield server.url
    finally:
        manager.__exit__(None, None, None)

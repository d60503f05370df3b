"""Compares what the application has kept with what the engines and the callers saw."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vinelm.requests.names import unscoped

Interval = tuple[float, float]
UNCAPPED = "uncapped"
JOURNEY_S = 1.0
"""Longest that a call is assumed to take from leaving its rate limit to the engine."""
UNCERTAIN_S = 1.5
"""Calls that began so shortly before their engine was killed may have been answered, or not."""
UNWRITTEN_S = 3.0
"""Rows of requests that ended so shortly before their process was killed may not have been written, as documented."""


@dataclass(frozen=True)
class Asked:
    """One request as its caller saw it, in seconds of the monotonic clock.

    Attributes:
        server: the process that was asked, with its life: ``2.0`` is the first of process 2.
        outcome: ok; refused (its tenant's cap); died (its process was killed); failed.
        paths: the invocations that the answer names, each a list of models.
    """

    id: str
    tenant: str
    server: str
    began_s: float
    ended_s: float
    outcome: str
    detail: str = ""
    paths: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Call:
    """One call as an engine saw it."""

    at_s: float
    engine: str
    model: str
    request: str
    tenant: str
    is_bare: bool
    is_answer: bool
    """Whether this line says that the answer was sent; else that the call began."""


class Row(Protocol):
    """What is compared of an observation."""

    request_id: str
    prefix: tuple[str, ...]
    cost_usd: float
    failure: Any


@dataclass
class RowAudit:
    """How kept rows differ from what happened.

    Attributes:
        rows: rows in the store.
        expected: rows that must be there.
        lost: expected and missing, by request and path.
        double: more than one row of a path, or more successful rows than answers were sent.
        wrong_usd: requests whose dollars differ from those of the answers that were sent.
        forgiven: rows of the last moments of killed processes that are missing.
    """

    rows: int = 0
    expected: int = 0
    lost: list[str] = field(default_factory=list)
    double: list[str] = field(default_factory=list)
    wrong_usd: list[str] = field(default_factory=list)
    forgiven: int = 0


def token(tenant: str) -> str:
    """The token of a tenant; "" stands for callers without a cap, whom the service knows as one tenant."""
    return f"the soak test's token of {tenant or UNCAPPED}"


def question(request: str, tenant: str, *, is_bare: bool = False) -> str:
    """The text that a request asks, from which :func:`read_calls` tells whose call it is."""
    return f"{'bare' if is_bare else 'vine'} {request} {tenant or '-'}"


def read_calls(engine: str, file: Path) -> list[Call]:
    """What an engine wrote down."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        how, request, tenant = told["prompt"].split()[:3]
        who = (request, "" if tenant == "-" else tenant, how == "bare", told["what"] == "answered")
        found.append(Call(told["at"], engine, told["model"], *who))
    return found


def overlaps(one: Interval, others: Iterable[Interval]) -> bool:
    """Whether an interval touches one of the others."""
    return any(one[0] <= end and begin <= one[1] for begin, end in others)


def audit_rows(
    asked: Sequence[Asked],
    rows: Iterable[Row],
    calls: Sequence[Call],
    usd: Mapping[str, float],
    *,
    killed: Mapping[str, float],
    outages: Mapping[str, Sequence[Interval]],
) -> RowAudit:
    """Compare the rows of served requests with their callers' and the engines' records.

    Args:
        asked: all requests.
        rows: all rows of the store.
        calls: what the engines saw.
        usd: dollars of one call by model.
        killed: server and life to when it was killed.
        outages: engine to when it was away.
    """
    audit = RowAudit()
    kept: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        audit.rows += 1
        kept[unscoped(row.request_id)].append(row)  # ids are not repeated, whosever they are
    answers: dict[str, Counter[str]] = defaultdict(Counter)
    uncertain = set()
    for call in calls:
        if call.is_bare:
            continue
        answers[call.request][call.model] += call.is_answer
        if any(begin - UNCERTAIN_S <= call.at_s <= end for begin, end in outages.get(call.engine, ())):
            uncertain.add(call.request)
    away = [when for known in outages.values() for when in known]
    for one in asked:
        ours = kept.pop(one.id, [])
        _audit_paths(audit, one, ours, killed.get(one.server))
        if one.id not in uncertain:
            _audit_answers(audit, one, ours, answers[one.id], usd, is_whole=not overlaps((one.began_s, one.ended_s), away))
    audit.double += [f"{request}: rows of a request that nobody made" for request in kept]
    return audit


def _audit_paths(audit: RowAudit, one: Asked, rows: Sequence[Row], killed_s: float | None) -> None:
    """Each invocation that the answer names has one row, and no other path has one."""
    found = Counter(row.prefix for row in rows)
    audit.double += [f"{one.id} {path}: {count} rows" for path, count in found.items() if count > 1]
    if one.outcome != "ok":
        return
    expected = set(one.paths)
    is_forgiven = killed_s is not None and one.ended_s >= killed_s - UNWRITTEN_S
    missing = expected - set(found)
    if is_forgiven:
        audit.forgiven += len(missing)
        audit.expected += len(expected) - len(missing)
        return
    audit.expected += len(expected)
    audit.lost += [f"{one.id} {path} of {one.server}" for path in sorted(missing)]
    audit.double += [f"{one.id} {path}: the answer names no such invocation" for path in sorted(set(found) - expected)]


def _audit_answers(
    audit: RowAudit, one: Asked, rows: Sequence[Row], answers: Counter[str], usd: Mapping[str, float], *, is_whole: bool
) -> None:
    """Successful rows, and their dollars, are those of the answers that were sent.

    Where an engine was away meanwhile the dollars may be more: an attempt that was cut counts at its upper bound.
    """
    right = Counter(row.prefix[-1] for row in rows if row.failure is None)
    for model, count in (right - answers).items():
        audit.double.append(f"{one.id} {model}: {count} rows more than answers")
    if one.outcome != "ok" or not rows:
        return
    paid = sum(row.cost_usd for row in rows)
    sent = sum(count * usd[model] for model, count in answers.items())
    if set(one.paths) == {row.prefix for row in rows} and (paid < sent - 1e-9 or (is_whole and paid > sent + 1e-9)):
        audit.wrong_usd.append(f"{one.id}: rows ${paid:.6f}, answers ${sent:.6f}")


def unserved(asked: Iterable[Asked], default_outages: Sequence[Interval]) -> list[str]:
    """Requests that failed although the engine of the bare application was there all the time."""
    return [
        f"{one.id} {one.detail}"
        for one in asked
        if one.outcome == "failed" and not overlaps((one.began_s, one.ended_s), default_outages)
    ]


BY_CLOCK = "the clocks of Redis and of this machine"
"""Begins the reason of a refusal by a server whose clock was set more than an hour wrong: it gets no dollars, and says so."""


def refused_wrongly(asked: Iterable[Asked], ample: str, redis_outages: Sequence[Interval], rest_s: float) -> list[str]:
    """Refusals of a tenant whose cap is ample, other than by a clock, and while Redis is away and so many seconds after."""
    away = [(begin, end + rest_s) for begin, end in redis_outages]
    return [
        f"{one.id} {one.detail}"
        for one in asked
        if one.outcome == "refused" and one.tenant == ample and BY_CLOCK not in one.detail
        if not overlaps((one.began_s, one.ended_s), away)
    ]


def spent_by_tenant(calls: Iterable[Call], usd: Mapping[str, float]) -> dict[str, float]:
    """Dollars of all calls that began, by tenant: also those without an answer may have been billed."""
    found: dict[str, float] = defaultdict(float)
    for call in calls:
        if not (call.is_bare or call.is_answer):
            found[call.tenant] += usd[call.model]
    return dict(found)


def most_in_a_minute(calls: Iterable[Call]) -> dict[str, int]:
    """The most calls that began at each engine in any minute, less :data:`JOURNEY_S` seconds: a limit concerns when calls
    leave, and the engine sees when they arrive.
    """
    starts: dict[str, list[float]] = defaultdict(list)
    for call in calls:
        if not (call.is_bare or call.is_answer):
            starts[call.engine].append(call.at_s)
    found = {}
    for engine, at_s in starts.items():
        times = np.sort(np.array(at_s))
        after = np.searchsorted(times, times + 60.0 - JOURNEY_S, side="left")
        found[engine] = int((after - np.arange(times.size)).max())
    return found


def slope_mib_per_minute(samples: Sequence[tuple[float, float]], *, warm_s: float, least_s: float) -> float | None:
    """The median of all slopes between samples (seconds, MiB) after so many seconds: one leap of the memory is no trend.

    None if what is left lasts less than ``least_s``.
    """
    if not samples:
        return None
    first = samples[0][0]
    points = np.array([point for point in samples if point[0] - first >= warm_s])
    if len(points) < 3 or points[-1, 0] - points[0, 0] < least_s:
        return None
    points = points[:: max(1, len(points) // 300)]
    before, after = np.triu_indices(len(points), k=1)
    slopes = (points[after, 1] - points[before, 1]) / (points[after, 0] - points[before, 0])
    return float(np.median(slopes) * 60.0)

"""The row of one invocation, from the attempts that a policy has recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vinelm.requests.protocols import Invocation
from vinelm.rows.observation import Observation


def observed_row(
    attempts: Sequence[Invocation], *, request_id: str, prefix: tuple[str, ...], stage: str, **known: Any
) -> Observation:
    """Return the observation of an invocation. Repeated attempts count in cost and ``retries``, but not in latency.

    Args:
        attempts: the attempts with the same model, in order, failed ones included; may be empty.
        request_id: the request.
        prefix: the models of all invocations so far, this one's last.
        stage: the stage of the invocation.
        **known: further fields of :class:`~vinelm.rows.observation.Observation`, ``success`` and ``stopped`` among them.
    """
    good = [one for one in attempts if one.failure is None]
    counted = good or list(attempts[-1:])
    usages = [usage for one in attempts for usage in one.usages]
    return Observation(
        request_id=request_id,
        prefix=prefix,
        stage=stage,
        cost_usd=sum(usage.cost_usd for usage in usages),
        latency_s=max((_without_waiting(one) for one in counted), default=0.0),
        tokens_in=_total([usage.tokens_in for usage in usages]),
        tokens_out=_total([usage.tokens_out for usage in usages]),
        tokens_cached=_total([usage.tokens_cached for usage in usages]),
        tokens_estimated=any(usage.tokens_estimated for usage in usages),
        ttft_s=usages[0].ttft_s if usages else None,
        calls=len(usages),
        retries=sum(usage.retries for usage in usages) + len(attempts) - len(counted),
        **known,
    )


def _without_waiting(invocation: Invocation) -> float:
    """Seconds of the stage less those its calls spent on rate limits, failed attempts and backoff."""
    return max(invocation.latency_s - math.fsum(usage.waited_s for usage in invocation.usages), 0.0)


def _total(counts: Sequence[int | None]) -> int | None:
    """Their sum; None if any is unknown, or there are none."""
    known = [n for n in counts if n is not None]
    return sum(known) if known and len(known) == len(counts) else None

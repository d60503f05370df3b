"""The result of a verification: predicted and achieved accuracy and cost, and whether to switch."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vinelm.controller import Decision
from vinelm.plans.promise import Z90
from vinelm.template import StopRule
from vinelm.traces.served.served_requests import ServedRequest
from vinelm.trie.verdict import Verdict

Kept = Literal["kept", "exceeded", "broken", "failed", "unknown"]
Interval = tuple[float, float]
MOST_FAILED = 0.05
"""No statement about a prediction is made if more than this share of the requests failed."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """A plan's predictions, and the results of serving it.

    Attributes:
        decision: The plan for a new request, with its predicted accuracy and cost.
        requests: The number of requests that were to be served.
        rows: The served requests, in order.
        spent_usd: The cost of all calls in dollars, including interrupted runs; a call with an unknown outcome counts at its
            maximum cost.
        is_simulated: Whether some models are simulated.
    """

    decision: Decision
    requests: int
    rows: tuple[ServedRequest, ...]
    spent_usd: float
    is_simulated: bool

    @property
    def stop(self) -> StopRule:
        """The stop rule under which the requests ended."""
        return self.decision.metrics.annotated.template.stop

    @property
    def is_complete(self) -> bool:
        """Whether every request was served; if not, the budget was reached."""
        return len(self.rows) >= self.requests

    @property
    def expected_usd(self) -> float:
        """Expected cost, in dollars, of the requests that are not served yet."""
        return (self.requests - len(self.rows)) * self.decision.path_cost_usd

    @property
    def accuracy(self) -> float | None:
        """Share of served requests with a right answer; a failed request counts as wrong. None if nothing was served."""
        return float(np.mean([row.success for row in self.rows])) if self.rows else None

    @property
    def accuracy_interval(self) -> Interval | None:
        """90 % Wilson interval of the accuracy of the served requests; None if nothing was served."""
        if self.accuracy is None:
            return None
        n, share = len(self.rows), self.accuracy
        middle = (share + Z90**2 / (2 * n)) / (1.0 + Z90**2 / n)
        reach = Z90 / (1.0 + Z90**2 / n) * math.sqrt(share * (1.0 - share) / n + Z90**2 / (4 * n**2))
        return max(middle - reach, 0.0), min(middle + reach, 1.0)

    @property
    def promised_interval(self) -> Interval | None:
        """The interval in which the accuracy on the served requests is predicted to lie with a probability of 90 %; None if the
        trie has no standard errors.
        """
        return self.decision.promise.prediction(len(self.rows) or self.requests)

    @property
    def mean_cost_usd(self) -> float | None:
        """Mean cost in dollars per served request; None if nothing was served."""
        return float(np.mean([row.cost_usd for row in self.rows])) if self.rows else None

    @property
    def mean_latency_s(self) -> float | None:
        """Mean seconds per served request; None if nothing was served."""
        return float(np.mean([row.latency_s for row in self.rows])) if self.rows else None

    @property
    def promised_cost_interval(self) -> Interval | None:
        """The interval in which the mean cost of the served requests, in dollars, is predicted to lie with a probability
        of 90 %.

        None if the trie has no standard errors, or fewer than two requests were served.
        """
        error = self.decision.errors.cost_usd
        if error is None or not math.isfinite(error) or len(self.rows) < 2:
            return None
        sampling = float(np.var([row.cost_usd for row in self.rows], ddof=1)) / len(self.rows)
        reach = Z90 * math.sqrt(error**2 + sampling)
        return max(self.decision.path_cost_usd - reach, 0.0), self.decision.path_cost_usd + reach

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on whether to switch to the plan, the same as ``vinelm plan`` shows; None if the trie has no verdict."""
        return self.decision.verdict

    @property
    def accuracy_promise(self) -> Kept:
        """``kept`` if the accuracy lies in the predicted interval, ``exceeded`` if it is above, ``broken`` if it is below.

        ``failed`` if more than :data:`MOST_FAILED` of the requests failed, whatever the accuracy. ``unknown`` if nothing
        was served, or the trie has no standard errors.
        """
        if self.has_failed:
            return "failed"
        return _kept(self.accuracy, self.promised_interval)

    @property
    def cost_promise(self) -> Kept:
        """``kept`` if the mean cost lies in the predicted interval, ``broken`` if it is above, ``exceeded`` if it is below
        (cheaper).

        ``failed`` if more than :data:`MOST_FAILED` of the requests failed. ``unknown`` without a predicted interval.
        """
        if self.has_failed:
            return "failed"
        found = _kept(self.mean_cost_usd, self.promised_cost_interval)
        swapped: dict[Kept, Kept] = {"broken": "exceeded", "exceeded": "broken"}
        return swapped.get(found, found)

    @property
    def is_kept(self) -> bool:
        """Whether accuracy and cost are not worse than predicted, and few requests failed."""
        return not {"broken", "failed"} & {self.accuracy_promise, self.cost_promise}

    @property
    def failures(self) -> dict[str, int]:
        """The number of failed requests, keyed by the reason of the failure, the most frequent reason first."""
        reasons = (f"{row.failure}: {row.detail}" if row.detail else str(row.failure) for row in self.rows if row.failure)
        return dict(Counter(reasons).most_common())

    @property
    def has_failed(self) -> bool:
        """Whether more than the share :data:`MOST_FAILED` of the requests failed."""
        return sum(self.failures.values()) > MOST_FAILED * len(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the verification as plain JSON types."""
        names = (
            "accuracy_promise",
            "cost_promise",
            "is_kept",
            "is_complete",
            "spent_usd",
            "expected_usd",
            "requests",
            "is_simulated",
            "stop",
        )
        achieved = ("accuracy", "accuracy_interval", "mean_cost_usd", "mean_latency_s")
        decision, verdict = self.decision, self.verdict
        return {
            **{name: getattr(self, name) for name in names},
            **({} if verdict is None else {"verdict": verdict.to_dict()}),
            "served": len(self.rows),
            "failed": sum(row.failure is not None for row in self.rows),
            "failures": self.failures,
            **decision.facts(),
            "promised": {
                **decision.promise.to_dict(),
                "prediction": self.promised_interval,
                "cost_usd": decision.path_cost_usd,
                "cost_interval": self.promised_cost_interval,
                "latency_s": decision.path_latency_s if decision.metrics.annotated.knows_latency else None,
            },
            "achieved": {name: getattr(self, name) for name in achieved},
        }


def _kept(value: float | None, promised: Interval | None) -> Kept:
    if value is None or promised is None:
        return "unknown"
    return "broken" if value < promised[0] - 1e-12 else "exceeded" if value > promised[1] + 1e-12 else "kept"

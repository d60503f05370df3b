"""Observations, the recorded results of (request, prefix) pairs, and the usage of single model calls."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from vinelm.catalog.secrets import redacted
from vinelm.errors import FailureKind, VineLMError
from vinelm.template import StopRule
from vinelm.template.stop_rules import ENDED_BY

Cell = tuple[str, tuple[str, ...]]
"""(request id, prefix): the position of one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Cost, time and tokens of one model call, as its backend measured them. Unknown values are None, never 0.

    Args:
        model: The model's name in the catalog.
        cost_usd: Cost of all attempts in dollars, >= 0.
        latency_s: Wall-clock (or virtual) seconds of the last attempt, >= 0; NaN for a call in a batch.
        tokens_in: Prompt tokens, including cached ones.
        tokens_out: Completion tokens.
        tokens_cached: The part of ``tokens_in`` that was read from a prompt cache.
        tokens_reasoning: Reasoning tokens, as the provider counts them.
        tokens_estimated: Whether the counts come from the length of the text, not from the provider.
        ttft_s: Seconds to the first token of the last attempt.
        provider_latency_s: Seconds that the provider reports.
        retries: Number of attempts before the last one.
        waited_s: Seconds from the call to the start of the last attempt: rate limits, failed attempts and backoff.
        finish_reason: The provider's reason why the answer ended. Secrets that a server repeats here are replaced
            (:func:`vinelm.catalog.redacted`).
        provider_request_id: The provider's id of the call; secrets are replaced.
        response_model: The model that the provider says has answered, often a dated version; secrets are replaced. Not stored.
        price_id: ``PROVIDER/MODEL`` of the list price that ``cost_usd`` was computed with; None if the price was given.
        failure: Why the call failed; None if it succeeded.
        list_usd: Cost at the ordinary price in dollars, if less was paid; else None. Less is paid for a call at batch
            prices, and nothing for a call that used the answer of an equal call; ``latency_s`` is then the equal call's.
    """

    model: str
    cost_usd: float
    latency_s: float
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cached: int | None = None
    tokens_reasoning: int | None = None
    tokens_estimated: bool = False
    ttft_s: float | None = None
    provider_latency_s: float | None = None
    retries: int = 0
    waited_s: float = 0.0
    finish_reason: str | None = None
    provider_request_id: str | None = None
    response_model: str | None = None
    price_id: str | None = None
    failure: FailureKind | None = None
    list_usd: float | None = None

    @property
    def is_equal(self) -> bool:
        """Whether the call was not made, because the answer of an equal call was used."""
        return self.list_usd is not None and not math.isnan(self.latency_s)

    def __post_init__(self) -> None:
        _check_amount("cost_usd", self.cost_usd)
        if self.list_usd is None or not math.isnan(self.latency_s):
            _check_amount("latency_s", self.latency_s)
        _check_amount("waited_s", self.waited_s)
        for name in ("finish_reason", "provider_request_id", "response_model"):
            text = getattr(self, name)
            if isinstance(text, str):
                object.__setattr__(self, name, redacted(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One stage invocation of one request, including the tools after it: one row of the store.

    A failed invocation has a ``failure`` and its cost until then; its ``success`` and ``stopped`` are None, and no row
    of the request continues its prefix.

    Args:
        request_id: The request.
        prefix: The models of all invocations up to and including this one.
        stage: The stage of this invocation.
        success: Whether the answer after this invocation is correct by the ground truth, or its score in [0, 1]; None if not
            known.
        stopped: Whether the workflow's own check ended the request here; None if not known. The template's stop rule determines
            whether ``success`` or ``stopped`` ends a request.
        arm: If the template branches, the stage that comes next; None if no stage came next, or the template does not branch.
        cost_usd: Cost of the stage's calls in dollars, >= 0.
        latency_s: Latency of the stage in seconds, >= 0; NaN if unknown, for example if some of its calls went in a
            batch.
        tool_cost_usd: Cost of the tools between this stage and the next in dollars, >= 0.
        tool_latency_s: Latency of these tools in seconds, >= 0.
        tokens_in: Prompt tokens of the stage's calls.
        tokens_out: Completion tokens.
        tokens_cached: The part of ``tokens_in`` that was read from a prompt cache.
        tokens_estimated: Whether the counts come from the length of the text, not from the provider.
        ttft_s: Seconds to the first token.
        calls: Number of model calls of the stage.
        retries: Number of failed attempts of these calls.
        in_flight: Number of calls running on the same engine (the server of a model) when this invocation started.
        failure: Why the invocation failed; None if it succeeded.
        detail: One line about the failure; without a failure, a note if the request continues where the template ends.
        signal: What the workflow's ``signal`` function returned after the invocation; None without such a function. For
            a failed invocation it is ``"error"`` if the workflow declares ``signal="status"``, else None.
        answer: The workflow's ``answer`` keys after the invocation, as canonical JSON text; None without an answer.
        answer_digest: Hash of the answer.
        answer_class: A number that is the same for equal answers to a request. Numbers start at 0, in the order in
            which answers first occur in the request's rows, sorted by depth and prefix. None without an answer.
        is_continued: Whether the profile continued to this row although the workflow's own check had passed an earlier
            answer, which would have ended the request.
        sampler: The profile's sampler that chose the row to be recorded; None if the row is not from a profile.
        round: The sampler's round, from 0.
        probability: The probability, in (0, 1], with which the sampler proposed the path for which the row was
            recorded, given what was known then. It is the same for all rows recorded along the path. None if it is not
            known.
        list_usd: Cost of the stage's calls at ordinary prices in dollars, if some calls were made in a batch, which
            costs less; else None.

    Raises:
        VineLMError: The request id or the prefix is empty, the score is outside of [0, 1], the probability is outside of
            (0, 1], or an amount is negative or not finite.
    """

    request_id: str
    prefix: tuple[str, ...]
    stage: str
    success: bool | float | None
    stopped: bool | None
    cost_usd: float
    latency_s: float
    tool_cost_usd: float = 0.0
    tool_latency_s: float = 0.0
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cached: int | None = None
    tokens_estimated: bool = False
    ttft_s: float | None = None
    calls: int = 1
    retries: int = 0
    in_flight: int = 0
    failure: FailureKind | None = None
    detail: str | None = None
    arm: str | None = None
    signal: str | None = None
    answer: str | None = None
    answer_digest: str | None = None
    answer_class: int | None = None
    is_continued: bool = False
    sampler: str | None = None
    round: int | None = None
    probability: float | None = None
    list_usd: float | None = None

    def __post_init__(self) -> None:
        if not self.request_id:
            raise VineLMError("an observation needs a request id")
        if not self.prefix:
            raise VineLMError(f"request {self.request_id!r}: an observation needs at least one model in its prefix")
        if self.success is not None and not 0.0 <= self.success <= 1.0:
            raise VineLMError(f"request {self.request_id!r}: a score of {self.success} is outside of [0, 1]")
        for name in ("cost_usd", "latency_s", "tool_cost_usd", "tool_latency_s"):
            if name != "latency_s" or self.is_timed:
                _check_amount(name, getattr(self, name), self.request_id)
        if self.probability is not None and not 0.0 < self.probability <= 1.0:
            raise VineLMError(f"request {self.request_id!r}: a probability of {self.probability} is outside of (0, 1]")

    @property
    def is_timed(self) -> bool:
        """Whether the invocation's latency is known; it is unknown for batch calls and some imported calls."""
        return not math.isnan(self.latency_s)

    @property
    def served_usd(self) -> float:
        """Dollars that a served request pays for the invocation and its tools: the cost at ordinary prices."""
        return (self.cost_usd if self.list_usd is None else self.list_usd) + self.tool_cost_usd

    @property
    def asked_usd(self) -> float:
        """Cost of the invocation and its tools in dollars if every call had been made: a call that used an equal call's
        answer counts at its own price.
        """
        is_equal = self.list_usd is not None and (self.is_timed or not self.cost_usd)
        return self.served_usd if is_equal else self.cost_usd + self.tool_cost_usd

    @property
    def model(self) -> str:
        """The model of this invocation."""
        return self.prefix[-1]

    @property
    def depth(self) -> int:
        """The position of this invocation in its request, counted from 1."""
        return len(self.prefix)

    def ended(self, rule: StopRule) -> bool:
        """Return whether the request ends after this invocation under the stop rule ``rule``. A failed invocation
        always ends the request.
        """
        return self.failure is not None or bool(getattr(self, ENDED_BY[rule]))

    def next_stage(self, followers: Sequence[str]) -> str | None:
        """Return which of ``followers``, the stages that may come next, came after this row; None if that is not known."""
        if self.contradicts(followers):
            return None
        return self.arm or (followers[0] if len(followers) == 1 else None)

    def contradicts(self, stages: Collection[str]) -> bool:
        """Return whether the row records a next stage that is not one of ``stages``."""
        return self.arm is not None and self.arm not in stages


def at_ordinary_prices(rows: Iterable[Observation]) -> list[Observation]:
    """Return the rows with costs at the ordinary prices of served requests, also for calls bought at batch prices."""
    return [row if row.list_usd is None else replace(row, cost_usd=row.list_usd) for row in rows]


def with_seconds(rows: Sequence[Observation]) -> list[Observation]:
    """Return the rows with each missing latency replaced by the mean over the rows of the same stage and model whose
    latency is known.

    If there are no such rows, it is replaced by 0.
    """
    if all(row.is_timed for row in rows):
        return list(rows)
    known: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.is_timed:
            known.setdefault((row.stage, row.model), []).append(row.latency_s)
    mean = {kind: math.fsum(seconds) / len(seconds) for kind, seconds in known.items()}
    return [row if row.is_timed else replace(row, latency_s=mean.get((row.stage, row.model), 0.0)) for row in rows]


def _check_amount(name: str, value: float, request_id: str | None = None) -> None:
    if not (value >= 0.0 and math.isfinite(value)):
        where = f"request {request_id!r}: " if request_id else ""
        raise VineLMError(f"{where}{name} is {value}: it must be a finite number >= 0")

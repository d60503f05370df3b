"""Prometheus counters and histograms of decisions and invocations."""

from __future__ import annotations

from typing import Any

from vinelm.catalog import Model
from vinelm.extras import required_extra
from vinelm.requests.protocols import Invocation
from vinelm.telemetry.events import CanaryEvent, DecisionEvent, DriftEvent

with required_extra("metrics", "the observer Prometheus"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

DECISION_BUCKETS_S = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 5e-3, 2e-2, 0.1)
LATENCY_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0)


class Prometheus:
    """An observer that updates Prometheus metrics. The values of metric labels are names of models and stages, never data
    of requests.

    Args:
        registry: by default the global registry. A registry accepts only one such observer.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        where = ("stage", "model")
        self._decisions = Counter(
            "vinelm_decisions",
            "Answers of the policy; outcome is run, continue or end.",
            (*where, "outcome"),
            registry=registry,
        )
        self._decision_s = Histogram(
            "vinelm_decision_seconds", "Wall time of one answer.", ("kind",), buckets=DECISION_BUCKETS_S, registry=registry
        )
        self._invocations = Counter(
            "vinelm_invocations",
            "Invocations that ended; outcome is ok or a kind of failure.",
            (*where, "outcome"),
            registry=registry,
        )
        self._latency_s = Histogram(
            "vinelm_invocation_seconds", "Seconds of one invocation.", where, buckets=LATENCY_BUCKETS_S, registry=registry
        )
        self._ttft_s = Histogram(
            "vinelm_ttft_seconds",
            "Seconds to the first token of a streamed call.",
            where,
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._cost_usd = Counter("vinelm_cost_usd", "Dollars of all calls.", where, registry=registry)
        self._tokens = Counter(
            "vinelm_tokens", "Tokens; kind is in, out or cached (a part of in).", (*where, "kind"), registry=registry
        )
        self._retries = Counter("vinelm_retries", "Attempts that had to be repeated.", where, registry=registry)
        self._drift = Counter(
            "vinelm_drift",
            "Annotations of the trie that no longer hold; quantity is stop, dollars, seconds or signal.",
            (*where, "quantity", "direction"),
            registry=registry,
        )
        self._canary = Counter(
            "vinelm_canary",
            "What a canary has shown; advice is keep (it went back) or switch.",
            ("advice", "quantity"),
            registry=registry,
        )
        self._in_flight = Gauge("vinelm_in_flight", "Invocations under way.", ("engine",), registry=registry)

    def decided(self, decided: DecisionEvent) -> None:
        """Count a decision."""
        outcome = "run" if decided.kind == "model" else "continue" if decided.goes_on else "end"
        self._decisions.labels(decided.stage or "", decided.model or "", outcome).inc()
        self._decision_s.labels(decided.kind).observe(decided.seconds)

    def drifted(self, moved: DriftEvent) -> None:
        """Count a drift event. Such an event says that a value in the trie no longer holds."""
        self._drift.labels(moved.stage, moved.model, moved.quantity.partition(" ")[0], moved.direction).inc()

    def canary_decided(self, shown: CanaryEvent) -> None:
        """Count a decision on a canary: its plan was rolled back, or has proved not to be worse."""
        self._canary.labels(shown.advice, shown.quantity).inc()

    def began(self, stage: str, prefix: tuple[str, ...], model: Model) -> Any:
        """Count an invocation as in flight."""
        under_way = self._in_flight.labels(model.engine)
        under_way.inc()
        return under_way

    def ended(self, token: Any, invocation: Invocation | None) -> None:
        """Count an invocation as ended, with its outcome, dollars and tokens."""
        token.dec()
        if invocation is None:
            return
        where = (invocation.stage, invocation.prefix[-1])
        self._invocations.labels(*where, invocation.failure or "ok").inc()
        self._latency_s.labels(*where).observe(invocation.latency_s)
        self._cost_usd.labels(*where).inc(invocation.cost_usd)
        for usage in invocation.usages:
            for kind, count in (("in", usage.tokens_in), ("out", usage.tokens_out), ("cached", usage.tokens_cached)):
                if count is not None:
                    self._tokens.labels(*where, kind).inc(count)
            if usage.ttft_s is not None:
                self._ttft_s.labels(*where).observe(usage.ttft_s)
            self._retries.labels(*where).inc(usage.retries)

"""What an attacked application is: it serves requests, and says what stays behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from vinelm import Objective

from .stub_models import StubBackend

OBJECTIVES = {
    "no cap": Objective(maximize="accuracy", max_latency_s=1000.0),
    "cap": Objective(maximize="accuracy", max_cost_usd=1.0, cost_budget="per_request"),
}


class Way(Protocol):
    """One way in.

    Attributes:
        cases: the kinds of requests.
        most_calls: the most calls of models that a request may make.
        boundaries: functions that LangGraph, LangChain or the application enters: around them there is nothing to catch.
        is_capped: whether every call has to be authorized, in each case.
        backend: counts the calls.
    """

    cases: tuple[str, ...]
    most_calls: int
    boundaries: frozenset[str]
    is_capped: bool
    backend: StubBackend

    def serve(self, case: str, thread: str) -> object:
        """Serve one request."""

    def behind(self) -> Mapping[str, float]:
        """What requests have left behind by kind: rows, calls in flight, dollars that nobody counts. 0 without requests."""

    def close(self) -> None:
        """End what runs in the background."""

"""Spans and metrics of decisions and invocations (docs/observability.md)."""

from __future__ import annotations

from typing import Any

from vinelm.telemetry.events import DecisionEvent, Listener, Observer, ObserverGroup

__all__ = ["DecisionEvent", "Listener", "Observer", "ObserverGroup", "OpenTelemetry", "Prometheus"]


def __getattr__(name: str) -> Any:
    """Import on first use: neither library is needed where nobody observes."""
    if name == "OpenTelemetry":
        from vinelm.telemetry.opentelemetry import OpenTelemetry

        return OpenTelemetry
    if name == "Prometheus":
        from vinelm.telemetry.prometheus import Prometheus

        return Prometheus
    raise AttributeError(f"module 'vinelm.telemetry' has no attribute {name!r}")

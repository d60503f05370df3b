"""Wrapped stages with what serves beside them: a fleet, dollars of a day, evidence, our own observers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vinelm.api import EvidenceConfig
from vinelm.controller import FleetConfig, InFlightLoadMonitor

from .faults import Application
from .stub_models import COST_USD

DAILY_USD = 1_000.0


class StagedWay:
    """Stages and routes; ``settings`` are those of :class:`vinelm.VineLM`."""

    cases: tuple[str, ...] = tuple(f"{mode}, {cap}" for mode in ("sync", "async") for cap in ("no cap", "cap"))
    most_calls = 3
    is_capped = False
    boundaries: frozenset[str] = frozenset()

    def __init__(self, **settings: Any) -> None:
        self.load = InFlightLoadMonitor()
        self._app = Application(load=self.load, **settings)
        self.vine, self.backend = self._app.vine, self._app.backend

    def serve(self, case: str, thread: str) -> object:
        """Serve one request."""
        mode, objective = case.split(", ")
        return self._app.serve(mode, objective, thread)

    def behind(self) -> Mapping[str, float]:
        """What requests have left behind."""
        return {"calls in flight": sum(own.in_flight for own in self.load._own.values())}

    def close(self) -> None:
        """End what runs in the background."""
        self.vine.close()


class FleetWay(StagedWay):
    """The same in a fleet."""

    boundaries = frozenset(("CallStanding.__float__",))  # a backend calls it

    def __init__(self, url: str, name: str, **settings: Any) -> None:
        super().__init__(fleet=FleetConfig(url=url, name=name, **settings))
        assert self.vine.fleet is not None
        self.fleet = self.vine.fleet.fleet

    def behind(self) -> Mapping[str, float]:
        """What requests have left behind."""
        return {**super().behind(), "live rows": len(self.fleet._live)}


class DollarsWay(FleetWay):
    """The same with a cap on the dollars of a day."""

    is_capped = True

    def __init__(self, url: str, name: str, folder: Path) -> None:
        super().__init__(url, name, daily_usd={"*": DAILY_USD}, journal=folder / f"{name}.sqlite")

    def behind(self) -> Mapping[str, float]:
        """What requests have left behind."""
        account = self.fleet.account("acme")
        assert account is not None
        spent_usd = self.backend.calls * COST_USD
        return {
            **super().behind(),
            "dollars that no account counts": max(spent_usd - account.spent_usd - account.reserved_usd, 0.0),
        }


class EvidenceWay(StagedWay):
    """The same with rows of served requests, compared with the trie."""

    def __init__(self, folder: Path) -> None:
        super().__init__(evidence=EvidenceConfig(folder / "served.db", on_drift=lambda moved: None))

    def behind(self) -> Mapping[str, float]:
        """What requests have left behind."""
        evidence = self.vine.evidence
        assert evidence is not None
        evidence.writer.flush()  # the rows of a request that was dropped are closed by the writer
        return {**super().behind(), "open rows": sum(evidence._in_flight._counts.values())}


class TelemetryWay(StagedWay):
    """The same with both observers of ours."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry

        from vinelm.telemetry import OpenTelemetry, Prometheus

        super().__init__()
        self.vine.observe(OpenTelemetry(capture_content=True))
        self.vine.observe(Prometheus(CollectorRegistry()))

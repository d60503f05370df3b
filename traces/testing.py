"""Makes a small identity and a row, for tests of code that reads or writes stores."""

from __future__ import annotations

import datetime
from typing import Any

from vinelm.catalog import Catalog, Model, Price
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template
from vinelm.traces.databases.identity import StoreIdentity


def an_identity(**changes: Any) -> StoreIdentity:
    """Return the identity of a small workflow for tests; ``changes`` replace fields."""
    price = Price(input=1.0, output=2.0, source="a test", as_of=datetime.date(2026, 1, 1))
    catalog = Catalog(Model(name=n, provider="test", model_id=n, engine="e", price=price) for n in ("small", "large"))
    template = Template((Stage("generate"), Loop((Stage("repair"),), 2))).bind(tuple(catalog))
    fields: dict[str, Any] = {
        "workflow": "toy",
        "template": template.to_dict(),
        "catalog": catalog.to_dict(),
        "dataset_digest": "d1",
        "fingerprint": {"graph": "g1", "stage generate": "s1"},
        "is_simulated": True,
        "created_at": "2026-01-01T00:00:00+00:00",
    }
    return StoreIdentity(**(fields | changes))


def a_row(request_id: str = "q1", prefix: tuple[str, ...] = ("small",), **changes: Any) -> Observation:
    """Return a plausible row for tests; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "request_id": request_id,
        "prefix": prefix,
        "stage": "generate" if len(prefix) == 1 else "repair",
        "success": False,
        "stopped": True,
        "cost_usd": 0.25,
        "latency_s": 1.5,
    }
    return Observation(**(fields | changes))

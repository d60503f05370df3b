"""Served rows with odd values in every field: the store refuses some, and all others are written, whatever their order."""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from vinelm.catalog import Catalog
from vinelm.rows.observation import Observation
from vinelm.template import Stage, Template
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.traces.served.writer import EvidenceWriter, Feedback

ROUNDS, ROWS = 40, 60
ODD = (
    "\ud800", "a\udfffb", "\x00", "", "é" * 5_000, "x" * 1_000_000, 2**63, -(2**70), 1e308, float("nan"), float("inf"), b"\xff",
    None, True, [], {}, object(),
)  # fmt: skip
PRICE = {"input": 1.0, "output": 2.0, "source": "an attack", "as_of": "2025-06-01"}
MODELS = Catalog.from_dict({"model": [{"name": "a", "provider": "simulated", "model": "a", "price": PRICE}]})


def run(progress: Callable[[str], None]) -> dict[str, Any]:
    """Write rows of which every tenth is odd; what got through is a good row that is missing, or a writer that hangs."""
    logging.getLogger("vinelm.traces.served.writer").setLevel(logging.CRITICAL)
    rng = random.Random(0)
    template = Template((Stage("answer", ("a",)),))
    identity = StoreIdentity(
        workflow="attacked", template=template.to_dict(), catalog=MODELS.to_dict(), dataset_digest="served", fingerprint={},
        is_simulated=True,
    )  # fmt: skip
    attempts = refused = 0
    through: list[str] = []
    for number in range(ROUNDS):
        if number % 10 == 0:
            progress(f"round {number} of {ROUNDS}")
        with tempfile.TemporaryDirectory() as folder:
            writer = EvidenceWriter(Path(folder) / "served.db", identity)
            good = set()
            for at in range(ROWS):
                if rng.random() < 0.1:
                    attempts += 1
                    writer.put(_odd(rng, at))
                    continue
                good.add(f"r{at}")
                writer.put(_row(f"r{at}"))
            if not writer.flush(30.0):
                through.append(f"round {number}: rows still wait after 30 s")
            writer.close()
            refused += writer.refused
            with ObservationStore.open(Path(folder) / "served.db") as store:
                missing = good - {row.request_id for row in store.observations()}
            if missing:
                through.append(f"round {number}: {len(missing)} good rows are missing")
    return {"attempts": attempts, "through": through, "refused": refused}


def _row(name: str) -> Observation:
    return Observation(request_id=name, prefix=("a",), stage="answer", success=None, stopped=True, cost_usd=0.1, latency_s=1.0)


def _odd(rng: random.Random, at: int) -> Observation | Feedback:
    value: Any = rng.choice(ODD)
    if rng.random() < 0.2:
        return Feedback(value, True)
    made = _row(f"odd{at}")
    try:
        return replace(made, **{rng.choice([field.name for field in fields(Observation)]): value})
    except Exception:  # the row's own checks: as good as a refusal
        return replace(made, request_id="\ud800")

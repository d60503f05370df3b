"""What a batch leaves: its lines, and the dollars of its store."""

import json
from pathlib import Path

from vinelm.traces import ObservationStore


def answers(path="a.jsonl"):
    """What does not depend on when a request was answered."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [(line["id"], line["status"], line.get("answer"), line.get("models")) for line in lines]


def committed_usd(path="a.db"):
    """Dollars spent and reserved."""
    with ObservationStore.open(path) as store:
        return store.committed_usd()

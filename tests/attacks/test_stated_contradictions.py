"""Servers whose usage contradicts itself, on every wire, sync, async, whole, streamed: the dearest reading is booked."""

import pytest
from hostile_parts import contradictions  # noqa: F401 - adds its kinds
from hostile_parts.lies import KINDS
from hostile_parts.servers import run

ODD = {kind.name for kind in KINDS if kind.bill}


# Servers that break off leave transports for the garbage collector, at a time of its choosing.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.long
@pytest.mark.parametrize("provider", ["azure", "bedrock", "openai", "anthropic", "gemini"])
def test_the_dearest_reading_of_a_contradiction_is_booked(provider):
    found = run(only=ODD, providers=(provider,))
    assert found["kinds"] == len(ODD) == 5
    assert found["calls"] == 4 * 4 + 2
    assert [line for line in found["got_through"] if "booked" in line] == []
    assert sum(one["outcomes"].get("answer", 0) for one in found["by_kind"].values()) == found["calls"]

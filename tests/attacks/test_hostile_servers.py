"""The part of ``hostile.py`` with lying servers: a few lies in full, and that it would notice what gets through."""

import dataclasses

import pytest
from hostile_parts.lies import KINDS
from hostile_parts.servers import Call, run

from vinelm.rows.observation import Usage

SOME = (
    "header_bytes",
    "status_504_after_charging",
    "redirect_307",
    "usage_negative",
    "retry_after_huge",
    "gzip_bomb",
    "gzip_bomb_of_lines",
)


# Servers that break off leave transports for the garbage collector, at a time of its choosing.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.long
def test_nothing_gets_through():
    lines = []
    found = run(lines.append, only=SOME, providers=("openai", "anthropic"))
    assert found["got_through"] == []
    assert (found["kinds"], found["calls"], len(lines)) == (7, 56, 7)
    assert found["by_kind"]["redirect_307"]["requests_max"] == 1
    assert found["by_kind"]["status_504_after_charging"]["booked_of_reserved_max"] == pytest.approx(1.0, abs=0.03)


GOOD = Call("x", "timeout", 0.6, 1, (Usage(model="m", cost_usd=0.01, latency_s=0.5),), 0.01, 1.0)
CHARGED = next(kind for kind in KINDS if kind.money == "charged")
FREE = next(kind for kind in KINDS if kind.money == "free")


@pytest.mark.parametrize(
    ("kind", "change", "line"),
    [
        (CHARGED, {"outcome": "hung"}, "hung"),
        (CHARGED, {"outcome": "raised TypeError"}, "raised TypeError"),
        (CHARGED, {"wall_s": 25.0}, "25.0 s for 1 requests"),
        (CHARGED, {"usages": ()}, "reported 0 records"),
        (CHARGED, {"usages": (Usage(model="m", cost_usd=0.0, latency_s=0.5),)}, "booked $0 for 1 attempts"),
        (CHARGED, {"usages": (Usage(model="m", cost_usd=900.0, latency_s=0.5),)}, "booked $900, reserved $0.02"),
        (CHARGED, {"requests": 84}, "84 requests"),
        (CHARGED, {"grown_mib": 3100.0}, "grew by 3100 MiB"),
        (FREE, {}, "booked $0.01 for what was refused"),
    ],
)
def test_what_gets_through_is_said(kind, change, line):
    assert not list(GOOD.got_through(CHARGED))
    assert any(line in said for said in dataclasses.replace(GOOD, **change).got_through(kind))

"""A monitor names what moved, and nothing while nothing moves."""

from dataclasses import replace

import pytest
from kit.worlds.drift import made_trie, rows

from vinelm.errors import ConfigError
from vinelm.estimator import DriftConfig, DriftMonitor


def watched(*parts, **config) -> DriftMonitor:
    monitor = DriftMonitor(made_trie(), DriftConfig(**config))
    for part in parts:
        for row in part:
            monitor.add(row)
    return monitor


def test_nothing_is_named_while_nothing_moves():
    report = watched(rows(0, 600)).report()
    assert (report.rows, report.nodes, report.moved) == (600, 1, ())


def test_rows_without_seconds_are_no_drift_of_seconds():
    batched = (replace(row, latency_s=float("nan"), list_usd=row.cost_usd) for row in rows(0, 300))
    assert watched(batched).report().moved == ()


@pytest.mark.parametrize(
    ("quantity", "direction", "change"),
    [
        ("stop", "up", {"stop": 0.7}),
        ("stop", "down", {"stop": 0.1}),
        ("dollars", "up", {"dollars": 2.0}),
        ("dollars", "down", {"dollars": 0.4}),
        ("seconds", "up", {"seconds": 2.0}),
        ("seconds", "down", {"seconds": 0.4}),
    ],
)
def test_what_moved_is_named_with_its_new_mean_and_since_when(quantity, direction, change):
    (found,) = watched(rows(0, 200), rows(1, 300, first=200, **change)).moved
    assert (found.quantity, found.direction, found.path, found.stage) == (quantity, direction, ("a",), "generate")
    assert abs(found.since - 201) < 60
    assert found.since_request == f"r{found.since - 1}"
    assert found.noticed < 500
    true = {"stop": change.get("stop"), "dollars": 0.02 * change.get("dollars", 1), "seconds": 2 * change.get("seconds", 1)}
    assert found.seen == pytest.approx(true[quantity], rel=0.4)


def test_seconds_under_load_are_left_out_unless_asked_for():
    quiet = watched(rows(0, 300, seconds=2.0, in_flight=3))
    assert (quiet.moved, quiet.report().under_load) == ([], 300)
    (found,) = watched(rows(0, 300, seconds=2.0, in_flight=3), loaded_seconds=True).moved
    assert found.quantity == "seconds"


def test_unknown_stops_and_foreign_paths_are_no_evidence():
    known = list(rows(0, 50))
    monitor = watched([replace(row, stopped=None) for row in known], [replace(row, prefix=("z",)) for row in known])
    assert (monitor.moved, monitor.report().rows, monitor.report().unplaced) == ([], 50, 50)


def test_a_share_that_was_never_seen_moves_as_soon_as_it_is_sure():
    monitor = DriftMonitor(made_trie(stop=0.0))
    for row in rows(0, 200, stop=0.3):
        monitor.add(row)
    assert [one.quantity for one in monitor.moved] == ["stop"]


def test_deeper_nodes_are_found_below_their_rows():
    monitor = DriftMonitor(made_trie())
    for row in rows(0, 300):
        monitor.add(row)
        monitor.add(replace(row, prefix=("a", "b"), stage="repair", stopped=True, latency_s=9.0))
    assert {(one.path, one.quantity) for one in monitor.moved} == {(("a", "b"), "seconds")}


@pytest.mark.parametrize("config", [{"alpha": 0.0}, {"alpha": 1.0}, {"points": 1.0}, {"relative": -0.1}])
def test_what_is_out_of_range_is_refused(config):
    with pytest.raises(ConfigError, match=next(iter(config))):
        DriftConfig(**config)

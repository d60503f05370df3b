"""Served rows that are folded into a trie: what follows them, what is kept, and what is forgotten."""

from dataclasses import replace

import numpy as np
import pytest
from kit.worlds.drift import made_trie, rows

from vinelm.errors import ConfigError, EvidenceError
from vinelm.estimator.drift.update import updated_trie
from vinelm.vinefile import load_trie, save_trie


def node(trie, *path):
    return trie.trie.node(path)


def test_the_means_follow_the_rows_and_the_old_is_forgotten(tmp_path):
    before = made_trie()
    after = updated_trie(before, list(rows(0, 4000, stop=0.7, dollars=2.0, seconds=3.0)), half_life=300)
    at = node(before, "a")
    assert after.stop[at] == pytest.approx(0.7, abs=0.06)
    assert after.cost_usd[at] == pytest.approx(0.04, rel=0.1)
    assert after.latency_s[at] == pytest.approx(6.0, rel=0.1)
    kept = updated_trie(before, list(rows(0, 400, stop=0.7)), half_life=1e9)
    assert kept.stop[at] == pytest.approx((5000 * 0.4 + 400 * 0.7) / 5400, abs=0.01)
    save_trie(tmp_path / "t.vine", after)  # checks what every trie has to fulfil
    assert load_trie(tmp_path / "t.vine").meta["updated"]["rows"] == 4000


def test_right_given_stop_and_right_given_going_on_stay():
    before = made_trie()
    before = replace(before, stop_success=np.where(before.trie.is_leaf, before.success, 0.8 * before.stop * before.success))
    after = updated_trie(before, list(rows(0, 2000, stop=0.7)), half_life=300)
    at = node(before, "a")
    for share in (lambda t: t.stop_success[at] / t.stop[at], lambda t: (t.success[at] - t.stop_success[at]) / (1 - t.stop[at])):
        assert share(after) == pytest.approx(share(before))


def test_seconds_change_by_engine_and_dollars_by_model():
    before = made_trie()
    after = updated_trie(before, list(rows(0, 2000, dollars=2.0, seconds=3.0)), half_life=300)
    other, deep = node(before, "b"), node(before, "b", "a")
    engines = before.engine[[node(before, "a"), other]]
    assert (after.latency_s[other] > 4.0) == (engines[0] == engines[1])
    assert after.cost_usd[other] == before.cost_usd[other]
    assert after.cost_usd[deep] == pytest.approx(0.04, rel=0.15)
    loaded = updated_trie(before, list(rows(0, 500, seconds=3.0, in_flight=2)), half_life=300)
    assert loaded.latency_s == pytest.approx(before.latency_s)


def test_rows_without_seconds_leave_the_seconds_as_they_are():
    """Calls that went in a batch have none."""
    before = made_trie()
    batched = [replace(row, latency_s=float("nan"), list_usd=row.cost_usd) for row in rows(0, 500, dollars=2.0)]
    after = updated_trie(before, batched, half_life=300)
    assert after.latency_s == pytest.approx(before.latency_s)
    assert after.cost_usd[node(before, "a")] == pytest.approx(0.04, rel=0.15)


def test_bad_input_is_refused():
    with pytest.raises(ConfigError, match="half_life is 0"):
        updated_trie(made_trie(), list(rows(0, 3)), half_life=0)
    with pytest.raises(EvidenceError, match="no served row"):
        updated_trie(made_trie(), [])

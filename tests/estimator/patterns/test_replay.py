"""What replayed sessions say of speculation: counts, seconds and dollars, worked out by hand."""

import pytest
from kit.tool_sessions import READS, a_call, shop_sessions

from vinelm.estimator.patterns.patterns import mine
from vinelm.estimator.patterns.replay import Replayed, folds_of, hold_out, predictions, replay
from vinelm.tools.speculation import ToolCandidate

READ_A = {"x": "aaaa"}


def timeline():
    """The model thinks 4 s, read a takes 3 s; 4 s, a write 1 s; 2 s, a again 3 s."""
    return [
        "go",
        a_call("r", 1, "read", READ_A, 1, started_s=4.0, ended_s=7.0),
        a_call("r", 2, "write", {}, 1, started_s=11.0, ended_s=12.0),
        a_call("r", 3, "read", READ_A, 1, started_s=14.0, ended_s=17.0),
    ]


def at(*places, p=0.9):
    return [[ToolCandidate("read", READ_A, p)] if place in places else [] for place in range(4)]


def test_a_guess_hides_what_passes_while_the_model_thinks():
    sums = replay(timeline(), at(0, 2), frozenset(("read",)), cost_usd=0.5)
    assert (sums.reads, sums.calls, sums.ready, sums.repeats, sums.speculations, sums.used) == (2, 3, 2, 0, 2, 2)
    assert sums.saved_s == pytest.approx(3.0 + 2.0)  # the first is there, the second is joined after 2 of its 3 seconds
    assert (sums.model_s, sums.tool_s, sums.read_s) == pytest.approx((10.0, 7.0, 6.0))
    assert sums.hideable_s == pytest.approx(5.0)
    assert sums.waste_usd == 0.0


def test_a_write_makes_guesses_stale_and_they_are_waste():
    sums = replay(timeline(), at(1, 2, p=0.6), frozenset(("read",)), cost_usd=0.5)
    assert (sums.ready, sums.speculations, sums.used) == (1, 1, 1)  # at 1 it has just been read
    wasted = [[ToolCandidate("read", {"x": "never"}, 0.6)], *[[] for _ in range(3)]]
    assert replay(timeline(), wasted, frozenset(("read",)), cost_usd=0.5).waste_usd == 0.5


def test_the_least_probability_and_the_slots_limit_guesses():
    assert replay(timeline(), at(0, p=0.41), frozenset(("read",))).speculations == 0
    many = [[ToolCandidate("read", {"x": f"{i}"}, 0.9) for i in range(9)], [], [], []]
    assert replay(timeline(), many, frozenset(("read",)), at_once=3).speculations == 3


def test_nothing_to_gain_is_said_in_words():
    assert Replayed(model_s=50.0, tool_s=50.0, read_s=0.1, hideable_s=0.1).nothing_to_gain == (
        "nothing to gain here: reads are 0.2 % of tool seconds, and with every read predicted 0.1 % of the time would be saved"
    )
    assert Replayed(model_s=50.0, tool_s=50.0, read_s=9.0, hideable_s=5.0).nothing_to_gain is None
    assert Replayed().nothing_to_gain is None


def test_groups_are_in_one_fold():
    groups = [f"g{i % 7}" for i in range(40)]
    seen = []
    for kept, held in folds_of(groups):
        assert sorted(kept + held) == list(range(40))
        assert not {groups[i] for i in kept} & {groups[i] for i in held}
        seen += held
    assert sorted(seen) == list(range(40))


def test_what_is_held_out_is_mostly_ready_and_saves_seconds():
    sums = hold_out(shop_sessions(), READS)
    assert sums.ready_share > 0.8
    assert sums.precision > 0.8
    assert 0.15 * sums.total_s < sums.saved_s <= sums.hideable_s


def test_predictions_are_what_candidates_says():
    sessions = shop_sessions(12)
    patterns = mine(sessions, READS)
    found = predictions(patterns, sessions[0])
    assert [patterns.candidates(sessions[0][: at + 1]) for at in range(len(sessions[0]))] == found

"""Which reads are started: the rule, its caps, and what a second is worth."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinelm import Objective
from vinelm.controller.speculation.start_rule import Room, ToolFigures, decide
from vinelm.controller.speculation.worth import SecondWorth, worth_of_second
from vinelm.errors import ConfigError
from vinelm.tools.speculation import Speculation, ToolCandidate

FREE = SecondWorth(math.inf, "seconds are the target")
SLOW = {"search": ToolFigures(cost_usd=0.01, seconds=(2.0, 4.0))}


def search(p, at=0):
    return ToolCandidate("search", {"q": f"{at}"}, p)


@pytest.mark.parametrize(("p", "starts"), [(0.79, False), (0.81, True)])
def test_seconds_are_weighed_against_dollars(p, starts):
    # E[min(tau, 3)] = (2 + 3) / 2 = 2.5 s at $0.001: 0.0025 p > 0.01 (1 - p) from p = 0.8 on
    found = decide([search(p)], SLOW, SecondWorth(0.001, ""), Room(think_s=3.0), Speculation(waste_usd=1.0))
    assert bool(found.candidates) == starts
    assert found.why == ("" if starts else "the seconds are worth less than the dollars")


def test_what_hides_most_for_its_own_seconds_comes_first():
    tools = {"long": ToolFigures(seconds=(40.0,)), "short": ToolFigures(seconds=(1.0,))}
    guesses = [ToolCandidate("long", {}, 0.9), ToolCandidate("short", {}, 0.7)]
    found = decide(guesses, tools, FREE, Room(think_s=4.0), Speculation(at_once=1))
    assert [one.tool for one in found.candidates] == ["short"]
    assert found.why == "1 run at once"


@pytest.mark.parametrize(
    ("room", "settings", "why"),
    [
        (Room(running=4), Speculation(waste_usd=1.0), "4 run at once"),
        (Room(), Speculation(), "waste_usd is used up"),
        (Room(wasted_usd=0.9995), Speculation(waste_usd=1.0), "waste_usd is used up"),
        (Room(left_usd=0.009), Speculation(waste_usd=1.0), "the dollar cap leaves too little"),
        (Room(), Speculation(waste_usd=1.0, least_probability=0.95), "none is as likely as 0.95"),
    ],
)
def test_every_cap_holds_a_read_back_and_says_so(room, settings, why):
    assert decide([search(0.9)], SLOW, FREE, room, settings) == ((), why)


def test_a_second_without_worth_starts_nothing():
    assert decide([search(1.0)], SLOW, SecondWorth(0.0, "no deadline"), Room(), Speculation(waste_usd=1.0)) == (
        (),
        "no deadline",
    )


candidates = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.floats(0.0, 1.0)), max_size=12)
figures = st.builds(ToolFigures, cost_usd=st.floats(0.0, 0.1), seconds=st.lists(st.floats(0.01, 30.0), max_size=4).map(tuple))


@given(
    candidates, st.fixed_dictionaries({}, optional={"a": figures, "b": figures, "c": figures}),
    st.builds(Room, left_usd=st.none() | st.floats(-0.1, 0.3), wasted_usd=st.floats(0.0, 0.1), running=st.integers(0, 5),
              think_s=st.floats(0.0, 60.0) | st.just(math.inf)),
    st.builds(Speculation, waste_usd=st.floats(0.0, 0.2), at_once=st.integers(1, 5)), st.floats(0.0, 1.0) | st.just(math.inf),
)  # fmt: skip
def test_no_cap_is_ever_exceeded(guesses, tools, room, settings, worth):
    found = decide(
        [ToolCandidate(tool, {}, p) for tool, p in guesses], tools, SecondWorth(worth, ""), room, settings
    ).candidates
    prices = [tools.get(one.tool, ToolFigures()).cost_usd for one in found]
    wasted = sum((1.0 - one.probability) * usd for one, usd in zip(found, prices, strict=True))
    assert len(found) <= max(0, settings.at_once - room.running)
    assert not found or all(one.probability >= settings.least_probability for one in found)
    assert wasted == 0.0 or room.wasted_usd + wasted <= settings.waste_usd + 1e-9
    assert room.left_usd is None or sum(prices) <= max(0.0, room.left_usd) + 1e-9
    for one, usd in zip(found, prices, strict=True):
        hidden_s = tools.get(one.tool, ToolFigures()).hidden_s(room.think_s)
        assert one.probability * hidden_s * worth > (1.0 - one.probability) * usd


@pytest.mark.parametrize("wrong", [{"waste_usd": -1.0}, {"waste_usd": math.nan}, {"at_once": 0}, {"least_probability": 0.0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=f"speculate: {next(iter(wrong))} is"):
        Speculation(**wrong)


def test_without_a_deadline_the_target_decides():
    never = worth_of_second(Objective(minimize="cost"), lambda _: 1.0)
    assert never == (0.0, "dollars are the target and there is no deadline: a second is worth nothing")
    assert worth_of_second(Objective(minimize="latency"), lambda _: 1.0).usd_per_s == math.inf
    assert worth_of_second(Objective(maximize="accuracy"), lambda _: 1.0).usd_per_s == math.inf


def test_a_deadline_is_worth_its_shadow_price():
    def dollars(objective):  # a second less costs $0.002 below 20 s
        return 0.01 + 0.002 * max(0.0, 20.0 - objective.max_latency_s)

    assert worth_of_second(Objective(minimize="cost", max_latency_s=10.0), dollars).usd_per_s == pytest.approx(0.002)
    slack = worth_of_second(Objective(minimize="cost", max_latency_s=30.0), dollars)
    assert slack == (0.0, "the deadline costs nothing: the best plan has time to spare")


def test_accuracy_is_turned_into_the_dollars_that_would_buy_it():
    def accuracy(objective):
        return 0.5 + 0.01 * objective.max_latency_s + 2.0 * (objective.max_cost_usd or 0.0)

    bound = Objective(maximize="accuracy", max_latency_s=10.0, max_cost_usd=0.05)
    assert worth_of_second(bound, accuracy).usd_per_s == pytest.approx(0.01 / 2.0)
    assert worth_of_second(Objective(maximize="accuracy", max_latency_s=10.0), accuracy).usd_per_s == math.inf
    assert worth_of_second(bound, lambda _: None).usd_per_s == math.inf

from dataclasses import replace
from pathlib import Path

import pytest
from kit.templates import agent
from kit.tries import random_merged

from vinelm.errors import ConfigError
from vinelm.reports.card import verdict_card
from vinelm.reports.plan_words import plan_code
from vinelm.trie.verdict import ComparedPlan, Verdict, table_rows

TRIE = random_merged(agent(2, 4, memory=1), 0)


def compared(words, gain, saved, reach=0.01, **others):
    return ComparedPlan(
        policy="paths", words=words, cost_usd=0.01 - saved, accuracy=0.8 + gain, is_same=False, is_identified=True,
        gain=gain, gain_low=gain - reach, gain_high=gain + reach, best_low=gain - reach, best_high=gain + reach,
        saved_usd=saved, saved_low=saved, saved_high=saved, **others,
    )  # fmt: skip


def verdict(*plans, **others):
    known = {"models": {"ask": "big"}, "accuracy": 0.8, "cost_usd": 0.01, "requests": 200, "plans": plans}
    return Verdict(**{**known, **others})


def card(found):
    return verdict_card(found, plan="ask a", annotated=TRIE, files=(Path("runs/a.db"), Path("/elsewhere/a.vine")))


CHEAP = compared("small, up to 2 invocations", 0.0, 0.008, models=("small",), cap_usd=0.002)
WORSE = compared("tiny", -0.2, 0.0099, models=("tiny",), is_rung=False)


def test_before_and_after_are_per_1000_with_percent_and_interval():
    found = card(verdict(CHEAP, WORSE))
    assert [(one.name, one.before, one.after, one.change) for one in found.measures] == [
        ("Cost per 1,000 requests", "$10.00", "$2.00", "-80 %"),
        ("Right answers", "80.0 %", "80.0 %", "+0.0 points (95 %: -1.0 to +1.0)"),
        ("Latency", "not measured", "", ""),
    ]
    assert (found.word, found.rest) == ("SWITCH", "")
    assert found.basis == "today (big) → VineLM, judged on 200 requests that did not choose the plan"


def test_latency_is_said_where_it_was_measured():
    found = card(verdict(replace(CHEAP, latency_s=3.0), latency_s=12.0))
    assert (found.measures[2].before, found.measures[2].after) == ("12.0 s", "3 s")
    assert found.measures[2].change == "-75 %, mean per request"


def test_a_part_of_the_requests_is_said_with_the_figures_of_all_of_them():
    found = verdict(replace(CHEAP, gain_low=-0.05, best_low=-0.05))
    assert found.share == 0.6
    own = card(found)
    assert own.rest == "for 60 % of the requests"
    assert own.measures[0].after == "$5.20"
    assert own.measures[1].change == "+0.0 points (95 %: -3.0 to +0.6)"


@pytest.mark.parametrize(
    ("plans", "word", "after"),
    [
        ((compared("small", -0.2, 0.008, models=("small",)),), "KEEP", "best other plan"),
        ((compared("small", -0.01, 0.008, reach=0.09, models=("small",)),), "UNDECIDED", "nearest plan"),
    ],
)
def test_what_is_not_to_be_switched_to_has_no_code(plans, word, after):
    found = card(verdict(*plans))
    assert (found.word, found.code) == (word, "")
    assert after in found.basis
    assert found.command == "vinelm evaluate runs/a.db a.vine", "no folder of this machine"


def test_without_a_plan_the_card_says_only_what_is_known():
    found = card(verdict(why_not="8 requests have a scored answer", accuracy=None, cost_usd=None, requests=8))
    assert found.word == "NOT ENOUGH DATA"
    assert [(one.before, one.after) for one in found.measures] == [("-", ""), ("-", ""), ("not measured", "")]
    assert found.picture is None


def test_the_picture_has_the_opponent_the_plan_and_each_model():
    other = compared("ask small, retry big", -0.01, 0.003, models=("small", "big"))
    dots = {dot.name: dot for dot in card(verdict(CHEAP, WORSE, other)).picture.dots}
    assert {name: (dot.role, round(dot.usd, 9)) for name, dot in dots.items()} == {
        "today (big)": ("in_use", 10.0), "VineLM": ("vinelm", 2.0), "tiny": ("model", 0.1),
    }  # fmt: skip
    assert dots["tiny"].low == pytest.approx(0.59)
    assert dots["tiny"].high == pytest.approx(0.61)
    assert dots["today (big)"].low == dots["today (big)"].high == 0.8
    free = verdict(replace(CHEAP, cost_usd=0.0, saved_usd=0.0), cost_usd=0.0)
    assert card(free).picture is None


def test_code_of_a_plan_that_depends_on_the_request_serves_it():
    lines = plan_code(replace(TRIE, verdict=verdict(CHEAP)), "a.vine")
    assert lines[-2:] == [
        'vine = VineLM("models.toml", trie="a.vine")',
        'app.invoke(inputs, context=vine.context(Objective(maximize="accuracy", max_cost_usd=0.00201, mix=False)))',
    ]
    with pytest.raises(ConfigError, match="no plan to switch to"):
        plan_code(replace(TRIE, verdict=verdict(WORSE)), "a.vine")


def test_two_plans_that_begin_alike_are_told_apart_in_the_table():
    begin = "route a, look something up with the model that is the cheapest one b, "
    plans = [compared(f"{begin}{end}", gain, 0.005) for end, gain in (("reply c", 0.0), ("reply d", 0.01))]
    shown = [row[0] for row in table_rows(verdict(*plans))]
    assert len(set(shown)) == 3

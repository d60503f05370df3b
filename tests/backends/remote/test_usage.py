"""Counts by which a call is booked, as LangChain's packages state them."""

import datetime

import pytest

from vinelm.backends.remote.usage import UsageSum, counts_of
from vinelm.catalog import Price

PRICE = Price(input=1, output=10, cached=0.1, cache_write=1.25, cache_write_1h=2, source="t", as_of=datetime.date(2026, 1, 1))


def cost(counts):
    return PRICE.cost_usd(counts.tokens_in, counts.tokens_out, counts.cached or 0, counts.written, counts.written_1h) * 1e6


def usage(total_in=50, out=1, total=None, answer=None, **details):
    stated = {"input_tokens": total_in, "output_tokens": out, "total_tokens": total or total_in + out}
    return {**stated, "input_token_details": details, "output_token_details": answer or {}}


def test_reading_and_writing_a_cache_have_prices_of_their_own():
    assert cost(counts_of(usage(55, cache_read=5, cache_creation=40))) == pytest.approx(10 + 0.5 + 50 + 10)


def test_a_write_that_is_kept_for_an_hour():
    """Where the packages say how long a write is kept, they state 0 as the sum."""
    counts = counts_of(usage(50, cache_creation=0, ephemeral_5m_input_tokens=10, ephemeral_1h_input_tokens=30))
    assert (counts.written, counts.written_1h) == (40, 30)
    assert cost(counts) == pytest.approx(10 + 10 + 12.5 + 60)


def test_tokens_that_only_the_total_shows_are_output():
    """Some servers leave reasoning out of the answer's count, and bill it."""
    assert counts_of(usage(50, 10, total=100)).tokens_out == 50


@pytest.mark.parametrize("tier", ["priority", "flex"])
def test_parts_of_a_tier_s_counts_are_parts(tier):
    counts = counts_of(usage(50, 10, **{f"{tier}_cache_read": 30}, answer={f"{tier}_reasoning": 4}))
    assert (counts.cached, counts.reasoning) == (30, 4)


@pytest.mark.parametrize(
    "stated", [None, "many", [], usage(0), {"input_tokens": 5}, usage(-5), {**usage(), "output_tokens": "7"}]
)
def test_what_is_no_count_is_none(stated):
    assert counts_of(stated) is None


def test_pieces_add_up_and_what_cannot_be_added_makes_the_whole_unknown():
    added = UsageSum()
    assert added.add(usage(50, 0)).tokens_out == 0
    assert added.add(usage(0, 7)).tokens_out == 7
    assert added.add({"input_tokens": "x"}) is None

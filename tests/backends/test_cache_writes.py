"""Tokens that a call writes to a prompt cache have a price of their own, whoever reports them."""

import datetime

import pytest

from vinelm.backends.bedrock import response as bedrock
from vinelm.backends.langchain import response as langchain
from vinelm.backends.remote.transport import AttemptBound
from vinelm.catalog import Price

PRICE = Price(input=1, output=10, cached=0.1, cache_write=1.25, cache_write_1h=2, source="t", as_of=datetime.date(2026, 1, 1))


def cost(counts):
    return PRICE.cost_usd(counts.tokens_in, counts.tokens_out, counts.cached or 0, counts.written, counts.written_1h) * 1e6


def test_bedrock():
    counts = bedrock._counts({"inputTokens": 10, "outputTokens": 1, "cacheReadInputTokens": 5, "cacheWriteInputTokens": 40})
    assert (counts.tokens_in, counts.cached, counts.written) == (55, 5, 40)
    assert cost(counts) == pytest.approx(10 + 0.5 + 50 + 10)


@pytest.mark.parametrize("details", [[{"ttl": "1h", "inputTokens": 30}, {"ttl": "5m", "inputTokens": 10}], "odd", [7], None])
def test_bedrock_says_how_long_a_write_is_kept(details):
    used = {"inputTokens": 10, "outputTokens": 1, "cacheWriteInputTokens": 40, "cacheDetails": details}
    assert cost(bedrock._counts(used)) == pytest.approx(
        10 + 10 + (12.5 + 60 if isinstance(details, list) and details[1:] else 50)
    )


def test_langchain_says_how_long_a_write_is_kept():
    """In langchain-anthropic and langchain-aws the sum is then 0."""
    details = {"cache_creation": 0, "ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 30}
    counts = langchain._counts({"input_tokens": 50, "output_tokens": 1, "total_tokens": 51, "input_token_details": details})
    assert (counts.written, counts.written_1h) == (40, 30)
    assert cost(counts) == pytest.approx(10 + 10 + 12.5 + 60)


def test_langchain():
    details = {"cache_read": 5, "cache_creation": 40}
    usage = {"input_tokens": 55, "output_tokens": 1, "total_tokens": 56, "input_token_details": details}
    assert cost(langchain._counts(usage)) == pytest.approx(10 + 0.5 + 50 + 10)
    assert langchain._counts({**usage, "input_token_details": {"cache_creation": 900}}).written == 55


def test_the_bound_covers_a_write_of_the_whole_prompt():
    bounds = (AttemptBound.of("x" * 1000, max_tokens=10, writes_cache=flag) for flag in (False, True))
    plain, writes = (bound.usd(PRICE) for bound in bounds)
    assert plain == pytest.approx(PRICE.cost_usd(2024, 10))
    assert writes == pytest.approx(PRICE.cost_usd(2024, 10, 0, 2024, 2024))
    assert writes > plain

"""What a prompt says about the counts that a server may state for it."""

import pytest
from langchain_core.messages import HumanMessage

from vinelm.money.stated_tokens import asks_for_an_hour, is_too_few

HOUR = {"type": "ephemeral", "ttl": "1h"}
MINUTES = {"type": "ephemeral", "ttl": "5m"}


def block(mark):
    return {"type": "text", "text": "x", "cache_control": mark}


@pytest.mark.parametrize(
    ("asked", "is_hour"),
    [
        ({"system": [block(HOUR)]}, True),
        ({"system": [block(MINUTES)]}, False),
        ({"system": [block({"type": "ephemeral"})]}, False),
        ({"system": [block(MINUTES)], "tools": [{"name": "t", "cache_control": HOUR}]}, True),
        ({"messages": [{"content": [{"text": "x"}, {"cachePoint": {"type": "default", "ttl": "1h"}}]}]}, True),
        ({"messages": [HumanMessage([block(HOUR)])]}, True),
        ({"messages": [HumanMessage("the word cache_control, ttl 1h")]}, False),
        ({"options": {"cache_control": HOUR}}, True),
        ({"extra_body": {"messages": ({"content": [block(HOUR)]},)}}, True),
        ({"cache_control": "1h"}, False),
        ({}, False),
    ],
)
def test_a_request_asks_for_an_hour_wherever_the_mark_is(asked, is_hour):
    assert asks_for_an_hour(asked) is is_hour


@pytest.mark.parametrize(
    ("tokens", "text", "is_few"),
    [
        (0, "x", True),
        (0, "", False),
        (1, "x" * 72, False),
        (10, "word " * 40, True),
        (10, " " * 1000, False),
        (40, "word " * 40, False),
    ],
)
def test_so_few_tokens_cannot_be_so_long_a_text(tokens, text, is_few):
    assert is_too_few(tokens, text) is is_few

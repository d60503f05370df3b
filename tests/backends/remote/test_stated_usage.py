"""Which token counts of a server are taken for the price of a call."""

from dataclasses import replace
from datetime import date

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk

from vinelm.backends.remote.bounds import AttemptBound
from vinelm.backends.remote.meter import MeteredCall, ModelRequest
from vinelm.backends.remote.retry import RetryPolicy
from vinelm.catalog import Catalog, Model, Price
from vinelm.clock import VirtualClock
from vinelm.requests.protocols import CallContext

PRICE = Price(input=1.0, output=10.0, source="a test", as_of=date(2026, 1, 1))
BOUND = AttemptBound(tokens_in=100, tokens_out=1000)


def piece(text="", counts=None, reason=None, reasoning=None, **told):
    usage = None if counts is None else {"input_tokens": counts[0], "output_tokens": counts[1], "total_tokens": sum(counts)}
    metadata = ({} if reason is None else {"finish_reason": reason}) | told
    more = {} if reasoning is None else {"reasoning_content": reasoning}
    return ChatGenerationChunk(
        message=AIMessageChunk(text, usage_metadata=usage, response_metadata=metadata, additional_kwargs=more)
    )


def written(counts):
    """A piece whose usage states what of the prompt was written to a cache, and what was read."""
    details = {
        "cache_read": counts.get("cached"),
        "cache_creation": counts.get("written"),
        "ephemeral_5m_input_tokens": counts.get("written_5m"),
        "ephemeral_1h_input_tokens": counts.get("written_1h"),
    }
    known = {name: one for name, one in details.items() if one is not None}
    usage = {"input_tokens": 1000, "output_tokens": 5, "total_tokens": 1005, "input_token_details": known}
    return ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=usage))


def recorded(*pieces, messages=(), bound=BOUND, **fields):
    model = Model(name="m", provider="openai", model_id="m", engine="e", price=PRICE, **fields)
    context = CallContext(stage="s", prefix=("m",), clock=VirtualClock(), on_usage=print)
    request = ModelRequest(messages=messages, stop=None, options={}, limit=1000, answers=1, is_streamed=True)
    metered = MeteredCall(model, context, RetryPolicy(), request, max(40, len(str(messages))), lambda: bound, True)
    metered.begin()
    for one in pieces:
        metered.see(one)
    metered.end(None)
    return metered.usage(None)


def booked(*pieces, **how):
    usage = recorded(*pieces, **how)
    return usage.cost_usd, usage.tokens_estimated


UPPER = (BOUND.usd(PRICE), True)
EXACT = (PRICE.cost_usd(10, 5, 0, 0, 0), False)
COUNTS = (10, 5)
TEXT = piece("four words of text")
END = piece(reason="stop")


@pytest.mark.parametrize(
    ("deltas", "price"),
    [
        ((TEXT, END, piece(counts=COUNTS)), EXACT),
        ((TEXT, piece(reason="stop", counts=COUNTS)), EXACT),
        ((piece(counts=(10, 0)), TEXT, piece(reason="stop", counts=(0, 5))), EXACT),
        ((piece("a", counts=COUNTS), TEXT, END), UPPER),
        ((piece(counts=COUNTS), TEXT, END), UPPER),
        ((TEXT, piece(reason="stop", counts=COUNTS), piece("more")), UPPER),
        ((TEXT, piece(counts=COUNTS)), UPPER),
        ((piece("x" * 750), piece(reason="stop", counts=(10, 1))), UPPER),
        ((piece("internationalizations " * 4), piece(reason="stop", counts=(10, 5))), EXACT),
        ((piece(reasoning="x" * 750), piece("a", reason="stop", counts=(10, 1))), UPPER),
    ],
)  # fmt: skip
def test_counts_are_final_with_the_end_and_possible(deltas, price):
    assert booked(*deltas) == (pytest.approx(price[0]), price[1])


def test_a_catalog_may_trust_a_server():
    deltas = piece("x" * 750), piece(reason="stop", counts=COUNTS)
    assert booked(*deltas) == (pytest.approx(UPPER[0]), True)
    assert booked(*deltas, trusted_counts=True) == (pytest.approx(EXACT[0]), False)


def test_an_entry_that_trusts_nobody_is_written_as_before():
    model = Model(name="m", provider="openai", model_id="m", engine="e", price=PRICE)
    assert "trusted_counts" not in Catalog([model]).to_dict()["model"][0]
    trusted = model.model_copy(update={"trusted_counts": True})
    assert Catalog.from_dict(Catalog([trusted]).to_dict())["m"].trusted_counts


LONG = "hello " * 3_333


@pytest.mark.parametrize("text", [LONG, "x" * 20_000, LONG[:10_000] + "x" * 10_000, "\u5929\u6c17" * 3_500])
@pytest.mark.parametrize("place", ["text", "block", "system", "tool"])
@pytest.mark.parametrize("tokens", [1, 10, 120])
def test_a_count_that_the_prompt_cannot_be_made_of_is_booked_at_the_bound(text, place, tokens):
    """A server that counts only what it neither read from its cache nor wrote to it."""
    marked = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
    messages = {
        "text": [HumanMessage(text)],
        "block": [HumanMessage(marked)],
        "system": [SystemMessage(marked), HumanMessage("go")],
        "tool": [ToolMessage(marked, tool_call_id="c"), HumanMessage("go")],
    }[place]
    deltas = TEXT, END, piece(counts=(tokens, 5))
    assert booked(*deltas, messages=messages) == (pytest.approx(UPPER[0]), True)
    assert booked(*deltas, messages=messages, trusted_counts=True)[1] is False


@pytest.mark.parametrize(
    ("messages", "tokens"),
    [
        ([HumanMessage(LONG)], 3_334),
        ([HumanMessage("internationalization " * 100)], 300),
        ([HumanMessage("-" * 60 + "\n" + " " * 900 + "x")], 12),
        ([HumanMessage("2 + 2?")], 1),
        ([HumanMessage([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 50_000}}])], 85),
        ([AIMessage([{"type": "thinking", "thinking": LONG, "signature": "s"}]), HumanMessage("go")], 9),
    ],
)
def test_counts_that_are_possible_are_believed(messages, tokens):
    usd, is_estimated = booked(TEXT, END, piece(counts=(tokens, 5)), messages=messages)
    assert (usd, is_estimated) == (pytest.approx(PRICE.cost_usd(tokens, 5)), False)


@pytest.mark.parametrize(
    ("stated", "asks", "hour"),
    [
        ({"written": 900}, False, 0),
        ({"written": 900}, True, 900),
        ({"written": 900, "written_5m": 900}, True, 0),
        ({"written": 900, "written_5m": 500, "written_1h": 400}, True, 400),
        ({"written": 900, "written_5m": 500}, True, 400),
        ({"written_5m": 500, "written_1h": 400}, False, 400),
        ({"written": 900, "cached": 900, "written_1h": 900}, False, 900),
        ({"written": 0, "written_5m": 0, "written_1h": 0}, True, 0),
    ],
)
def test_what_the_server_does_not_split_was_written_for_as_long_as_the_prompt_asked(stated, asks, hour):
    stored = 900 if any(stated.get(key) for key in ("written", "written_5m")) else 0
    right = PRICE.cost_usd(1000, 5, 100 if stated.get("cached") else 0, stored, hour)
    bound = replace(AttemptBound(2000, 1000), asks_for_an_hour=asks)
    assert booked(TEXT, END, written(stated), bound=bound)[0] == pytest.approx(right)


def test_a_call_that_was_served_at_a_dearer_tier_costs_twice_the_list_price():
    served = TEXT, piece(reason="stop", counts=COUNTS, service_tier="priority")
    assert booked(*served, price_id="openai/m") == (pytest.approx(2 * EXACT[0]), False)
    assert booked(*served) == (pytest.approx(EXACT[0]), False)  # the entry's own price is that of its tier


def test_the_model_that_the_provider_says_has_answered_is_kept_without_secrets():
    assert recorded(piece("a", model_name="gpt-5-2026-11-01"), END).response_model == "gpt-5-2026-11-01"
    assert recorded(TEXT, END).response_model is None
    assert recorded(piece("a", model_name="words of\nan answer"), END).response_model is None
    secret = "sk-proj-" + "abcdefghij" * 4
    assert secret not in str(recorded(piece("a", model_name=secret), END).response_model)

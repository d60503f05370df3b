"""Which token counts of a server are taken for the price of a call."""

from dataclasses import replace
from datetime import date

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk

from vinelm.backends.remote.bounds import AttemptBound
from vinelm.backends.remote.meter import MeteredCall, ModelRequest
from vinelm.backends.remote.retry import AttemptFailed, RetryPolicy
from vinelm.catalog import Catalog, Model, Price
from vinelm.catalog.prices import find_price, is_same_amount
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


def recorded(*pieces, messages=(), bound=BOUND, price=PRICE, speaks=False, **fields):
    model = Model(name="m", provider="openai", model_id="m", engine="e", price=price, **fields)
    context = CallContext(stage="s", prefix=("m",), clock=VirtualClock(), on_usage=print)
    request = ModelRequest(messages=messages, stop=None, options={}, limit=1000, answers=1, is_streamed=True, speaks=speaks)
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


def stated(text="", reason=None, tokens_in=30, out=5, total=None, read=None, write=None, thought=None, whole=None):
    """A piece with the usage of LangChain's form, or with this one."""
    message = AIMessageChunk(text, response_metadata={} if reason is None else {"finish_reason": reason})
    into = {name: one for name, one in (("cache_read", read), ("cache_creation", write)) if one is not None}
    usage = {"input_tokens": tokens_in, "output_tokens": out, "total_tokens": tokens_in + out if total is None else total}
    message.usage_metadata = whole or {
        **usage,
        "input_token_details": into,
        "output_token_details": {} if thought is None else {"reasoning": thought},
    }
    return ChatGenerationChunk(message=message)


@pytest.mark.parametrize(
    ("said", "bill"),
    [
        ({"thought": 500}, PRICE.cost_usd(30, 505)),
        ({"thought": 500, "total": 0}, PRICE.cost_usd(30, 505)),
        ({"thought": 4}, PRICE.cost_usd(30, 5)),
        ({"out": 0, "thought": 4}, UPPER[0]),
        ({"tokens_in": 10, "read": 90}, PRICE.cost_usd(100, 5, 90)),
        ({"tokens_in": 10, "write": 90}, PRICE.cost_usd(100, 5, 0, 90)),
        ({"tokens_in": 10, "read": 20, "write": 5}, PRICE.cost_usd(35, 5, 20, 5)),
        ({"read": 10**9}, UPPER[0]),
        ({"thought": 10**9}, UPPER[0]),
    ],
)
def test_a_part_that_is_larger_than_its_whole_stands_beside_it(said, bill):
    """A prompt counted without what a cache had of it, an answer without its reasoning."""
    assert booked(TEXT, stated(reason="stop", **said))[0] == pytest.approx(bill)


NO_COUNT = {"input_tokens": "x", "output_tokens": 1, "total_tokens": 1}


@pytest.mark.parametrize(
    ("pieces", "right"),
    [
        # All that there was so far with each piece, as vLLM and some gateways state it; or the same twice.
        ((stated("four ", out=1), stated("words ", out=2), stated("of", "stop", out=3)), PRICE.cost_usd(30, 3)),
        ((TEXT, stated(reason="stop"), stated()), PRICE.cost_usd(30, 5)),
        ((TEXT, stated(read=20), stated(reason="stop")), PRICE.cost_usd(30, 5)),
        ((TEXT, stated(write=20), stated(reason="stop")), PRICE.cost_usd(30, 5, 0, 20)),
        # Less than before is another part, as far as anybody knows.
        ((TEXT, stated(tokens_in=60, out=50), stated(reason="stop")), PRICE.cost_usd(90, 55)),
        # What Gemini counted too much of the prompt at first, and takes back at its end.
        ((TEXT, stated(tokens_in=60, out=2), stated(reason="stop", tokens_in=-20, out=3)), PRICE.cost_usd(40, 5)),
        # What is no count makes the whole unknown, whatever follows.
        ((TEXT, stated(tokens_in=60, out=50), stated(reason="stop", tokens_in=-40, out=-45)), UPPER[0]),
        ((TEXT, stated(tokens_in=True, out=True), stated(reason="stop")), UPPER[0]),
        ((TEXT, stated(whole={"input_tokens": 60}), stated(reason="stop")), UPPER[0]),
    ],
)
def test_usage_that_is_stated_several_times(pieces, right):
    assert booked(*pieces)[0] == pytest.approx(right)


def test_usage_that_is_no_count_cannot_be_joined():
    with pytest.raises(AttemptFailed, match="cannot be joined"):
        booked(TEXT, stated(tokens_in=60, out=20), stated(whole=NO_COUNT), stated(reason="stop"))


SOUND = [HumanMessage([{"type": "text", "text": "what is said?"}, {"type": "input_audio", "input_audio": {"data": "AAAA"}}])]
FILM = [HumanMessage([{"type": "media", "mime_type": "video/mp4", "data": "AAAA"}])]
DEAR = Price(input=1.0, output=10.0, audio=3.0, audio_out=40.0, source="a test", as_of=date(2026, 1, 1))


def heard(audio=None, audio_out=None):
    piece = stated(reason="stop")
    usage = piece.message.usage_metadata
    into = {} if audio is None else {"audio": audio}
    out = {} if audio_out is None else {"audio": audio_out}
    piece.message.usage_metadata = {**usage, "input_token_details": into, "output_token_details": out}
    return piece


@pytest.mark.parametrize(
    ("said", "messages", "speaks", "price", "usd"),
    [
        ({"audio": 20, "audio_out": 5}, SOUND, True, DEAR, 10 + 60 + 5 * 40),
        ({"audio": 20, "audio_out": 5}, SOUND, True, PRICE, 10 + 20 * 17 + 5 * 170),  # at its dearer side
        ({}, SOUND, False, DEAR, 30 * 3 + 50),  # as langchain-google-genai, which does not say how much is sound
        ({}, FILM, False, DEAR, 30 * 3 + 50),
        ({}, (), True, DEAR, 30 + 5 * 40),
        ({"audio": 0, "audio_out": 0}, SOUND, True, DEAR, 30 + 50),
        ({}, (), False, DEAR, 30 + 50),
        ({"audio": 10**9}, SOUND, False, DEAR, 30 * 3 + 50),
    ],
)
def test_sound_has_a_rate_of_its_own(said, messages, speaks, price, usd):
    assert booked(TEXT, heard(**said), messages=messages, price=price, speaks=speaks)[0] * 1e6 == pytest.approx(usd)


def test_the_bound_of_a_call_with_sound():
    silent, loud = (AttemptBound(100, 1000, hears=sound, speaks=sound).usd(DEAR) * 1e6 for sound in (False, True))
    assert (silent, loud) == (pytest.approx(100 + 10_000), pytest.approx(300 + 40_000))


def test_what_a_list_says_of_sound():
    assert find_price("gemini", "gemini-2.5-flash").price.audio == 1.0
    assert find_price("google_genai", "gemini-2.5-pro").price.audio == 1.25
    assert (find_price("openai", "gpt-audio").price.audio, find_price("openai", "gpt-audio").price.audio_out) == (32.0, 64.0)
    old = DEAR.model_copy(update={"audio": None, "audio_out": None})
    assert is_same_amount(DEAR, old)
    assert not is_same_amount(DEAR, DEAR.model_copy(update={"audio": 4.0}))
    assert "audio" not in old.model_dump()


@pytest.mark.parametrize(
    ("asked", "served", "times"),
    [
        ("gpt-4o-mini", "gpt-4o-mini-2024-07-18", 1.0),
        ("gpt-4o-mini", "gpt-4o", 16.67),
        ("gpt-4o", "gpt-4o-mini", 1.0),  # the bill of the one that was asked for, as far as anybody knows
        ("gpt-4o-mini", "nobody-knows", 1.0),
        ("gpt-4o-mini", "", 1.0),
    ],
)
def test_a_call_that_a_dearer_model_has_served_costs_what_that_costs(asked, served, times):
    price = find_price("openai", asked).price
    own = booked(TEXT, piece(reason="stop", counts=COUNTS), price=price, price_id=f"openai/{asked}")[0]
    other = booked(TEXT, piece(reason="stop", counts=COUNTS, model_name=served), price=price, price_id=f"openai/{asked}")[0]
    assert other == pytest.approx(own * times, rel=0.01)
    given = booked(TEXT, piece(reason="stop", counts=COUNTS, model_name=served), price=price)[0]
    assert given == pytest.approx(own)  # the entry's own price is that of whatever it names


def test_the_model_that_the_provider_says_has_answered_is_kept_without_secrets():
    assert recorded(piece("a", model_name="gpt-5-2026-11-01"), END).response_model == "gpt-5-2026-11-01"
    assert recorded(TEXT, END).response_model is None
    assert recorded(piece("a", model_name="words of\nan answer"), END).response_model is None
    secret = "sk-proj-" + "abcdefghij" * 4
    assert secret not in str(recorded(piece("a", model_name=secret), END).response_model)

"""Which token counts of a server are taken for the price of a call."""

from datetime import date

import pytest
from langchain_core.messages import AIMessageChunk
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


def booked(*pieces, **fields):
    model = Model(name="m", provider="openai", model_id="m", engine="e", price=PRICE, **fields)
    context = CallContext(stage="s", prefix=("m",), clock=VirtualClock(), on_usage=print)
    request = ModelRequest(messages=[], stop=None, options={}, limit=1000, answers=1, is_streamed=True)
    metered = MeteredCall(model, context, RetryPolicy(), request, 40, lambda: BOUND, True)
    metered.begin()
    for one in pieces:
        metered.see(one)
    metered.end(None)
    usage = metered.usage(None)
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


def test_a_call_that_was_served_at_a_dearer_tier_costs_twice_the_list_price():
    served = TEXT, piece(reason="stop", counts=COUNTS, service_tier="priority")
    assert booked(*served, price_id="openai/m") == (pytest.approx(2 * EXACT[0]), False)
    assert booked(*served) == (pytest.approx(EXACT[0]), False)  # the entry's own price is that of its tier

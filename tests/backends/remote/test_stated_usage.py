"""Which token counts of a server are taken for the price of a call."""

from datetime import date

import pytest

from vinelm.backends.base import Counts
from vinelm.backends.remote.call_meter import MeteredCall
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import RetryPolicy
from vinelm.backends.remote.transport import AttemptBound
from vinelm.catalog import Catalog, Model, Price
from vinelm.clock import VirtualClock
from vinelm.requests.protocols import CallContext

PRICE = Price(input=1.0, output=10.0, source="a test", as_of=date(2026, 1, 1))
BOUND = AttemptBound(tokens_in=100, tokens_out=1000)


def booked(*deltas, **fields):
    model = Model(name="m", provider="openai", model_id="m", engine="e", price=PRICE, **fields)
    context = CallContext(stage="s", prefix=("m",), clock=VirtualClock(), on_usage=print)
    metered = MeteredCall(model, context, RetryPolicy(), {}, (), 40, True, lambda: BOUND)
    metered.begin()
    for delta in deltas:
        metered.see(delta)
    metered.end(None)
    usage = metered.usage(None)
    return usage.cost_usd, usage.tokens_estimated


UPPER = (BOUND.usd(PRICE), True)
EXACT = (PRICE.cost_usd(10, 5, 0, 0, 0), False)
COUNTS = Counts(10, 5)
TEXT = Delta(text="four words of text")
END = Delta(finish_reason="stop")


@pytest.mark.parametrize(
    ("deltas", "price"),
    [
        ((TEXT, END, Delta(counts=COUNTS)), EXACT),
        ((TEXT, Delta(finish_reason="stop", counts=COUNTS)), EXACT),
        ((Delta(text="a", counts=Counts(10, 1)), TEXT, Delta(finish_reason="stop", counts=COUNTS)), EXACT),
        ((Delta(text="a", counts=COUNTS), TEXT, END), UPPER),
        ((Delta(counts=COUNTS), TEXT, END), UPPER),
        ((TEXT, Delta(finish_reason="stop", counts=COUNTS), Delta(text="more")), UPPER),
        ((TEXT, Delta(finish_reason="stop", counts=COUNTS), Delta(text="more"), Delta(counts=Counts(10, 5))), EXACT),
        ((TEXT, Delta(counts=COUNTS)), UPPER),
        ((Delta(text="x" * 750), Delta(finish_reason="stop", counts=Counts(10, 1))), UPPER),
        ((Delta(text="internationalizations " * 4), Delta(finish_reason="stop", counts=Counts(10, 5))), EXACT),
        ((Delta(reasoning="x" * 750), Delta(text="a", finish_reason="stop", counts=Counts(10, 1))), UPPER),
    ],
)  # fmt: skip
def test_counts_are_final_with_the_end_and_possible(deltas, price):
    assert booked(*deltas) == (pytest.approx(price[0]), price[1])


def test_a_catalog_may_trust_a_server():
    deltas = Delta(text="x" * 750), Delta(finish_reason="stop", counts=COUNTS)
    assert booked(*deltas) == (pytest.approx(UPPER[0]), True)
    assert booked(*deltas, trusted_counts=True) == (pytest.approx(EXACT[0]), False)


def test_an_entry_that_trusts_nobody_is_written_as_before():
    model = Model(name="m", provider="openai", model_id="m", engine="e", price=PRICE)
    assert "trusted_counts" not in Catalog([model]).to_dict()["model"][0]
    trusted = model.model_copy(update={"trusted_counts": True})
    assert Catalog.from_dict(Catalog([trusted]).to_dict())["m"].trusted_counts

"""Where the money goes: figures by hand, what is not known, and bounds of memory."""

import tracemalloc
from datetime import UTC, datetime

import pytest

from vinelm.replay import LoggedCall
from vinelm.replay.bill import MOST_STEPS, OTHERS, Distinct, Seconds, dollars_of, is_short, is_structured, price_of, summed
from vinelm.replay.formats.reading import TraceReading
from vinelm.replay.steps import step_of

BEGAN_S = datetime(2026, 9, 1, tzinfo=UTC).timestamp()
TEXT = {"role": "assistant", "content": "word " * 60}
YES = {"role": "assistant", "content": "yes"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}


def call(step="a", request="r", day=0.0, **more):
    fields = {"answer": TEXT, "tokens_in": 100, "tokens_out": 60, "cost_usd": 1.0, "seconds": 1.0, "model": "m"} | more
    return LoggedCall(request=request, call="c", step=step, started_at=BEGAN_S + day * 86_400, **fields)


def bill(*calls):
    reading = TraceReading()
    reading.calls = len(calls)
    return summed(calls, reading)


def test_sums_by_hand():
    found = bill(
        call("a", "1", 0, cost_usd=3.0, answer=YES, tokens_out=1, cached_tokens=40),
        call("a", "1", 5, cost_usd=1.0, seconds=3.0),
        call("b", "1", 7, cost_usd=2.0, answer=CALL),
        call("b", "2", 10, cost_usd=0.0, answer=None, error="429", seconds=9.0, model="n", tokens_in=None, tokens_out=None),
    )
    assert found.cost_usd == 6.0
    assert found.span_days == 10.0
    assert found.a_month(found.cost_usd) == pytest.approx(18.0)
    assert found.comparable_share == pytest.approx(5 / 6)
    assert (found.requests, found.requests_are_exact, found.days) == (2, True, 4)
    first, second = found.to_dict()["steps"]
    assert (first["step"], first["calls"], first["requests"], first["failed"]) == ("a", 2, 1, 0)
    assert (first["cost_usd"], first["month_usd"], first["share"]) == (4.0, pytest.approx(12.0), pytest.approx(4 / 6))
    assert (first["comparable_share"], first["comparable_calls"]) == (0.75, 1)
    assert (first["tokens_in"], first["tokens_out"], first["cached_tokens"]) == (200, 61, 40)
    assert first["seconds_p50"] == pytest.approx(1.0, rel=0.011)
    assert first["seconds_p95"] == pytest.approx(3.0, rel=0.011)
    assert (second["requests"], second["failed"], second["models"]) == (2, 1, {"m": 1, "n": 1})
    assert second["seconds_p95"] == pytest.approx(1.0, rel=0.011)  # a failure's seconds are no answer's


def test_stated_dollars_come_before_prices_and_unknown_ones_are_never_zero():
    priced = call(cost_usd=None, provider="openai", model="gpt-4o", tokens_in=1000, tokens_out=100, cached_tokens=400)
    assert price_of("openai", "gpt-4o") is not None
    assert dollars_of(priced) == pytest.approx((600 * 2.5 + 400 * 1.25 + 100 * 10) / 1e6)
    unknown = call("b", cost_usd=None, model="nobody-sells-it")
    no_tokens = call("b", cost_usd=None, model="gpt-4o", tokens_in=None)
    failed = call("b", cost_usd=None, error="429", answer=None, tokens_in=None, tokens_out=None, model="nobody-sells-it")
    assert [dollars_of(one) for one in (unknown, no_tokens, failed)] == [None, None, 0.0]
    found = bill(priced, unknown, no_tokens, failed)
    assert found.unpriced == {"nobody-sells-it": 1, "no tokens recorded": 1}
    assert found.cost_usd == pytest.approx(dollars_of(priced))
    assert found.steps[0].priced_usd == found.cost_usd
    assert found.steps[1].unpriced == 2


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("", "gpt-4o"),
        ("", "openai/gpt-4o"),
        ("openai", "gpt-4o-2024-08-06"),
        ("azure.ai.openai", "gpt-4o"),
        ("litellm", "gpt-4o"),
    ],
)
def test_a_model_is_found_by_the_names_that_traces_give_it(provider, model):
    assert price_of(provider, model).input == 2.5


def test_a_model_of_another_seller_is_not_priced_by_its_name():
    assert price_of("ollama", "gpt-oss:20b") is None
    assert price_of("my-own-server", "gpt-4o") is None


def test_a_trace_of_hours_says_nothing_of_a_month():
    assert bill(call(day=0), call(day=0.9)).a_month(1.0) is None
    assert bill(call()).span_days is None
    timeless = LoggedCall(request="r", call="c", cost_usd=1.0)
    assert bill(timeless).a_month(1.0) is None
    assert bill(timeless).to_dict()["started_at"] is None


def test_short_and_structured_answers():
    assert is_short(call(answer=YES, tokens_out=20))
    assert not is_short(call(answer=YES, tokens_out=21))
    assert is_short(call(answer=YES, tokens_out=None))
    assert not is_short(call(answer=TEXT, tokens_out=None))
    assert not is_short(call(answer=None, tokens_out=1))
    assert is_structured(call(answer=CALL))
    assert is_structured(call(answer={"content": '{"a": 1}'}))
    assert not is_structured(call(answer={"content": "{a} or [b]"}))
    assert is_structured(call(response_format={"type": "json_object"}))
    assert not is_structured(call(response_format={"type": "json_object"}, answer=None, error="429"))


def test_steps_without_a_name_are_told_apart_by_what_prompts_share():
    def unnamed(system, **more):
        messages = [{"role": "system", "content": system}, {"role": "user", "content": "a secret"}]
        return step_of(call("", messages=messages, **more))

    first = unnamed("Today is 2026-09-01.\n  You sort mails for customers of a shop.")
    assert first == unnamed("Today is 2026-09-17. You sort mails for customers of a shop.")._replace(title=first.title)
    assert first.title == "Today is 2026-09-01. You sort mails for..."
    assert not first.is_named
    assert unnamed("You answer.").key != first.key
    assert unnamed("You answer.").title == "You answer."
    tool = {"type": "function", "function": {"name": "look"}}
    assert unnamed("You answer.", tools=[tool]).key != unnamed("You answer.").key
    form = {"type": "json_schema", "json_schema": {"name": "Grade"}}
    assert unnamed("You answer.", response_format=form).key != unnamed("You answer.").key
    assert step_of(call("", messages=[{"role": "user", "content": "a secret"}])).title == "(no system prompt)"
    parts = [{"type": "text", "text": "You answer."}]
    assert unnamed(parts).key == unnamed("You answer.").key


def test_further_steps_are_summed_up_in_one():
    found = bill(*(call(f"step {at}", cost_usd=0.5) for at in range(MOST_STEPS + 50)))
    assert len(found.steps) == MOST_STEPS + 1
    assert (found.steps[0].title, found.steps[0].calls, found.cost_usd) == (OTHERS, 50, 0.5 * (MOST_STEPS + 50))


def test_distinct_texts_are_counted_exactly_then_closely():
    few = Distinct(1000)
    for at in range(5000):
        few.add(f"request {at % 900}")
    assert (few.count(), few.is_exact) == (900, True)
    many = Distinct(1000)
    for at in range(60_000):
        many.add(f"request {at % 30_000}")
    assert not many.is_exact
    assert many.count() == pytest.approx(30_000, rel=0.1)
    assert len(many._seen) < 2000


def test_quantiles_are_right_to_one_percent():
    found = Seconds()
    assert found.quantile(0.5) is None
    for at in range(1, 10_001):
        found.add(at / 100)
    for share in (0.01, 0.5, 0.95, 1.0):
        assert found.quantile(share) == pytest.approx(100 * share, rel=0.0101)
    found.add(0.0)
    found.add(1e9)
    assert len(found._buckets) < 1300


def test_memory_does_not_grow_with_calls_requests_steps_or_models(monkeypatch):
    monkeypatch.setattr("vinelm.replay.bill.Distinct", lambda most: Distinct(8))  # each is full within these calls

    def calls(number):
        return (call(f"step {at % 250}", str(at), at / 1000, model=f"model {at % 90}", seconds=at % 7) for at in range(number))

    def peak(number):
        tracemalloc.start()
        summed(calls(number), TraceReading())
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(100)  # what is imported and kept
    small, large = peak(4_000), peak(16_000)
    assert large < 1.5 * small

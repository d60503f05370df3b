"""Calls that are answered once: who leads, who waits, and who goes on when a leader ends without an answer."""

import random
import threading
from concurrent.futures import CancelledError
from types import SimpleNamespace

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from vinelm.backends.remote.equal_calls import EqualCalls, answer_in, digest_of, kept_text
from vinelm.backends.remote.meter import ModelRequest
from vinelm.catalog import Model
from vinelm.catalog.prices import Price
from vinelm.rows.observation import Usage


class Memory(dict):
    def find(self, digest):
        return self.get(digest)

    def keep(self, digest, said):
        assert digest not in self, "bought twice"
        self[digest] = said


def test_the_first_leads_and_all_others_get_its_answer():
    calls = EqualCalls(Memory())
    assert calls.ask("d", leads=False).result(0) is None, "nothing is known, nothing under way"
    assert calls.ask("d", leads=True).result(0) is None
    waiting = [calls.ask("d", leads=leads) for leads in (False, True, True)]
    assert not any(one.done() for one in waiting)
    calls.end("d", "said")
    assert [one.result(0) for one in waiting] == ["said"] * 3
    assert calls.ask("d", leads=True).result(0) == "said"


def test_whoever_waits_is_told_though_the_answer_cannot_be_kept():
    class Broken(Memory):
        def keep(self, digest, said):
            raise OSError("no space")

    calls = EqualCalls(Broken())
    calls.ask("d", leads=True)
    waiting = calls.ask("d", leads=False)
    with pytest.raises(OSError, match="no space"):
        calls.end("d", "said")
    assert waiting.result(0) == "said"
    assert calls.ask("d", leads=True).result(0) is None, "nobody leads"


def test_a_leader_without_an_answer_is_followed_by_one_of_those_who_wait():
    calls = EqualCalls(Memory())
    calls.ask("d", leads=True)
    gone, looks, heir, last = (calls.ask("d", leads=leads) for leads in (True, False, True, True))
    assert gone.cancel()
    calls.end("d", None)
    assert looks.result(0) is None, "it has no money yet, and cannot lead"
    assert heir.result(0) is None
    assert not last.done()
    with pytest.raises(CancelledError):
        gone.result(0)
    late = calls.ask("d", leads=False)
    calls.end("d", "said")
    assert last.result(0) == late.result(0) == "said"


def test_many_threads_with_leaders_that_fail_buy_each_answer_once():
    memory, rng = Memory(), random.Random(4)
    calls, made, seen = EqualCalls(memory), [], []
    fails = {(f"d{n}", turn): rng.random() < 0.4 for n in range(5) for turn in range(500)}

    def run(digest):
        said = calls.ask(digest, leads=False).result(20)
        if said is None:
            said = calls.ask(digest, leads=True).result(20)
        if said is None:
            made.append(digest)
            if fails[digest, made.count(digest)]:
                calls.end(digest, None)
                return
            said = f"answer of {digest}"
            calls.end(digest, said)
        seen.append((digest, said))

    threads = [threading.Thread(target=run, args=(f"d{n % 5}",)) for n in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert all(said == f"answer of {digest}" for digest, said in seen)
    failed = len(made) - len(memory)
    assert len(seen) == 100 - failed, "only leaders that failed have no answer"
    assert not calls._waiting


def price(usd=1):
    return Price(input=usd, output=usd, source="made up", as_of="2026-01-01")


def model(**fields):
    plain = {"name": "a", "provider": "openai", "model_id": "m", "engine": "openai", "price": price(), "max_tokens": 9}
    return Model(**plain | fields)


def request(*messages, **fields):
    plain = {"messages": messages or (HumanMessage("q"),), "stop": None, "options": {}, "limit": 9, "answers": 1}
    return ModelRequest(**plain | {"is_streamed": False} | fields)


def inner(**settings):
    return SimpleNamespace(given=SimpleNamespace(**settings), own={})


def test_the_digest_covers_what_decides_the_answer_and_nothing_else():
    base = digest_of(model(), inner(temperature=0), request())
    same = [
        digest_of(model(name="b", price=price(7)), inner(temperature=0, client=object()), request()),
        digest_of(model(), inner(temperature=0), request(HumanMessage("q", id="other"), is_streamed=True)),
        digest_of(model(), inner(temperature=0), request(options={"extra_body": {"priority": 3}})),
    ]
    assert set(same) == {base}
    others = [
        digest_of(model(model_id="n"), inner(temperature=0), request()),
        digest_of(model(engine="http://127.0.0.1:9/v1"), inner(temperature=0), request()),
        digest_of(model(options={"seed": 1}), inner(temperature=0), request()),
        digest_of(model(), inner(temperature=0, top_p=0.5), request()),
        digest_of(model(), inner(temperature=0), request(SystemMessage("q"))),
        digest_of(model(), inner(temperature=0), request(HumanMessage("p"))),
        digest_of(model(), inner(temperature=0), request(options={"tools": [{"name": "t"}]})),
        digest_of(model(), inner(temperature=0), request(limit=8)),
        digest_of(model(), inner(temperature=0), request(stop=["."])),
    ]
    assert len({base, *others}) == 1 + len(others)


@pytest.mark.parametrize(
    ("settings", "fields", "is_repeatable"),
    [
        ({"temperature": 0}, {}, True),
        ({"temperature": 0.0}, {"options": {"temperature": 0.7}}, False),
        ({"temperature": 0.7}, {"options": {"temperature": 0}}, True),
        ({"temperature": None}, {}, False),
        ({}, {}, False),
        ({"temperature": 0}, {"answers": 2}, False),
        ({"temperature": 0}, {"dropped": frozenset({"temperature"})}, False),
        ({"temperature": 0, "extra_body": {"temperature": 1}}, {}, False),
        ({"model_kwargs": {"temperature": 0}}, {}, True),
    ],
)
def test_a_call_is_repeatable_at_temperature_0(settings, fields, is_repeatable):
    chat = SimpleNamespace(given=_Chat(settings), own={})
    found = EqualCalls(Memory()).digest("a", model(), chat, request(**fields))
    assert (found is not None) == is_repeatable
    told = EqualCalls(Memory(), {"a"}).digest("a", model(), chat, request(**fields))
    assert (told is not None) == (fields.get("answers", 1) == 1), "the stage says that it is"


def test_two_objects_that_hold_functions_are_not_one_model_though_all_that_is_told_of_them_is_equal():
    calls = EqualCalls(Memory(), {"a"})
    nano, big = (SimpleNamespace(given=_Own(rule), own={}) for rule in (lambda: "yes", lambda: "no"))
    assert [calls.digest("a", model(), chat, request()) for chat in (nano, big)] == [None, None]
    plain = SimpleNamespace(given=_Own("yes"), own={})
    assert calls.digest("a", model(), plain, request()) is not None


class _Own:
    def __init__(self, rule):
        self.temperature, self.rule = 0, rule


class _Chat:
    model_fields = model_config = {}  # noqa: RUF012
    temperature = extra_body = model_kwargs = inferenceConfig = None  # noqa: N815

    def __init__(self, settings):
        vars(self).update(settings)


def test_a_kept_answer_costs_nothing_and_is_a_message_of_its_own():
    call = {"name": "look", "args": {"x": 1}, "id": "call-1", "type": "tool_call"}
    message = AIMessage("hello", id="run-1", tool_calls=[call], response_metadata={"finish_reason": "stop"})
    result = ChatResult(generations=[ChatGeneration(message=message)], llm_output={"model_name": "m"})
    first = Usage(model="a", cost_usd=0.25, latency_s=2.0, tokens_in=5, tokens_out=3, retries=1, waited_s=9.0)
    again, usage = answer_in(kept_text(result, first))
    found = again.generations[0].message
    assert (found.content, found.tool_calls, found.id) == ("hello", message.tool_calls, None)
    assert (usage.cost_usd, usage.list_usd, usage.latency_s, usage.waited_s, usage.retries) == (0.0, 0.25, 2.0, 0.0, 0)
    assert usage.is_equal
    assert not first.is_equal
    third = answer_in(kept_text(again, usage))[1]
    assert (third.cost_usd, third.list_usd) == (0.0, 0.25), "what it costs is not forgotten"


def test_what_has_no_form_as_text_is_not_kept():
    message = AIMessage("hello", additional_kwargs={"raw": object()})
    result = ChatResult(generations=[ChatGeneration(message=message)])
    assert kept_text(result, Usage(model="a", cost_usd=0.0, latency_s=0.0)) is None

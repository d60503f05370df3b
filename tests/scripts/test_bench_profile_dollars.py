"""The benchmark of a profile's dollars: the rules of its caches in exact small cases, replays by hand, and one real profile."""

import json
import urllib.error
import urllib.request

import bench_profile_dollars as bench
import pytest
from dollars_parts.cache_rules import (
    LONG_TTL_S,
    TTL_S,
    AutomaticCache,
    Block,
    MarkedCache,
    TooManyMarks,
    blocks_of_messages,
    steps_of,
    steps_of_blocks,
)
from dollars_parts.replay import Method, Replay, bound_usd, prompts_of, reused
from dollars_parts.server import serving
from dollars_parts.workloads import Call, Load, Scaling, recorded

from vinelm.catalog import Price

PRICE = Price(input=1e6, output=0.0, cached=1e5, cache_write=1.25e6, source="test", as_of="2026-01-01")
"""A dollar per token, a tenth for one that is read, a quarter more for one that is written."""


def asked(cache, *tokens, at_s, marks, model="m", kept_s=TTL_S):
    """(read, written) of a call whose blocks have these tokens; its answer begins a second later."""
    blocks = [Block(("text", at, count), 4 * count, kept_s if at in marks else None) for at, count in enumerate(tokens)]
    found = cache.look(model, blocks, at_s)
    cache.answers_at(found, at_s + 1.0)
    return found.read, found.written


@pytest.mark.parametrize(("tokens", "written"), [(1023, 0), (1024, 1024)])
def test_a_prefix_below_the_minimum_is_not_kept(tokens, written):
    cache = MarkedCache()
    assert asked(cache, tokens, 10, at_s=0.0, marks={0}) == (0, written)
    assert asked(cache, tokens, 10, at_s=2.0, marks={0}) == (written, 0)


def test_an_entry_is_read_once_its_answer_has_begun_and_until_its_time_is_over():
    cache = MarkedCache()
    assert asked(cache, 2000, at_s=0.0, marks={0}) == (0, 2000)
    assert asked(cache, 2000, at_s=0.5, marks={0}) == (0, 2000)  # side by side: both write
    assert asked(cache, 2000, at_s=1.0, marks={0}) == (2000, 0)
    assert asked(cache, 2000, at_s=1.0 + TTL_S, marks={0}) == (2000, 0)  # a read keeps it for as long again
    assert asked(cache, 2000, at_s=1.0 + 2 * TTL_S, marks={0}) == (2000, 0)
    assert asked(cache, 2000, at_s=2.0 + 3 * TTL_S, marks={0}) == (0, 2000)


def test_an_hour_is_counted_apart():
    cache = MarkedCache()
    found = cache.look("m", [Block("a", 8000, LONG_TTL_S), Block("b", 4000, TTL_S)], 0.0)
    assert (found.written, found.written_long) == (3000, 2000)
    cache.answers_at(found, 1.0)
    assert cache.look("m", [Block("a", 8000, TTL_S), Block("b", 4000, TTL_S)], 1000.0).read == 2000


def test_nothing_is_read_without_a_mark_or_by_another_model_or_after_another_beginning():
    cache = MarkedCache()
    asked(cache, 2000, 100, at_s=0.0, marks={0})
    assert asked(cache, 2000, 100, at_s=2.0, marks=()) == (0, 0)
    assert asked(cache, 2000, 100, at_s=2.0, marks={0}, model="other") == (0, 2000)
    assert asked(cache, 1999, 100, at_s=2.0, marks={0}) == (0, 1999)
    assert asked(cache, 2000, 100, at_s=3.0, marks={1}) == (2000, 100)  # read before the mark, written up to it


@pytest.mark.parametrize(("between", "read"), [(18, 2000), (19, 2000), (20, 0)])
def test_a_mark_looks_back_over_twenty_blocks_itself_among_them(between, read):
    cache = MarkedCache()
    asked(cache, 2000, at_s=0.0, marks={0})
    assert asked(cache, 2000, *[1] * between, at_s=2.0, marks={between})[0] == read


def test_a_fifth_mark_is_refused():
    cache = MarkedCache()
    assert asked(cache, *[1024] * 5, at_s=0.0, marks={0, 1, 2, 3}) == (0, 4096)
    with pytest.raises(TooManyMarks, match="found 5"):
        asked(cache, *[1024] * 5, at_s=0.0, marks=range(5))


def test_blocks_are_tools_then_system_then_messages_and_marks_are_no_content():
    mark = {"type": "ephemeral", "ttl": "1h"}
    body = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "now", "cache_control": mark}, {"type": "text", "text": "?"}]}
        ],
        "system": [{"type": "text", "text": "be brief"}],
        "tools": [{"name": "look"}],
        "cache_control": {"type": "ephemeral"},
    }
    tool, system, *said = blocks_of_messages(body)
    assert "look" in tool.content[1]
    assert (system.content, system.chars) == ((None, "be brief"), 8)
    assert [block.kept_s for block in said] == [LONG_TTL_S, TTL_S]
    assert said[0].content == ("user", "now")


@pytest.mark.parametrize(("tokens", "read"), [(1023, 0), (1024, 1024), (1151, 1024), (1152, 1152), (2000, 1920)])
def test_an_automatic_cache_keeps_whole_steps_from_the_minimum_on(tokens, read):
    cache = AutomaticCache()
    steps = steps_of("x" * (4 * tokens))
    cache.answers_at(cache.look("m", steps, tokens, 0.0), 1.0)
    found = cache.look("m", steps, tokens, 2.0)
    assert (found.read, found.written) == (read, 0)
    assert cache.look("m", steps, tokens, 0.5).read == 0  # not before the first answer began
    assert cache.look("m", steps, tokens, 2.0, route="key").read == 0  # another key reaches another cache
    assert cache.look("m", steps, tokens, 3.0 + TTL_S).read == 0


def test_steps_of_blocks_are_equal_where_those_of_their_texts_are():
    texts = ("a" * 5000, "b" * 3000), ("a" * 5000, "c" * 3000)
    one, other = ([Block(text, len(text)) for text in some] for some in texts)
    alike = [mine == its for mine, its in zip(steps_of("".join(texts[0])), steps_of("".join(texts[1])), strict=True)]
    assert alike == [mine == its for mine, its in zip(steps_of_blocks(one), steps_of_blocks(other), strict=True)]
    assert alike == [True] * 9 + [False] * 6


CALLS = [Call("s", f"r{n}", ("m",), 400, 0, 1.0, 3.0) for n in range(3)]
FRESH_USD = 2000 + 300 + 100


@pytest.mark.parametrize(
    ("method", "usd", "waited"),
    [
        (Method(), 3 * FRESH_USD, 0),
        (Method((0,)), 3 * (FRESH_USD + 500), 0),  # all three begin at once, and write
        (Method((0,), leads=True), 3 * FRESH_USD + 500 - 2 * 1800, 2),  # one writes, two read
        (Method((0, 1), leads=True), 3 * FRESH_USD + 500 + 3 * 75 - 2 * 1800, 2),
    ],
)
def test_a_replay_pays_what_is_paid_by_hand(method, usd, waited):
    bill = Replay(prompts_of(CALLS, Scaling(2000, 300)), PRICE, method, is_marked=True).run()
    assert bill.usd == pytest.approx(usd)
    assert bill.waited == waited
    extra_s = 2300 / 6000
    assert bill.elapsed_s == pytest.approx(3.0 + extra_s + (1.0 + extra_s if waited else 0.0))


def test_who_knows_all_calls_marks_what_is_read_in_time_and_nothing_else():
    prompts = prompts_of(CALLS, Scaling(2000, 300))
    near, far = ({(f"r{n}", ("m",)): n * every_s for n in range(3)} for every_s in (10.0, 2 * TTL_S))
    assert reused(prompts, near) == {(f"r{n}", ("m",)): ((0,), None) for n in range(3)}
    assert reused(prompts, far) == {}
    assert bound_usd(prompts, PRICE) == FRESH_USD + 2 * (400 + 200)


@pytest.mark.long
def test_a_real_profile_pays_what_its_replay_pays_and_keeps_its_rows(tmp_path, monkeypatch):
    monkeypatch.setenv(bench.KEY_ENV, "not-a-key")
    load, scaling = Load("nl2sql", 0.2, 8), Scaling(*bench.LENGTHS_OF_RIVALS)
    calls = recorded(load, tmp_path)
    claude, automatic = bench.FAMILIES
    with serving(50.0) as url:
        measured = bench.Bench(url, 50.0, tmp_path, 0)
        found = {family.name: measured.cell(load, scaling, family, calls) for family in (claude, automatic)}
        marked = [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5
        five = json.dumps({"model": "m", "messages": [{"role": "user", "content": marked}]}).encode()
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(urllib.request.Request(f"{url}/five/m/v1/messages", five))
    for family in (claude, automatic):
        here, there = found[family.name], bench.replayed(calls, scaling, family)
        assert all(here["rows_equal"].values())
        assert here["calls"] == there["calls"] == len(calls)
        assert here["dollars"]["without_cache"] == pytest.approx(there["dollars"]["without_cache"], rel=0.01)
    real, virtual = found["claude"]["saved_percent"], bench.replayed(calls, scaling, claude)["saved_percent"]
    assert real["nothing"] == pytest.approx(0.0, abs=1e-9)
    for method in ("static", "everything"):  # how many begin side by side is a matter of milliseconds
        assert real[method] == pytest.approx(virtual[method], abs=6.0)
    assert real["vinelm_auto"] > 0.0

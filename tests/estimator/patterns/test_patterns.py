"""Mined patterns: what they yield, how likely they say it is, and what their files hold."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.tool_sessions import READS, a_call, a_session, shop_sessions

from vinelm.errors import ConfigError
from vinelm.estimator.patterns.bindings import ANY_ITEM, ANY_KEY, ANY_VALUE, Binding, Sources, fill
from vinelm.estimator.patterns.pattern_file import read_patterns, write_patterns
from vinelm.estimator.patterns.patterns import mine, read_before_the_next_write, schema_digest
from vinelm.estimator.patterns.sets import find_sets
from vinelm.estimator.patterns.words import shape_of, tokens_of
from vinelm.tools.call import ToolEvent


@pytest.fixture(scope="module")
def patterns():
    return mine(shop_sessions(), READS)


def said(patterns, history):
    return {(one.tool, json.dumps(one.arguments)): one.probability for one in patterns.candidates(history)}


def orders_of(session):
    return next(event for event in session if isinstance(event, ToolEvent)).result["orders"]


def test_all_of_a_list_is_likely_and_what_was_read_is_not_offered_again(patterns):
    session = a_session(101)
    orders = orders_of(session)
    after_user = said(patterns, session[:2])
    assert all(after_user["get_order", json.dumps({"order_id": order})] > 0.7 for order in orders)
    after_one = said(patterns, session[:3])
    assert ("get_order", json.dumps({"order_id": orders[0]})) not in after_one
    assert after_one["get_order", json.dumps({"order_id": orders[1]})] > 0.7


def test_the_users_words_fill_an_argument_by_their_shape(patterns):
    found = said(patterns, ["Hi! It is noa_weber_4711, about order 12."])
    assert found["get_user", json.dumps({"user_id": "noa_weber_4711"})] > 0.7


def test_a_tool_without_arguments_has_patterns_too(patterns):
    session = a_session(102)
    assert said(patterns, session[:-1])["list_offers", "{}"] > 0.7
    assert said(patterns, session[:1]).get(("list_offers", "{}"), 0.0) < 0.3  # a write comes first


def test_a_write_makes_reads_possible_again():
    looks = []
    for at in range(20):
        item = f"item{at}"
        cart = {"cart": f"c{at:03}"}
        looks.append([
            f"Add {item} to cart c{at:03}", a_call(f"r{at}", 1, "view_cart", cart, {"items": []}),
            a_call(f"r{at}", 2, "add_item", {**cart, "item": item}, {"items": [item]}),
            a_call(f"r{at}", 3, "view_cart", cart, {"items": [item]}),
        ])  # fmt: skip
    found = mine(looks, ["view_cart"])
    cart = {"cart": "c777"}
    seen = ["Add tea to cart c777", a_call("r", 1, "view_cart", cart, {"items": []})]
    assert not said(found, seen)
    assert said(found, [*seen, a_call("r", 2, "add_item", {**cart, "item": "tea"}, {})])["view_cart", json.dumps(cart)] > 0.7


def test_the_target_ends_at_the_next_write():
    session = a_session(103)
    assert {event.key for event in session[1:] if isinstance(event, ToolEvent)} > read_before_the_next_write(
        session[1:], frozenset(READS)
    )
    assert session[-1].key not in read_before_the_next_write(session, frozenset(READS))


def test_mining_twice_gives_equal_bytes_that_hold_nothing_private(patterns, tmp_path):
    write_patterns(patterns, tmp_path / "a.patterns")
    write_patterns(mine(shop_sessions(), READS), tmp_path / "b.patterns")
    text = (tmp_path / "a.patterns").read_text()
    assert text == (tmp_path / "b.patterns").read_text()
    assert read_patterns(tmp_path / "a.patterns") == patterns
    for session in shop_sessions():
        for event in session:
            values = event.split() if isinstance(event, str) else json.dumps([event.arguments, event.result]).split('"')
            assert not [value for value in values if any(c.isdigit() for c in value) and len(value) > 5 and value in text]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a file of patterns"),
        ("[1]", "not a file of patterns"),
        ('{"format": "vinelm patterns", "version": 99}', "another version"),
        (None, "damaged"),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_line(patterns, tmp_path, text, says):
    path = tmp_path / "x.patterns"
    if text is None:
        write_patterns(patterns, path)
        text = json.dumps({**json.loads(path.read_text()), "counts": [[99, 0, 1, False, [], 1, 1]]})
    path.write_text(text)
    with pytest.raises(ConfigError, match=says) as error:
        read_patterns(path)
    assert "\n" not in str(error.value)


def test_patterns_of_other_tools_are_refused_by_name():
    schemas = {tool: {"properties": {name: {"type": "string"}}, "required": [name]} for tool, name in
               (("get_user", "user_id"), ("get_order", "order_id"))}  # fmt: skip
    schemas["list_offers"] = {"properties": {}}
    found = mine(shop_sessions(), READS, schemas={tool: schema_digest(one) for tool, one in schemas.items()})
    found.check(schemas)
    found.check({**schemas, "get_user": {**schemas["get_user"], "description": "new words"}})
    with pytest.raises(ConfigError, match="'get_user' takes other arguments"):
        found.check({**schemas, "get_user": {"properties": {"user_id": {"type": "integer"}}, "required": ["user_id"]}})
    with pytest.raises(ConfigError, match="no tool 'get_order'"):
        found.check({name: one for name, one in schemas.items() if name != "get_order"})
    with pytest.raises(ConfigError, match=r"other arguments \(shop\)"):
        replace(found, schemas={}).check({**schemas, "get_user": {**schemas["get_user"], "required": ["user_id", "shop"]}})


def test_values_that_were_not_recorded_are_refused():
    with pytest.raises(ConfigError, match="without arguments"):
        mine([[replace(a_call("r", 0, "get_user", {}, None), arguments=None)]], READS)


@pytest.mark.parametrize(("name", "value"), [("access_token", "abc123xyz"), ("header", "Bearer abcdefgh12345678")])
def test_a_secret_is_never_a_constant(tmp_path, name, value):
    sessions = [
        [
            f"go {at}",
            *(
                a_call(f"r{at}", seq, "look", {"how": "fully", **more}, {"x": seq})
                for seq, more in ((1, {}), (2, {name: value}))
            ),
        ]
        for at in range(12)
    ]
    write_patterns(mine(sessions, ["look"]), tmp_path / "x.patterns")
    text = (tmp_path / "x.patterns").read_text()
    assert "fully" in text
    assert value not in text


def test_too_little_is_no_reason_to_speculate():
    assert mine(shop_sessions(1), READS).candidates(a_session(5)[:2]) == []


@pytest.mark.parametrize(
    ("text", "shape"),
    [("mia_li_3668", "a_a_9999"), ("UM3OG5", "XXXXXX"), ("SFO", "AAA"), ("2024-05-24", "9999-99-99"), ("Aa9", "Aa9")],
)  # fmt: skip
def test_shapes(text, shape):
    assert shape_of(text) == shape


def test_words_pairs_and_quoted_passages_are_tokens():
    found = {token.text for token in tokens_of("I'm in San Francisco, look for 'budget analysis' in #W12.")}
    assert {"San Francisco", "budget analysis", "#W12", "San"} <= found


def test_wildcards_of_one_event_go_together():
    sources = Sources()
    flights = [{"from": "AAA", "to": "BBB"}, {"from": "CCC", "to": "DDD"}]
    sources.add_call(0, a_call("r", 0, "search", {}, {"flights": flights, "cards": {"k1": {"id": "v1"}, "k2": {"id": "v2"}}}))
    place = ("result", "flights", ANY_ITEM)
    pairs = (("a", Binding("call", "search", (*place, "from"))), ("b", Binding("call", "search", (*place, "to"))))
    assert [one.arguments for one in fill(pairs, sources).values()] == [{"a": "AAA", "b": "BBB"}, {"a": "CCC", "b": "DDD"}]
    keys = (("k", Binding("call", "search", ("result", "cards", ANY_KEY))),
            ("v", Binding("call", "search", ("result", "cards", ANY_VALUE, "id"))))  # fmt: skip
    assert [one.arguments for one in fill(keys, sources).values()] == [{"k": "k1", "v": "v1"}, {"k": "k2", "v": "v2"}]


leaf = st.text(alphabet="bcdfgh", min_size=4, max_size=8)
trees = st.recursive(
    leaf, lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(leaf, inner, min_size=1, max_size=3)
)


def paths(tree, at=()):
    if isinstance(tree, str):
        yield at
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from paths(value, (*at, key))


def planted(tree, path, value):
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = planted(tree[path[0]], path[1:], value)
    return copy


@settings(max_examples=60, deadline=None)
@given(trees, st.data())
def test_a_value_is_found_again_wherever_it_stands(tree, data):
    path = data.draw(st.sampled_from(sorted(paths(tree), key=repr)))
    sessions = []
    for number in range(3):
        value = f"value-{number}-{number}"
        first = a_call(f"r{number}", 0, "first", {}, planted(tree, path, value))
        sessions.append([first, a_call(f"r{number}", 1, "second", {"x": value}, "done")])
    sets = [one for one in find_sets(sessions, range(3), frozenset(("first", "second"))) if one[0] == "second"]
    for session in sessions:
        sources = Sources()
        sources.add_call(0, session[0])
        wanted = dict(session[1].arguments)
        assert any(wanted == one.arguments for _, bindings in sets for one in fill(bindings, sources).values())

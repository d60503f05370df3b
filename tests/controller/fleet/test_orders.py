"""Orders as values: how they add up, what is refused, and the priorities of many conversations as columns."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.worlds.fleet_views import view_of

from vinelm.controller.fleet.orders import Orders, SessionPriorities, check_orders, combined
from vinelm.errors import ConfigError

SESSIONS = st.dictionaries(st.integers(0, 2**64 - 1), st.floats(-50, 50), max_size=20)


def test_orders_add_up():
    one = Orders(weights={"east": 0.5}, sessions={1: 2.0, 2: 1.0}, stages={"write": 1.0}, pins={1: "east"}, shares={"p1": 2.0})
    two = Orders(weights={"east": 0.5, "west": 2.0}, sessions={2: -4.0}, tenants={"acme": 3.0}, pins={1: "west"})
    both = one + two
    assert both.weights == {"east": 0.25, "west": 2.0}
    assert dict(both.sessions) == {1: 2.0, 2: -3.0}
    assert (both.pins, both.shares) == ({1: "west"}, {"p1": 2.0})
    assert both.priority(2, "acme", "write") == -3.0 + 3.0 + 1.0
    assert both.priority(9, "", "read") == 0.0


def test_a_priority_is_cut_to_a_hundred_steps():
    assert Orders(sessions={1: 90.0}, tenants={"acme": 90.0}).priority(1, "acme", "write") == 100.0
    assert Orders(stages={"write": -1e9}).priority(1, "", "write") == -100.0


def test_orders_cannot_be_changed():
    orders = Orders(sessions={1: 2.0})
    with pytest.raises(dataclasses.FrozenInstanceError):
        orders.pins = {}
    with pytest.raises(ValueError, match="read-only"):
        orders.by_session.priority[0] = 1.0


def test_a_combination_says_what_all_say():
    policy = combined([lambda view: Orders(stages={"write": 1.0}), lambda view: Orders(stages={"write": 2.0})])
    assert policy(view_of()).stages == {"write": 3.0}


@given(SESSIONS, SESSIONS)
def test_columns_are_a_mapping(one, two):
    columns = SessionPriorities.of(one)
    assert dict(columns) == one
    assert all(columns[session] == priority for session, priority in one.items())
    assert all((session in columns) == (session in one) for session in two)
    total = columns + SessionPriorities.of(two)
    assert dict(total) == pytest.approx({session: one.get(session, 0.0) + two.get(session, 0.0) for session in {*one, *two}})


def test_the_most_urgent_invocation_of_a_conversation_counts():
    found = SessionPriorities(np.array([7, 3, 7], np.uint64), np.array([-2.0, 1.0, -1.0]))
    assert dict(found) == {3: 1.0, 7: -1.0}
    assert 2**64 not in found


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        (Orders(weights={"eats": 1.0}), "weights: unknown engine 'eats': the fleet's engines are east"),
        (Orders(weights={"east": -1.0}), "weights of 'east' is -1.0: give a number from 0 up"),
        (Orders(weights={"east": float("nan")}), "weights of 'east' is nan: give a finite number"),
        (Orders(weights={"east": "2"}), "weights of 'east' is '2': give a finite number"),
        (Orders(shares={"p9": 1.0}), "shares: unknown process 'p9': the fleet's processes are p1, p2"),
        (Orders(shares={"p1": -0.5}), "shares of 'p1' is -0.5: give a number from 0 up"),
        (Orders(tenants={"acme": float("inf")}), "tenants of 'acme' is inf: give a finite number"),
        (Orders(stages={"write": True}), "stages of 'write' is True: give a finite number"),
        (Orders(sessions={5: float("nan")}), "sessions of 5 is nan: give a finite number"),
        (Orders(sessions={5: 1.0, 6: 1.0}), "sessions: 1 session is not in the view, 6 for one: use those of view.session"),
        (Orders(pins={5: "eats"}), "pins: unknown engine 'eats' for session 5"),
        (Orders(pins={8: "east", 9: "east"}), "pins: 2 sessions are not in the view, 8 for one"),
        (Orders(pins={"chat-7": "east"}), "pins: a key is no number of a conversation"),
        ({"east": 1.0}, r"the policy returned a dict: return vinelm.controller.Orders\(...\)"),
        (None, "the policy returned a NoneType"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(orders, message):
    view = view_of({"session": 5}, engines={"east": "east"})
    with pytest.raises(ConfigError, match=message) as refused:
        check_orders(orders, view)
    assert "\n" not in str(refused.value)


def test_what_is_known_is_accepted():
    view = view_of({"session": 5})
    orders = Orders(weights={"large-1": 0.0}, sessions={5: -2.0}, pins={5: "large-2"}, shares={"p2": 3}, tenants={"new": 1.0})
    assert check_orders(orders, view) is orders


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sessions": {"chat-7": 1.0}}, "sessions has no numbers of conversations"),
        ({"sessions": {-1: 1.0}}, "sessions has no numbers of conversations"),
        ({"sessions": {1: None}}, "sessions has no numbers of conversations"),
        ({"weights": [("east", 1.0)]}, "weights is a list: give a mapping"),
    ],
)
def test_what_is_no_mapping_of_numbers_is_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        Orders(**fields)

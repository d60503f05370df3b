"""A name within one scope is never a name within another."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinelm.requests.names import label_of, scoped, unscoped

NASTY = ["", "a", "acme", "[", '["acme", "a"]', '["", "a"]', "a/b", "a\x1fb", '"', "[]", '["acme","a"]', "\ud800"]


def test_no_two_names_are_told_apart_by_nothing():
    seen = {}
    for name, tenant, kind in itertools.product(NASTY, NASTY, ("", "request")):
        assert seen.setdefault(scoped(name, tenant, kind), (name, tenant, kind)) == (name, tenant, kind)


@given(*[st.text(max_size=12)] * 4)
def test_two_pairs_have_one_name_only_if_they_are_equal(name, tenant, other, other_tenant):
    assert (scoped(name, tenant) == scoped(other, other_tenant)) == ((name, tenant) == (other, other_tenant))


@given(st.text(max_size=12), st.text(max_size=12))
def test_the_name_is_found_again(name, tenant):
    assert unscoped(scoped(name, tenant)) == name


def test_without_a_scope_a_name_is_as_it_was():
    assert scoped("order-7", "") == "order-7"


@pytest.mark.parametrize("label", ["tenant", lambda configurable: configurable["tenant"]])
def test_a_label_is_a_key_or_a_function(label):
    assert (label_of(label, {"tenant": 7}), label_of(label, {}), label_of(label, None)) == ("7", "", "")

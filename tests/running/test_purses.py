"""Requests that are served at the same time: each call is asked of the budget of its own request, or refused."""

from types import SimpleNamespace

import pytest

from vinelm.errors import CallRefused
from vinelm.running.serving import Purses


def test_each_policy_pays_with_its_own_and_a_stranger_only_where_one_is_under_way():
    adapter, first, second = SimpleNamespace(account_of=None), object(), object()
    purses = Purses(adapter)

    def asked(policy):
        return adapter.account_of(SimpleNamespace(policy=policy))

    with purses.paying(first, "of the first"):
        assert asked(first) == asked(None) == "of the first"
        with purses.paying(second, "of the second"):
            assert (asked(first), asked(second)) == ("of the first", "of the second")
            with pytest.raises(CallRefused, match="copy_context"):
                asked(None)
        assert asked(None) == "of the first"
    with pytest.raises(CallRefused):  # nothing is under way any more
        asked(first)

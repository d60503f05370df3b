"""Servers that state usage too early or too little, or fail in the middle of a stream: booked at the upper bound."""

import pytest
from hostile_parts import servers

KINDS = {"usage_before_the_end", "usage_before_more_text", "few_tokens_for_much_text", "an_error_in_the_stream"}


@pytest.mark.long
def test_what_nobody_can_know_is_booked_at_its_upper_bound():
    found = servers.run(only=KINDS)
    assert found["kinds"] == len(KINDS)
    assert found["got_through"] == []

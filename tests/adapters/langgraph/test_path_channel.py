"""The path channel against its meaning, spelled out slowly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.templates import make_template
from langgraph._internal._typing import MISSING
from langgraph.errors import EmptyChannelError, InvalidUpdateError

from vinelm.adapters.langgraph.path.path_channel import PathChannel, is_new_request, models_of, shown_of
from vinelm.template import Loop, Stage, Template


def entry(k, model="m", stage="repair", **more):
    return {"k": k, "stage": stage, "model": model, **more}


def test_an_empty_channel_is_empty():
    channel = PathChannel()
    assert not channel.is_available()
    assert channel.checkpoint() is MISSING
    assert not channel.finish()
    assert not channel.update([])
    with pytest.raises(EmptyChannelError):
        channel.get()


@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 6), st.sampled_from("ab"))), max_size=20))
def test_the_path_is_what_was_written_last_at_each_place_and_nothing_after_the_last_write(steps):
    """None ends the run; a pair writes (place, model), places being at most the path's length as the wrapper gives them."""
    channel, path, closed = PathChannel(), [], False
    for step in steps:
        if step is None:
            assert channel.finish() is (bool(path) and not closed)
            closed = closed or bool(path)
        else:
            k = min(step[0], len(path))
            assert channel.update([[entry(k, step[1])]])
            path, closed = [*path[:k], step[1]], False
        channel = channel.copy()
        if path:
            assert channel.get() == {"path": [entry(k, m) for k, m in enumerate(path)], "closed": closed}
            channel = PathChannel().from_checkpoint(channel.checkpoint())


def test_the_branches_of_a_fan_out_leave_one_entry():
    channel = PathChannel()
    channel.update([[entry(0, "a")]])
    assert channel.update([[entry(1, "b")], [entry(1, "b")], [entry(1, "b")]])
    assert models_of(channel.get()) == ("a", "b")


def test_different_entries_for_one_place_are_refused():
    with pytest.raises(InvalidUpdateError, match="'generate' and 'repair' ran in one superstep: put an edge between them"):
        PathChannel().update([[entry(0, stage="generate")], [entry(0, stage="repair")]])


def note(k, signal="s", **more):
    return {"k": k, "shown": {"signal": signal, "answer_class": 0, **more}}


def test_a_note_is_added_to_the_entry_at_its_place_and_the_first_one_stands():
    channel = PathChannel()
    channel.update([[entry(0, "a", usd=0.5)]])
    assert channel.update([[note(0, first={"a": 1}), entry(1, "b")], [note(0), entry(1, "b")]])
    assert channel.path == (entry(0, "a", usd=0.5, shown=note(0, first={"a": 1})["shown"]), entry(1, "b"))
    assert not channel.update([[note(0, "another")]])
    assert channel.update([[note(1)]])
    assert shown_of(channel.get()) == (channel.path[0]["shown"], note(1)["shown"])
    assert channel.update([[entry(0, "c")]])  # another request, or a fork
    assert shown_of(channel.get()) == (None,)


def test_a_note_neither_opens_a_path_nor_adds_a_place():
    channel = PathChannel()
    assert not channel.update([[note(0)]])
    channel.update([[entry(0)]])
    channel.finish()
    assert not channel.update([[note(4)]])
    assert channel.update([[note(0)]])
    assert (len(channel.path), channel.closed) == (1, True)


def test_what_was_shown_survives_a_checkpoint():
    channel = PathChannel()
    channel.update([[entry(0)]])
    channel.update([[note(0, first={"a": ["x"]})]])
    again = PathChannel().from_checkpoint(channel.checkpoint())
    assert again.get() == channel.get()


def test_copies_do_not_share():
    channel = PathChannel()
    channel.update([[entry(0)]])
    twin = channel.copy()
    twin.update([[entry(1)]])
    channel.get()["path"].append(entry(9))
    assert (len(channel.path), len(twin.path)) == (1, 2)


def test_two_stages_may_announce_the_channel():
    assert PathChannel() == PathChannel()
    assert PathChannel() != "another channel"


CHAIN = make_template(2, 3)
LOOP = Template((Loop((Stage("repair"),), 2),))
TWO = Template((Loop((Stage("plan"), Stage("act")), 2),))


def value(*stages, closed=False, **more):
    return {"path": [entry(k, stage=stage, **more) for k, stage in enumerate(stages)], "closed": closed}


@pytest.mark.parametrize(
    ("stored", "stage", "template", "anew"),
    [
        (None, "generate", CHAIN, True),
        (value(), "generate", CHAIN, True),
        (value("generate"), "repair", CHAIN, False),
        (value("generate", closed=True), "repair", CHAIN, False),  # goto past the end
        (value("generate", "repair", closed=True), "generate", CHAIN, True),  # a second turn
        (value("generate", "repair"), "generate", CHAIN, True),  # an abandoned run
        (value("generate", "repair", "repair"), "repair", CHAIN, False),  # past the template: for the policy to say
        (value("repair"), "repair", LOOP, False),
        (value("repair", closed=True), "repair", LOOP, True),
        (value("repair", "repair"), "repair", LOOP, True),
        (value("plan", "act"), "plan", TWO, False),
        (value("plan"), "plan", TWO, True),
        (value("plan", closed=True), "act", TWO, False),
        (value("generate"), "repair", None, False),
        (value("generate", closed=True), "repair", None, True),
    ],
)
def test_which_invocation_starts_a_path(stored, stage, template, anew):
    assert is_new_request(stored, stage, template, None) is anew


@pytest.mark.parametrize("template", [LOOP, None])
def test_the_request_id_decides_where_it_is_known(template):
    assert is_new_request(value("repair", request="r1"), "repair", template, "r2")
    assert not is_new_request(value("repair", request="r1"), "repair", template, "r1")
    assert not is_new_request(value("repair", request="r1", closed=True), "repair", template, "r1")
    assert is_new_request(value("repair", request="r1", closed=True), "repair", template, None)
    assert not is_new_request(value("repair"), "repair", template, "r1")  # written before the caller gave ids
    assert is_new_request(value("repair", closed=True), "repair", template, "r1")

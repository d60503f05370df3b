"""Snapshots of live invocations and the view over them, without Redis."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinelm.controller.fleet.live_invocations import InvocationStart, LiveInvocations, session_number
from vinelm.controller.fleet.snapshot import COLUMNS, LiveState, Snapshot
from vinelm.controller.fleet.view import merge
from vinelm.errors import VineLMError


class Seconds:
    """A clock that the test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def start(**fields):
    return InvocationStart(
        **{"session": 7, "tenant": "acme", "stage": "write", "node": 3, "engine": "east", "elapsed_s": 0.5, **fields}
    )


def view_of(*tables, age_s=0.0):
    return merge([(Snapshot.from_bytes(table.snapshot().to_bytes()), age_s) for table in tables])


def test_what_began_is_seen_with_its_numbers():
    clock = Seconds()
    table = LiveInvocations("p1", clock)
    table.begin(start(deadline_s=4.0, rest_s=1.5, rest_usd=0.25))
    clock.now += 2.0
    view = view_of(table, age_s=0.25)
    assert len(view) == 1
    assert (view.tenants, view.stages, view.engines, view.processes) == (("acme",), ("write",), ("east",), ("p1",))
    assert (view.session[0], view.node[0], view.state[0]) == (7, 3, LiveState.RUNNING)
    assert view.elapsed_s[0] == pytest.approx(2.75)  # 0.5 when it began, 2 s since, and the snapshot's own age
    assert (view.waited_s[0], view.deadline_s[0], view.rest_s[0], view.rest_usd[0]) == (0.0, 4.0, 1.5, 0.25)
    assert view.running_s[0] == pytest.approx(2.25)
    assert (view.left_s[0], view.slack_s[0]) == (0.0, pytest.approx(4.0 - 2.75))  # it has run for longer than its rest
    assert view_of(table, age_s=-1.0).slack_s[0] == pytest.approx(4.0 - 1.5 - (1.5 - 1.0))


def test_waiting_is_counted_while_it_lasts_and_kept_after():
    clock = Seconds()
    table = LiveInvocations("p1", clock)
    slot = table.begin(start())
    table.queue(slot)
    clock.now += 3.0
    assert view_of(table, age_s=1.0).waited_s[0] == pytest.approx(4.0)
    assert view_of(table).count_by_engine(LiveState.QUEUED).tolist() == [1]
    assert view_of(table, age_s=1.0).running_s[0] == 0.0
    table.run(slot)
    clock.now += 5.0
    assert view_of(table, age_s=1.0).running_s[0] == pytest.approx(6.0)
    assert view_of(table, age_s=1.0).waited_s[0] == pytest.approx(3.0)
    assert view_of(table).count_by_engine(LiveState.QUEUED).tolist() == [0]


def test_no_deadline_is_infinite_slack():
    table = LiveInvocations("p1")
    table.begin(start())
    assert np.isinf(view_of(table).slack_s[0])


def test_places_are_given_to_others_once_an_invocation_ends():
    table = LiveInvocations("p1")
    slots = [table.begin(start(session=i)) for i in range(200)]
    for slot in slots[::2]:
        table.end(slot)
        table.end(slot)  # without effect
    assert len(table) == 100
    assert sorted(view_of(table).session.tolist()) == list(range(1, 200, 2))
    again = [table.begin(start(session=1000 + i)) for i in range(100)]
    assert set(again) == set(slots[::2])


def test_names_of_processes_are_joined():
    one, two = LiveInvocations("p1"), LiveInvocations("p2")
    one.begin(start(engine="east", tenant="a"))
    two.begin(start(engine="west", tenant="a"))
    two.begin(start(engine="east", tenant="b"))
    view = view_of(one, two)
    assert [view.engines[i] for i in view.engine] == ["east", "west", "east"]
    assert [view.tenants[i] for i in view.tenant] == ["a", "a", "b"]
    assert [view.processes[i] for i in view.process] == ["p1", "p2", "p2"]
    assert dict(zip(view.engines, view.count_by_engine().tolist(), strict=True)) == {"east": 2, "west": 1}
    assert [view.engines[i] for i in view.where(view.process == 1).engine] == ["west", "east"]


def test_all_engines_of_the_catalogs_are_known_with_their_groups():
    one, two = LiveInvocations("p1"), LiveInvocations("p2")
    one.begin(start(engine="large"))
    two.groups = {"large-1": "large", "large-2": "large", "small": "small"}
    view = view_of(one, two)
    assert dict(zip(view.engines, view.groups, strict=True)) == {"large": "large", **two.groups}
    assert view.count_by_engine().tolist() == [1, 0, 0, 0]
    assert view.group.tolist() == [0, 0, 0, 1]


def test_only_names_in_use_are_published_and_too_many_share_the_empty_one(monkeypatch):
    monkeypatch.setattr("vinelm.controller.fleet.live_invocations.MOST_NAMES", 3)
    table = LiveInvocations("p1")
    slots = [table.begin(start(tenant=name)) for name in ("a", "b", "c", "d")]
    assert sorted(view_of(table).tenants) == ["", "a", "b"]
    table.end(slots[0])
    view = view_of(table)
    assert [view.tenants[i] for i in view.tenant] == ["b", "", ""]
    assert "a" not in view.tenants


def test_a_view_is_immutable_and_may_be_empty():
    view = merge([])
    assert len(view) == 0
    table = LiveInvocations("p1")
    table.begin(start())
    with pytest.raises(ValueError, match="read-only"):
        view_of(table).engine[0] = 1


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.sampled_from("abc"), st.integers(-1, 2**31 - 1)), max_size=300))
def test_bytes_give_back_the_snapshot(rows):
    table = LiveInvocations("p1")
    for session, name, node in rows:
        table.begin(start(session=session, engine=name, tenant=name * 2, node=node, deadline_s=2.5))
    snapshot = table.snapshot()
    again = Snapshot.from_bytes(snapshot.to_bytes())
    assert again.vocabularies == snapshot.vocabularies
    for name in COLUMNS:
        np.testing.assert_allclose(again.columns[name], snapshot.columns[name], rtol=1e-6)


@pytest.mark.parametrize("harm", [lambda raw: raw[:-1], lambda raw: b"x" + raw, lambda raw: raw + b"1", lambda raw: b""])
def test_damaged_bytes_are_refused(harm):
    table = LiveInvocations("p1")
    table.begin(start())
    with pytest.raises(VineLMError, match="not a snapshot"):
        Snapshot.from_bytes(harm(table.snapshot().to_bytes()))


def test_a_number_without_a_name_is_refused():
    table = LiveInvocations("p1")
    table.begin(start())
    snapshot = table.snapshot()
    snapshot.columns["engine"][0] = 9
    with pytest.raises(VineLMError, match="engine has no name"):
        Snapshot.from_bytes(snapshot.to_bytes())


def test_a_conversation_is_a_number_that_does_not_tell_its_name():
    assert session_number("alice@example.org") == session_number("alice@example.org") < 2**64
    assert session_number("a") != session_number("b")

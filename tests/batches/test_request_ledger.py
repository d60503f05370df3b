"""The ledger of whole requests: no call that is not durable first."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select

from vinelm.errors import CallRefused, StoreError
from vinelm.money.spend_guard import OWED
from vinelm.requests.protocols import Usage
from vinelm.running.request_ledger import AHEAD_ROOM, RequestLedger
from vinelm.traces import ObservationStore
from vinelm.traces.databases import schema
from vinelm.traces.served.answers import Answer
from vinelm.traces.store.batches import BatchRecords
from vinelm.traces.testing import an_identity


def test_an_application_that_tries_again_after_the_store_has_failed_makes_no_call(tmp_path, monkeypatch):
    with ObservationStore.create(tmp_path / "s.db", an_identity()) as store, store.exclusive():
        ledger, allowed = RequestLedger(store, 10.0), []
        works = ledger._commits.run

        def full(work, **how):
            works(work, **how)  # what is in memory is as if it had been written
            monkeypatch.setattr(ledger._commits, "run", works)
            raise StoreError("the disk is full")

        def answer(guard):
            for _ in range(3):
                try:
                    allowed.append(guard.authorize(0.5))
                except StoreError:
                    continue

        monkeypatch.setattr(ledger._commits, "run", full)
        with pytest.raises(StoreError, match="the disk is full"):
            ledger.serve("a", answer, lambda entry, request: None)
        assert allowed == []


BOUND, PAID = 1.0, 0.1


@pytest.fixture
def store(tmp_path):
    with ObservationStore.create(tmp_path / "s.db", an_identity()) as store, store.exclusive():
        yield store


def entries(store):
    with store.database.transaction() as connection:
        rows = connection.execute(select(schema.ledger).order_by(schema.ledger.c.entry_id))
        return [(row.request_id, row.reserved_usd, row.settled_usd) for row in rows]


def serve(ledger, name, *, bound=BOUND, inside=lambda guard: None):
    """A request of one call, which was allowed."""

    def answer(guard):
        permit = guard.authorize(bound)
        permit.settle(Usage(model="m", cost_usd=PAID, latency_s=0.0))
        inside(guard)
        return Answer(key=name, prefix=("m",), cost_usd=PAID, latency_s=0.0)

    return ledger.serve(name, answer, lambda entry, request: None)


def test_an_answer_is_kept_with_the_reservation_of_the_next_request(store, monkeypatch):
    ledger, left, written = RequestLedger(store, 100.0), iter((3, 2, 1, 0)), []
    commit = ledger._commits.run
    monkeypatch.setattr(ledger._commits, "run", lambda work, **how: written.append(work) or commit(work, **how))
    with ledger.ahead(lambda: next(left)):
        for name in "abcd":
            serve(ledger, name)
    assert len(written) == 1 + 4  # the bound of the first request, and an answer each
    assert entries(store) == [("a", BOUND, PAID), *((name, pytest.approx(BOUND), PAID) for name in "bcd")]
    assert ledger.committed_usd == pytest.approx(4 * PAID)
    assert ledger.reserved_usd == 0.0


def test_a_call_under_an_entry_ahead_has_its_bound_on_the_disk_first(store):
    ledger, seen = RequestLedger(store, 100.0), []
    with ledger.ahead(lambda: 1):
        serve(ledger, "a")
        assert entries(store)[-1] == ("", BOUND, None)
        for bound in (0.5, BOUND, 3.0):  # within what is reserved, the same, and dearer
            serve(ledger, f"b{bound}", bound=bound, inside=lambda guard: seen.append((entries(store)[-1], ledger.reserved_usd)))
    assert [reserved for (_, reserved, _), _ in seen] == [BOUND, BOUND, 3.0]
    assert [usd for _, usd in seen] == [0.5, BOUND, 3.0]  # what is reserved ahead and not needed is no call's bound
    assert all(settled is not None for _, _, settled in entries(store))


def test_what_is_left_over_is_settled_at_nothing(store):
    ledger = RequestLedger(store, 100.0)
    with ledger.ahead(lambda: 1):
        serve(ledger, "a")
    assert entries(store) == [("a", BOUND, PAID), ("", BOUND, 0.0)]
    assert ledger.committed_usd == pytest.approx(PAID)


def test_a_process_that_dies_leaves_it_at_its_bound(store):
    ledger = RequestLedger(store, 100.0)
    run = ledger.ahead(lambda: 1)
    run.__enter__()  # and never left
    serve(ledger, "a")
    assert RequestLedger(store, 100.0).committed_usd == pytest.approx(PAID + BOUND)


def test_nothing_is_reserved_ahead_where_the_budget_has_little_room(store):
    ledger = RequestLedger(store, AHEAD_ROOM * BOUND)
    with ledger.ahead(lambda: 5):
        serve(ledger, "a")
    assert entries(store) == [("a", BOUND, PAID)]


def test_what_is_reserved_ahead_makes_room_for_a_request_under_way(store):
    ledger = RequestLedger(store, 25.0)

    def larger(guard):
        serve(ledger, "inner")
        assert entries(store)[-1] == ("", BOUND, None)
        guard.authorize(23.9).settle(Usage(model="m", cost_usd=0.0, latency_s=0.0))  # with what is ahead: $25.1

    with ledger.ahead(lambda: 5):
        assert serve(ledger, "outer", inside=larger) is not None
    assert ledger.committed_usd == pytest.approx(2 * PAID)
    assert all(settled is not None for _, _, settled in entries(store))


def test_threads_never_share_an_entry(store):
    ledger, names = RequestLedger(store, 1e4), [f"r{n}" for n in range(200)]
    with ledger.ahead(lambda: 1_000), ThreadPoolExecutor(8) as pool:
        assert None not in list(pool.map(lambda name: serve(ledger, name), names))
    found = [row for row in entries(store) if row[0]]
    assert sorted(name for name, _, _ in found) == sorted(names)
    assert {paid for _, _, paid in found} == {PAID}
    assert ledger.committed_usd == pytest.approx(len(names) * PAID)


def test_what_an_interrupted_request_holds_is_given_to_nobody_until_it_has_ended(store):
    """Its calls are bought: their price replaces the bound once, and no other request buys for that money."""
    before = RequestLedger(store, 10.0, BatchRecords(store))
    assert before.paying("a").top_up(4.0)
    assert before.paying("b").top_up(4.0)
    after = RequestLedger(store, 10.0, BatchRecords(store))  # that process died
    again = after.paying("a")
    assert again.top_up(1.0)  # its first call, which is bought
    assert after.committed_usd == pytest.approx(8.0)
    assert not after.paying("c").top_up(2.5)
    assert again.top_up(4.0)
    assert again.top_up(6.0)  # there is room for that
    assert not again.top_up(6.5)
    after.give_back(again, 0.5)
    assert after.paying("c").top_up(5.5)
    assert after.committed_usd == pytest.approx(10.0)
    assert after.committed_usd == pytest.approx(store.committed_usd())


def test_a_request_whose_calls_are_bought_is_served_though_the_ledger_is_above_the_budget(store):
    before = RequestLedger(store, 10.0, BatchRecords(store))
    assert before.paying("a").top_up(9.0)
    after = RequestLedger(store, 5.0, BatchRecords(store))

    def fetched(guard):
        token = OWED.set(True)
        guard.authorize(9.0).settle(Usage(model="m", cost_usd=PAID, latency_s=0.0))
        OWED.reset(token)
        with pytest.raises(CallRefused):
            guard.authorize(9.0)  # that one would be bought
        return Answer(key="a", prefix=("m",), cost_usd=PAID, latency_s=0.0)

    assert after.serve("b", fetched, lambda *_: None) is None
    refused = after.serve("a", fetched, lambda *_: None, after.paying("a", has_bought=lambda: True))
    assert refused is None  # of its second call
    assert after.committed_usd == pytest.approx(PAID)
    assert store.committed_usd() == pytest.approx(PAID)

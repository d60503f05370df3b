"""The ledger of whole requests: no call that is not durable first."""

import pytest

from vinelm.errors import StoreError
from vinelm.traces import ObservationStore
from vinelm.traces.served.answers import Answer
from vinelm.traces.testing import an_identity
from vinelm.verdicts.request_ledger import RequestLedger


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


def test_an_answer_that_nobody_waits_for_is_durable_before_the_next_call(tmp_path):
    with ObservationStore.create(tmp_path / "s.db", an_identity()) as store, store.exclusive():
        ledger, kept, kept_at_the_call = RequestLedger(store, 10.0), [], []

        def answer(guard):
            guard.authorize(0.5).close()
            kept_at_the_call.append(list(kept))
            return answered(0.25)

        for name in "ab":
            ledger.serve(name, answer, lambda entry, request, name=name: kept.append(name), is_late=True)
            assert ledger.reserved_usd == 0.0  # it has ended, and nothing of it is under way
            # A call whose price is not known counts at its bound.
            assert ledger.committed_usd == pytest.approx(0.5 if name == "a" else 1.0)
        assert kept_at_the_call == [[], ["a"]]
        ledger.flush()
        assert kept == ["a", "b"]
        assert ledger.committed_usd == store.committed_usd() == pytest.approx(1.0)


def answered(cost_usd):
    return Answer(key="k", prefix=("m",), cost_usd=cost_usd, latency_s=1.0, answer="1")


def test_an_answer_that_cannot_be_kept_ends_the_next_request_before_it_begins(tmp_path):
    with ObservationStore.create(tmp_path / "s.db", an_identity()) as store, store.exclusive():
        ledger = RequestLedger(store, 10.0)

        def keep(entry, request):
            raise ValueError("no text")

        ledger.serve("a", lambda guard: answered(0.0), keep, is_late=True)
        with pytest.raises(ValueError, match="no text"):
            ledger.flush()
        with pytest.raises(ValueError, match="no text"):
            ledger.serve("b", lambda guard: pytest.fail("it has begun"), keep)

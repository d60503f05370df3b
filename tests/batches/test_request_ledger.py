"""The ledger of whole requests: no call that is not durable first."""

import pytest

from vinelm.errors import StoreError
from vinelm.traces import ObservationStore
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

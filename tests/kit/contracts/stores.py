"""A contract test suite for observation stores: subclass :class:`StoreContract` and override how a store is created."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vinelm.errors import StoreError
from vinelm.requests.workflow import Request
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.store.store import ObservationStore
from vinelm.traces.testing import a_row, an_identity


class StoreContract:
    """The tests of the contract. Override :meth:`make` and :meth:`reopen` for a store other than the SQLite one."""

    def make(self, folder: Path, identity: StoreIdentity) -> ObservationStore:
        """Create an empty store in ``folder``."""
        return ObservationStore.create(folder / "store.db", identity)

    def reopen(self, folder: Path, identity: StoreIdentity | None = None) -> ObservationStore:
        """Open the store that :meth:`make` created in ``folder``."""
        return ObservationStore.open(folder / "store.db", identity)

    def test_rows_come_back_as_they_were(self, tmp_path: Path) -> None:
        """All fields survive, None included, in insertion order, after reopening."""
        full = a_row(
            "frage ü/1", ("small", "large"), success=None, stopped=None, tool_cost_usd=0.5, tool_latency_s=0.125,
            tokens_in=10, tokens_out=3, tokens_cached=2, tokens_estimated=True, ttft_s=0.2, calls=2, retries=1, in_flight=4,
            failure="timeout", detail="no answer in 5 s",
        )  # fmt: skip
        with self.make(tmp_path, an_identity()) as store:
            store.add(full)
            store.add(a_row())
            assert len(store) == 2
        with self.reopen(tmp_path) as store:
            assert store.observations() == [full, a_row()]

    def test_has_knows_each_cell(self, tmp_path: Path) -> None:
        """A cell is a request and a whole prefix."""
        with self.make(tmp_path, an_identity()) as store:
            store.add(a_row("q1", ("small", "large")))
            assert store.has("q1", ("small", "large"))
            assert not store.has("q1", ("small",))
            assert not store.has("q1", ("large", "small"))
            assert not store.has("q2", ("small", "large"))

    def test_a_cell_takes_one_row(self, tmp_path: Path) -> None:
        """A second row is rejected with its checkpoint and its settlement."""
        with self.make(tmp_path, an_identity()) as store:
            store.add(a_row())
            entry = store.reserve("q1", ("small",), 9.0)
            with pytest.raises(StoreError, match="has a row already"):
                store.add(a_row(cost_usd=7.0), b"state", reservation=entry)
            assert store.observations() == [a_row()]
            assert store.checkpoint("q1", ("small",)) is None
            assert store.committed_usd() == 9.0

    def test_rows_in_bulk_are_all_or_nothing_and_paid_for(self, tmp_path: Path) -> None:
        """A cell that has a row already, or an error on the way, rolls all of them back."""
        rows = [a_row(f"q{i}", ("large",), tool_cost_usd=0.5) for i in range(5)]
        with self.make(tmp_path, an_identity()) as store:
            store.add(a_row("q3", ("large",)))
            with pytest.raises(StoreError, match="has a row already"):
                store.add_many(rows)
            with pytest.raises(ZeroDivisionError):
                store.add_many(a_row(f"p{i}", tokens_in=1 // (3 - i)) for i in range(9))
            assert store.observations() == [a_row("q3", ("large",))]
            assert store.committed_usd() == 0.0
            assert store.add_many(row for row in rows if row.request_id != "q3") == 4
            assert store.committed_usd() == 3.0
            assert store.abandon_open() == 0
        with self.reopen(tmp_path) as store:
            assert len(store) == 5

    def test_one_run_holds_the_store_and_others_read(self, tmp_path: Path) -> None:
        """A second run is rejected and the holder named; a run that ends in an error releases the store."""
        with self.make(tmp_path, an_identity()) as store:
            with store.exclusive():
                store.add(a_row())
                with self.reopen(tmp_path) as other:
                    assert other.observations() == [a_row()]
                    with pytest.raises(StoreError, match="another run is writing to it"), other.exclusive():
                        pass
            with pytest.raises(ZeroDivisionError), store.exclusive():
                raise ZeroDivisionError
            with store.exclusive():
                store.add(a_row("q2"))
        with self.reopen(tmp_path, an_identity()) as store:
            assert len(store) == 2

    def test_checkpoints_come_back_whole_and_equal_ones_are_kept_once(self, tmp_path: Path) -> None:
        """Bytes in, the same bytes out."""
        state = bytes(range(256)) * 40
        with self.make(tmp_path, an_identity()) as store:
            store.add(a_row("q1"), state)
            store.add(a_row("q2"), state)
            store.add(a_row("q3"), b"")
        with self.reopen(tmp_path) as store:
            assert store.checkpoint("q1", ("small",)) == store.checkpoint("q2", ("small",)) == state
            assert store.checkpoint("q3", ("small",)) == b""
            assert store.checkpoint("q4", ("small",)) is None

    def test_money_is_committed_when_reserved_and_real_when_settled(self, tmp_path: Path) -> None:
        """An entry counts at its upper bound until it is settled; an abandoned entry stays at its upper bound."""
        with self.make(tmp_path, an_identity()) as store:
            assert store.committed_usd() == 0.0
            first = store.reserve("q1", ("small",), 2.0)
            store.reserve("q2", ("small",), 3.0)
            assert store.committed_usd() == 5.0
            store.add(a_row("q1", tool_cost_usd=0.5), reservation=first)
            assert store.committed_usd() == 3.75
        with self.reopen(tmp_path) as store:
            assert store.abandon_open() == 1
            assert store.committed_usd() == 3.75
            assert store.abandon_open() == 0

    def test_spend_sums_by_model_depth_and_stage(self, tmp_path: Path) -> None:
        """Tools included, failures counted."""
        with self.make(tmp_path, an_identity()) as store:
            store.add(a_row("q1", ("small",), cost_usd=1.0, tool_cost_usd=0.5))
            store.add(a_row("q1", ("small", "large"), cost_usd=2.0, calls=3))
            store.add(a_row("q2", ("large",), cost_usd=4.0, success=None, stopped=None, failure="server"))
            by_model = store.spend("model")
            assert {name: (s.rows, s.calls, s.cost_usd, s.failures) for name, s in by_model.items()} == {
                "large": (2, 4, 6.0, 1),
                "small": (1, 1, 1.5, 0),
            }
            assert {depth: s.cost_usd for depth, s in store.spend("depth").items()} == {1: 5.5, 2: 2.0}
            assert {stage: s.rows for stage, s in store.spend("stage").items()} == {"generate": 2, "repair": 1}

    def test_requests_are_noted_once_and_must_not_change(self, tmp_path: Path) -> None:
        """Ids come in order of registration; a changed request is rejected and named."""
        requests = [Request("b", {"question": 1}), Request("a", {"question": 2})]
        with self.make(tmp_path, an_identity()) as store:
            store.register(requests)
            store.register([Request("c", {}), *requests])
            assert store.request_ids() == ["b", "a", "c"]
            with pytest.raises(StoreError, match="'a' changed"):
                store.register([Request("a", {"question": 3})])

    def test_identity_comes_back_and_another_is_refused_by_name(self, tmp_path: Path) -> None:
        """The error says what differs; the creation time is not compared."""
        mine = an_identity()
        with self.make(tmp_path, mine) as store:
            store.add(a_row())
        with self.reopen(tmp_path, an_identity(created_at="later")) as store:
            assert store.identity.created_at == mine.created_at
            assert store.identity.bound_template().models == ("small", "large")
            assert list(store.identity.models()) == ["small", "large"]
        others: dict[str, dict[str, Any]] = {
            "workflow 'toy', not 'other'": {"workflow": "other"},
            "template changed": {"template": {}},
            "catalog changed": {"catalog": {}},
            "dataset changed": {"dataset_digest": "d2"},
            "stage generate": {"fingerprint": {"graph": "g1", "stage generate": "s2"}},
            "simulated models, not of real": {"is_simulated": False},
        }
        for words, change in others.items():
            with pytest.raises(StoreError, match=words):
                self.reopen(tmp_path, an_identity(**change))

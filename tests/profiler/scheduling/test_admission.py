"""Which units start when: never more at a time than workers, also where units stop to ask for more money."""

import sqlite3
import threading
from contextlib import closing

import pytest
from kit.toys.priced import PricedBackend
from kit.toys.profiling import catalog_for, new_store, toy

from vinelm.profiler import ExecutionConfig, ProfileSettings, profile
from vinelm.traces.store.rows import encode_prefix


class Counted(PricedBackend):
    """Every call must be asked for; ``most`` is how many units were ever between their start and their end at once."""

    def __post_init__(self):
        super().__post_init__()
        self.lock = threading.Lock()
        self.now = self.most = 0

    def chat_model(self, model, call):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        return super().chat_model(model, call)

    def answer(self, model, call, prompt_chars):
        try:
            return super().answer(model, call, prompt_chars)
        finally:
            with self.lock:
                self.now -= 1


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("cap", [None, 0.05])
def test_a_unit_that_waits_for_money_keeps_its_place(tmp_path, workers, cap):
    workflow = toy(n_requests=10)
    backend, open_units = Counted(), []
    with new_store(tmp_path / "s.db", workflow) as store:
        backend.before = lambda *_: open_units.append(len(open_entries(store)))
        place = ExecutionConfig(isolation="thread", workers=workers)
        profile(
            workflow,
            catalog_for(workflow),
            {"test": backend},
            store,
            ProfileSettings(
                sampler="exhaustive",
                budget_usd=cap,
                execution=place,
                on_progress=lambda progress: open_units.append(progress.in_flight),
            ),
        )
    assert max(open_units) == workers
    assert backend.most <= workers


@pytest.mark.parametrize("cap", [None, 0.05])
def test_a_call_is_made_only_when_its_raised_reservation_is_durable(tmp_path, cap):
    """Another process would read what a kill at this moment left."""
    workflow, backend, reserved = toy(n_requests=10), Counted(), []

    def read(request_id, prefix):
        query = "SELECT reserved_usd FROM ledger WHERE request_id = ? AND prefix = ? AND settled_usd IS NULL"
        with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
            (usd,) = connection.execute(query, (request_id, encode_prefix(prefix))).fetchone()
        reserved.append(usd)

    backend.before = read
    with new_store(tmp_path / "s.db", workflow) as store:
        profile(
            workflow, catalog_for(workflow), {"test": backend}, store, ProfileSettings(sampler="exhaustive", budget_usd=cap,
            execution=ExecutionConfig(isolation="thread", workers=3)),
        )  # fmt: skip
    assert len(reserved) > 3
    assert min(reserved) >= backend.upper


def open_entries(store):
    """Units that have money set aside and no row."""
    from sqlalchemy import select

    from vinelm.traces.databases import schema

    query = select(schema.ledger.c.entry_id).where(schema.ledger.c.settled_usd.is_(None))
    with store._database.transaction() as connection:
        return connection.execute(query).all()

"""One cap for several runs on a store in PostgreSQL: never passed, and never less than what was billed, whoever is killed."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit.servers.postgres_server import connected
from kit.toys import paying_process

from vinelm.errors import StoreError
from vinelm.profiler import ProfileLimits
from vinelm.profiler.execution.ledger import Ledger
from vinelm.traces import ObservationStore
from vinelm.traces.store.shared_run import shared_run
from vinelm.traces.testing import an_identity

pytestmark = pytest.mark.long
CAP_USD = 40.0
MOMENT = (
    "SELECT usd, usd = (SELECT coalesce(sum(coalesce(settled_usd, reserved_usd)::numeric), 0) FROM ledger), "
    "calls = (SELECT coalesce(sum(calls), 0) FROM observations) + (SELECT coalesce(sum(calls), 0) FROM ledger "
    "WHERE settled_usd IS NULL) FROM totals"
)


class Payer:
    """A run in a process of its own."""

    started = 0

    def __init__(self, address, bill):
        Payer.started += 1
        arguments = [address, f"r{Payer.started}", str(bill), str(CAP_USD), str(Payer.started)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", paying_process.__name__, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert self.process.stdout.readline() == "started\n", self.process.stderr.read()

    def end(self, *, kill):
        if kill:
            self.process.kill()
        self.process.communicate(timeout=120)


def look(url, moments):
    """Note one moment of the store; the sums have to be right in each."""
    with connected(url) as connection:
        usd, is_summed, are_counted = connection.execute(MOMENT).fetchone()
    assert is_summed
    assert are_counted
    moments.append(float(usd))


def billed(bill):
    return sum(float(line) for line in bill.read_text().splitlines())


def finish(url, bill, moments):
    """A last run, after those that died: the ledger then holds all that was billed, and no more than the cap."""
    last = Payer(url, bill)
    last.end(kill=False)
    assert last.process.returncode == 0
    look(url, moments)
    with ObservationStore.open(url) as store:
        store.abandon_open()
        assert billed(bill) <= store.committed_usd() + 1e-9
        assert store.committed_usd() == pytest.approx(moments[-1])
        assert len(store) > 10
    assert max(moments) <= CAP_USD + 1e-9
    assert moments[-1] > CAP_USD - 0.5  # the runs have used what there was


def test_kill_9_and_cut_connections_never_break_the_sums_or_the_cap(postgres_url, tmp_path):
    ObservationStore.create(postgres_url, an_identity()).close()
    bill, moments, order = tmp_path / "bill", [], random.Random(7)
    payers = [Payer(postgres_url, bill) for _ in range(2)]
    for turn in range(6):
        until = time.monotonic() + order.uniform(0.05, 0.4)
        while time.monotonic() < until:
            look(postgres_url, moments)
        victim = payers.pop(order.randrange(2))
        if turn % 3 == 2:  # the server ends its session instead
            with connected(postgres_url) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s",
                    (f"vinelm pid {victim.process.pid} on %",),
                )
        victim.end(kill=turn % 3 != 2)
        payers.append(Payer(postgres_url, bill))
        look(postgres_url, moments)
    for payer in payers:
        payer.end(kill=False)
    finish(postgres_url, bill, moments)
    with connected(postgres_url) as connection:
        (abandoned,) = connection.execute("SELECT count(*) FROM ledger WHERE is_abandoned").fetchone()
    assert abandoned > 0


def test_a_server_that_crashes_has_kept_every_reservation_that_a_call_was_made_for(postgres_server, tmp_path):
    url, bill, moments = postgres_server.url, tmp_path / "bill", []
    ObservationStore.create(url, an_identity()).close()
    for _ in range(4):
        payers = [Payer(url, bill) for _ in range(2)]
        time.sleep(0.3)
        postgres_server.stop()
        for payer in payers:
            payer.end(kill=False)
        postgres_server.start()
        look(url, moments)
        with ObservationStore.open(url) as store:
            assert billed(bill) <= store.committed_usd() + 1e-9
    finish(url, bill, moments)


def test_totals_that_someone_has_broken_are_set_to_the_sums_in_one_line(postgres_url):
    with ObservationStore.create(postgres_url, an_identity()) as store, shared_run(store) as shared:
        ledger = Ledger(store, ProfileLimits(budget_usd=1.0), shared=shared)
        ledger.reserve("q1", ("small",), 0.75)
        assert shared.correct_totals() is None
        with connected(postgres_url) as connection:
            connection.execute("UPDATE totals SET usd = 0.25, calls = 9")
        note = shared.correct_totals()
        assert note.endswith("its running totals said $0.250000 and 9 calls, its rows say $0.750000 and 1: the rows count")
        assert "\n" not in note
        assert shared.correct_totals() is None
        assert float(shared.totals().usd) == 0.75


def test_a_store_without_totals_gets_them_with_its_next_run(postgres_url):
    with ObservationStore.create(postgres_url, an_identity()) as store:
        store.settle(store.reserve("q1", ("small",), 0.75), 0.5)
        with connected(postgres_url) as connection:
            connection.execute("DROP TABLE totals")
            connection.execute("DROP FUNCTION count_ledger, count_rows CASCADE")
        with shared_run(store) as shared:
            assert shared.totals() == (0.5, 0)
            with connected(postgres_url) as connection:  # by hand, with another search path
                schema = connection.execute("SELECT current_schema()").fetchone()[0]
                connection.execute("SET search_path = pg_catalog")
                connection.execute(f"UPDATE {schema}.ledger SET settled_usd = 0.625")
            assert shared.totals() == (0.625, 0)


def test_the_cap_holds_whatever_isolation_the_server_gives_by_default(postgres_url):
    url = f"{postgres_url}%20-cdefault_transaction_isolation%3Dserializable"
    ObservationStore.create(url, an_identity()).close()
    with (
        ObservationStore.open(url) as one,
        ObservationStore.open(url) as two,
        shared_run(one) as first,
        shared_run(two) as second,
    ):
        for number in range(3):  # a snapshot from before the other's commit would see too little
            Ledger(one, ProfileLimits(), shared=first).reserve(f"a{number}", ("small",), 0.5)
            Ledger(two, ProfileLimits(), shared=second).reserve(f"b{number}", ("small",), 0.5)
        with two.database.transaction() as connection:
            assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"
        assert second.totals() == (3.0, 6)


def test_a_store_that_lost_its_version_is_one_line(postgres_url):
    with ObservationStore.create(postgres_url, an_identity()) as store, shared_run(store) as shared:
        ledger = Ledger(store, ProfileLimits(budget_usd=1.0), shared=shared)
        with connected(postgres_url) as connection:
            connection.execute("DELETE FROM meta WHERE key = 'schema_version'")
        with pytest.raises(StoreError, match="upgraded to store version None while this one"):
            ledger.reserve("q1", ("small",), 0.75)

"""The ledger under any order of concurrent units, faults and deaths: at least ten thousand of them, a fixed seed each.

Most run on a store in memory, whose contract is the real one's (``StoreContract``); some on the real one; and some with real
threads.
"""

import random
import threading
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from vinelm.errors import BudgetExhausted, StoreError
from vinelm.profiler import ProfileLimits
from vinelm.profiler.execution.ledger import Ledger
from vinelm.traces import ObservationStore
from vinelm.traces.testing import a_row, an_identity

INTERLEAVINGS = 10_000


class MemoryStore:
    """The part of a store that a ledger needs. ``fails()`` says whether the next write does."""

    database = SimpleNamespace(require_held=lambda: None)  # nobody takes the store away from its run

    def __init__(self, fails=lambda: False):
        self.entries, self.rows, self.fails = {}, [], fails

    def _write(self):
        if self.fails():
            raise StoreError("disk full")

    def reserve(self, request_id, prefix, upper_usd, *, is_batched=False):
        self._write()
        self.entries[len(self.entries)] = [upper_usd, None]
        return len(self.entries) - 1

    def raise_reservation(self, entry, upper_usd):
        self._write()
        self.entries[entry][0] = upper_usd

    def add(self, row, checkpoint=None):
        self._write()
        self.rows.append(row)

    def settle(self, entry, cost_usd, request_id=None):
        self.entries[entry][1] = cost_usd

    @contextmanager
    def together(self):
        yield

    def abandon_open(self):
        gone = [entry for entry in self.entries.values() if entry[1] is None]
        for entry in gone:
            entry[1] = entry[0]
        return len(gone)

    def committed_usd(self):
        return sum(upper if settled is None else settled for upper, settled in self.entries.values())

    def spend(self, by):
        return {1: SimpleNamespace(calls=sum(row.calls for row in self.rows))}

    def retired_calls(self):
        return 0


def unit(world, name, rng):
    """One unit as a generator: what happens between two yields happens at once. Some are cut short by the world."""
    ledger = world.ledger
    upper, real = rng.random(), rng.random() * rng.choice([0.5, 1.0, 1.5])
    reservation = None
    try:
        reservation = ledger.reserve(name, ("small",), upper)
        yield
        if rng.random() < 0.4:
            upper = reservation.upper_usd * rng.choice([0.5, 2.0])
            if not ledger.top_up(reservation, upper):
                raise BudgetExhausted("refused")
            upper = reservation.upper_usd
            yield
        world.billed += real  # the call is made: from here on the money is gone
        world.excess += max(real - reservation.upper_usd, 0.0)
        yield
        if rng.random() < 0.1:
            ledger.settle_without_row(reservation, real)
        else:
            ledger.settle(reservation, a_row(name, cost_usd=real), None)
    except BudgetExhausted:
        world.refused += 1
        if reservation is not None:
            ledger.settle_without_row(reservation, 0.0)
    except StoreError:
        world.faults += 1  # the run ends on it: whatever was open is charged by the next one


class OutcomeModel:
    """Units in any order over one store, with runs that die and begin again."""

    def __init__(self, store, cap, rng):
        self.store, self.cap, self.rng = store, cap, rng
        self.billed = self.excess = 0.0
        self.refused = self.faults = self.deaths = 0
        self.begin()

    def begin(self):
        self.ledger = Ledger(self.store, ProfileLimits(budget_usd=self.cap))

    def play(self, n_units):
        waiting = [f"q{i}" for i in range(n_units)]
        under_way = []
        while waiting or under_way:
            if waiting and (not under_way or self.rng.random() < 0.5):
                name = waiting.pop()
                under_way.append(unit(self, name, self.rng))
            faults = self.faults
            one = self.rng.choice(under_way)
            if next(one, "over") == "over":
                under_way.remove(one)
            if self.faults > faults or self.rng.random() < 0.03:
                self.deaths += 1
                under_way = []
                self.begin()
            self.check()

    def check(self):
        committed = self.store.committed_usd()
        assert committed <= self.cap + self.excess + 1e-9
        assert abs(self.ledger.committed_usd - committed) < 1e-9
        if isinstance(self.store, MemoryStore):
            unsettled = sum(upper for upper, settled in self.store.entries.values() if settled is None)
            assert abs(self.ledger.reserved_usd - unsettled) < 1e-9
        assert self.billed <= committed + self.excess + 1e-9  # nothing is called that is not on the ledger


def test_ten_thousand_interleavings_with_faults_never_overspend():
    seen = Counter()
    for seed in range(INTERLEAVINGS):
        rng = random.Random(seed)
        rate = rng.choice([0.0, 0.0, 0.05])
        store = MemoryStore(lambda rng=rng, rate=rate: rng.random() < rate)
        world = OutcomeModel(store, rng.random() * 4, rng)
        world.play(rng.randrange(1, 9))
        assert store.abandon_open() == 0  # nothing dangles
        seen.update(refused=world.refused > 0, faults=world.faults > 0, deaths=world.deaths > 0, excess=world.excess > 0)
    assert all(seen[what] > 500 for what in ("refused", "faults", "deaths", "excess")), seen


def test_the_real_store_gives_the_same_ledger(tmp_path):
    for seed in range(40):
        rng = random.Random(seed)
        with ObservationStore.create(tmp_path / f"{seed}.db", an_identity()) as store:
            world = OutcomeModel(store, rng.random() * 4, rng)
            world.play(8)
            world.check()


@pytest.mark.parametrize("seed", range(20))
def test_real_threads_never_overspend_either(seed):
    store = MemoryStore()
    ledger = Ledger(store, ProfileLimits(budget_usd=3.0))
    barrier = threading.Barrier(8)
    most = []

    def work(number):
        rng = random.Random(seed * 100 + number)
        barrier.wait()
        for i in range(30):
            try:
                reservation = ledger.reserve(f"q{number}-{i}", ("small",), rng.random() * 0.5)
            except BudgetExhausted:
                pass
            else:
                ledger.top_up(reservation, reservation.upper_usd * 1.5)
                ledger.settle(reservation, a_row(f"q{number}-{i}", cost_usd=rng.random() * reservation.upper_usd), None)
            most.append(ledger.committed_usd)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) <= 3.0 + 1e-9
    assert store.committed_usd() <= 3.0 + 1e-9

"""What a session's docstring promises: everything that changes is read and written with its lock held."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from kit.tables import random_table

from vinelm.clock import VirtualClock
from vinelm.controller import InFlightLoadMonitor, Planner, Session
from vinelm.objective import Objective
from vinelm.requests.protocols import Invocation
from vinelm.rows.observation import Usage

EACH = Objective(maximize="accuracy", max_cost_usd=10.0, cost_budget="per_request")
CHANGING = ("_chosen", "_accounted", "_inherited_usd", "_elapsed_s", "_edge", "steps", "invocations", "spent_usd")


class OwnedLock:
    """A lock that knows who holds it."""

    def __init__(self):
        self._lock = threading.Lock()
        self.owner = None

    def __enter__(self):
        self._lock.acquire()
        self.owner = threading.get_ident()

    def __exit__(self, *raised):
        self.owner = None
        self._lock.release()


class Watched(Session):
    """Notes every access to what changes by a thread that does not hold the lock."""

    breaches = None

    def __getattribute__(self, name):
        if name in CHANGING:
            self.look(name)
        return super().__getattribute__(name)

    def __setattr__(self, name, value):
        if name in CHANGING:
            self.look(name)
        super().__setattr__(name, value)

    def look(self, name):
        if self.breaches is not None and self._lock.owner != threading.get_ident():
            self.breaches.append(name)


def ran(prefix, failure=None):
    usage = Usage(model=prefix[-1], cost_usd=0.001, latency_s=1.0)
    stage = "generate" if len(prefix) == 1 else "repair"
    return Invocation(stage=stage, prefix=prefix, latency_s=1.0, usages=(usage,), failure=failure)


@pytest.fixture
def planner():
    return Planner(random_table(3, n_requests=60, n_models=3, depth=3).annotate())


def request(session, i):
    """What a request does, some of it failing, from whatever thread."""
    prefix = () if i % 3 else ("m1",)
    path = (*prefix, session.next_model("repair" if prefix else "generate", prefix))
    if i % 5 == 0:
        session.interrupted(path)
    session.record(ran(path, "timeout" if i % 4 == 0 else None))
    session.should_continue(path, False, {})
    session.resumed(("m2", "m0"), (0.5, None))
    session.elapsed_s()
    session.trace(), session.last_step(), session.explain(), len(session.decisions)


def test_nothing_that_changes_is_touched_without_the_lock(planner):
    session = Watched(planner, EACH, clock=VirtualClock(), load=InFlightLoadMonitor(clock=VirtualClock()))
    session._lock, session.breaches = OwnedLock(), []
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: request(session, i), range(96)))
    assert session.breaches == []


@pytest.mark.long
def test_what_many_threads_did_is_all_counted(planner):
    session = Session(planner, EACH, clock=VirtualClock())
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: request(session, i), range(160)))
    assert len(session.invocations) == 160
    assert session.spent_usd == pytest.approx(0.16)
    inherited = 0.5 + planner.annotated.cost_usd[planner.trie.node(("m2", "m0"))]
    inherited += planner.annotated.cost_usd[planner.trie.node(("m1",))]
    assert session.guard.spent_usd <= 0.16 + inherited + 1e-9

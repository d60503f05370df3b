"""The file that records a verification or a recording of tool calls: each served request and its cost."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from vinelm.errors import ConfigError
from vinelm.requests.protocols import CallGuard
from vinelm.running.crew import Crew
from vinelm.running.request_ledger import RequestLedger
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.traces.databases import opening
from vinelm.traces.databases.address import StoreAddress
from vinelm.traces.served.served_requests import ServedRequest, ServedRequests
from vinelm.traces.store.tool_rows import tool_counts
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.outcomes import OUTCOME_ARRAYS


@contextmanager
def serving_record(path: Path | None, identity: StoreIdentity, limit_usd: float | None) -> Iterator[ServingRecord]:
    """Open the record of a verification or recording, locked inside the ``with`` block; an interrupted one is continued.

    Args:
        path: The store, created if missing; None stores nothing, so that an interrupted run starts over.
        identity: The identity of what is served. Stores with another identity are refused.
        limit_usd: The maximum cost, in dollars, including interrupted runs; None sets no limit.

    Raises:
        ConfigError: The file is the record of another verification.
        StoreError: The file is not such a record, or another process holds it.
    """
    with ExitStack() as stack:
        if path is None:
            path = Path(stack.enter_context(TemporaryDirectory())) / "served.db"
        store = stack.enter_context(opened_record(path, identity))
        stack.enter_context(store.exclusive())
        yield ServingRecord(store, limit_usd)


def opened_record(path: StoreAddress, identity: StoreIdentity) -> ObservationStore:
    """Return the store of one verification, recording or batch, created if missing. The caller closes it.

    Raises:
        ConfigError: the store is the record of something else; the message names what differs.
        StoreError: the file is not a store.
    """
    if not opening.exists(path):
        return ObservationStore.create(path, identity)
    store = ObservationStore.open(path)
    if store.identity.key != identity.key:
        store.close()
        raise ConfigError(f"{path}: is the record of something else ({_changed(store.identity, identity)}): name another")
    return store


def _changed(found: StoreIdentity, wanted: StoreIdentity) -> str:
    """Return the names of the parts in which two stores' identities differ, separated by commas."""
    names = sorted({*found.fingerprint, *wanted.fingerprint})
    parts = [name for name in names if found.fingerprint.get(name) != wanted.fingerprint.get(name)]
    fields = ("workflow", "dataset_digest", "catalog", "template", "is_simulated")
    parts += [name.partition("_")[0] for name in fields if getattr(found, name) != getattr(wanted, name)]
    return ", ".join(parts)


class ServingTask(NamedTuple):
    """A request to be served under a policy.

    Args:
        policy: The policy's name.
        request_id: The request.
        answer: Serves the request. Before every call, it asks the given guard, which stores the call's maximum cost.
        keep: Writes other facts about the request, in the transaction that stores the request.
    """

    policy: str
    request_id: str
    answer: Callable[[CallGuard], ServedRequest]
    keep: Callable[[ObservationStore], None] = lambda store: None


class ServingRecord:
    """Serves the requests of a verification within its budget, and stores their results. One process at a time.

    Attributes:
        served: The served requests, keyed by (policy, request id); at first, those served by interrupted runs.

    Args:
        store: The store; the caller holds its lock. Calls that an interrupted run left open are charged at their maximum
            cost.
        limit_usd: The maximum cost of the verification, in dollars; None sets no limit.
    """

    def __init__(self, store: ObservationStore, limit_usd: float | None) -> None:
        self._store, self._kept = store, ServedRequests(store)
        self._limit_usd = math.inf if limit_usd is None else limit_usd
        self._ledger = RequestLedger(store, limit_usd)
        self.served: dict[tuple[str, str], ServedRequest] = dict(self._kept.by_policy())

    @property
    def spent_usd(self) -> float:
        """Dollars spent, interrupted runs included; a call with an unknown outcome counts at its maximum cost."""
        return self._ledger.committed_usd

    def recorded_calls(self) -> int:
        """Return the number of stored tool calls."""
        with self._store.database.transaction() as connection:
            return tool_counts(connection).get("calls", 0)

    @property
    def is_exhausted(self) -> bool:
        """Whether the budget is used up."""
        return self.spent_usd >= self._limit_usd

    def serve_all(self, tasks: Iterable[ServingTask], *, workers: int = 1, on_done: Callable[[int], None]) -> None:
        """Serve the requests that are not stored yet, in order and several at a time.

        No more requests begin when the budget is used up or has refused a call. Requests in progress are always waited for. A
        request with a refused call is not stored.

        Args:
            tasks: The requests to serve. If it is an iterator, only one thread at a time advances it.
            workers: The maximum number of requests in progress at the same time, >= 1.
            on_done: Called with the number of stored requests whenever it grows, by the calling thread.

        Raises:
            KeyboardInterrupt: After the requests in progress have ended; a second one does not wait.
            VineLMError: The store or the configuration is invalid.
        """
        left = iter([task for task in tasks if (task.policy, task.request_id) not in self.served])
        told = len(self.served)

        def take() -> ServingTask | None:
            with crew.changed:
                return None if self.is_exhausted else next(left, None)

        def run(task: ServingTask) -> None:
            if self.serve(task) is None:
                crew.stop()

        def tell() -> None:
            nonlocal told
            while told < len(self.served):
                told += 1
                on_done(told)

        crew = Crew(take, run, size=workers, name="vinelm request")
        crew.work(tell)

    def serve(self, task: ServingTask) -> ServedRequest | None:
        """Serve a request, store it and return it; None if the budget refused a call, and nothing is stored then."""

        def keep(entry: int, served: ServedRequest) -> None:
            self._kept.add(entry, task.policy, served)
            task.keep(self._store)

        request = self._ledger.serve(task.request_id, task.answer, keep)
        if request is not None:
            self.served[task.policy, task.request_id] = request
        return request


def digest_of_plans(annotated: AnnotatedTrie) -> str:
    """Return a hash of all arrays of the trie that plans are computed from."""
    arrays = [*annotated.reading.plan_arrays, *(getattr(annotated.outcomes, name) for name in OUTCOME_ARRAYS)]
    return hashlib.sha256(b"".join(values.tobytes() for values in arrays)).hexdigest()

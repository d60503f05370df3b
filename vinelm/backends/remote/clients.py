"""SDK clients for requests other than model calls, such as batches: one for each server and key."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from vinelm.catalog import Model

C = TypeVar("C")


class Clients(Generic[C]):
    """A pool with one client per server and key. Thread-safe.

    ``make(model)`` makes a client. Models for which ``place(model)`` returns equal values share a client.
    """

    def __init__(self, make: Callable[[Model], C], place: Callable[[Model], Hashable]) -> None:
        self._make, self._place = make, place
        self._made: dict[Hashable, C] = {}
        self._lock = threading.Lock()

    def of(self, model: Model) -> C:
        """Return the model's client, which is made on first use."""
        place = self._place(model)
        with self._lock:
            if place not in self._made:
                # With the lock held: if two were made at once, one would never be closed.
                self._made[place] = self._make(model)
            return self._made[place]

    def close(self) -> None:
        """Close all clients; the next call makes new ones."""
        with self._lock:
            for made in self._made.values():
                client: Any = made
                client.close()
            self._made.clear()

"""A priority for each of many conversations, as two columns: a fleet has a hundred thousand of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from vinelm.errors import ConfigError
from vinelm.trie.arrays import FloatArray

SessionArray = np.ndarray[Any, np.dtype[np.uint64]]


class SessionPriorities(Mapping[int, float]):
    """Conversation to priority; a mapping that is made of arrays. Immutable.

    Args:
        session: numbers of conversations, shape (n,), as :attr:`FleetView.session` has them. Where one is repeated, its
            highest priority counts.
        priority: steps of priority, shape (n,).
    """

    __slots__ = ("priority", "session")

    def __init__(self, session: SessionArray, priority: FloatArray) -> None:
        order = np.argsort(session)
        sorted_session, sorted_priority = session[order], np.asarray(priority, np.float64)[order]
        first = np.flatnonzero(np.diff(sorted_session, prepend=~sorted_session[:1]) != 0)
        self.session = sorted_session[first]
        self.priority = np.maximum.reduceat(sorted_priority, first) if len(first) else sorted_priority
        self.session.flags.writeable = self.priority.flags.writeable = False

    @classmethod
    def of(cls, given: Mapping[int, float]) -> SessionPriorities:
        """Return the priorities of a mapping.

        Raises:
            ConfigError: a key is no number of a conversation, or a value is no number.
        """
        if isinstance(given, SessionPriorities):
            return given
        try:
            return cls(np.array(list(given), np.uint64), np.array([float(value) for value in given.values()]))
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"orders: sessions has no numbers of conversations with priorities: {error}") from error

    def __getitem__(self, session: int) -> float:
        if not 0 <= session < 2**64:
            raise KeyError(session)
        place = int(np.searchsorted(self.session, np.uint64(session)))
        if place == len(self.session) or int(self.session[place]) != session:
            raise KeyError(session)
        return float(self.priority[place])

    def __iter__(self) -> Iterator[int]:
        return iter(self.session.tolist())

    def __len__(self) -> int:
        return len(self.session)

    def __add__(self, other: SessionPriorities) -> SessionPriorities:
        """Return the sums; a conversation that one of them lacks has 0 there."""
        if not len(self) or not len(other):
            return self if len(self) else other
        if np.array_equal(self.session, other.session):
            return SessionPriorities(self.session, self.priority + other.priority)
        session, place = np.unique(np.concatenate([self.session, other.session]), return_inverse=True)
        totals = np.bincount(place, np.concatenate([self.priority, other.priority])).astype(float)
        return SessionPriorities(session, totals)

    def among(self, session: SessionArray) -> SessionPriorities:
        """Return those of these conversations only."""
        kept = np.isin(self.session, session)
        return SessionPriorities(self.session[kept], self.priority[kept])

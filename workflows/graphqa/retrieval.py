"""Finds the node named in a text, by its exact name or else by the most similar one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vinelm.workflows.graphqa.node import MOST_CHARS

Embed: TypeAlias = Callable[[Sequence[str]], Any]
LEAST_SIMILAR = 0.3
"""The minimum cosine similarity of a name to the text; less similar names do not match."""
CACHED_TEXTS = 4096


class Names:
    """Finds the ids of nodes by their names.

    Args:
        named: (name, id) of every node. If several nodes have the same name, the first one is found.
        embed: Converts texts to vectors, the rows of a matrix; None compares names by their trigrams of characters (TF-IDF).
    """

    def __init__(self, named: Sequence[tuple[str, str]], embed: Embed | None = None) -> None:
        self._named = tuple(named)
        self._exact: dict[str, str] = {}
        self._folded: dict[str, str] = {}
        for name, key in named:
            self._exact.setdefault(name, key)
            self._folded.setdefault(name.casefold(), key)
        self.repeated = sum(count > 1 for count in Counter(name for name, _ in named).values())
        self._texts = tuple(self._exact)
        self._embed = embed
        self._found = lru_cache(CACHED_TEXTS)(self._find)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._named, self._embed)

    def exact(self, text: str) -> str | None:
        """Return the id of the node with this name, ignoring case if necessary; None if there is no such node."""
        return self._exact.get(text) or self._folded.get(text.strip().casefold())

    def find(self, text: str) -> str | None:
        """Return the id of the node with this name, or with the most similar name; None if no name is similar.

        Results of recent texts are cached.
        """
        return self.exact(text) or self._found(text[:MOST_CHARS])

    def nearest(self, text: str, most: int) -> list[str]:
        """Return the ``most`` names that are most similar to the text, the most similar first."""
        cosines = self._cosines(text[:MOST_CHARS])
        return [self._texts[place] for place in np.argsort(-cosines, kind="stable")[:most]]

    def _find(self, text: str) -> str | None:
        cosines = self._cosines(text)
        best = int(np.argmax(cosines))
        return self._exact[self._texts[best]] if cosines[best] >= LEAST_SIMILAR else None

    def _cosines(self, text: str) -> NDArray[np.float64]:
        if self._embed is not None:
            near: NDArray[np.float64] = self._rows @ _unit(np.asarray(self._embed([text]), dtype=float))[0]
            return near
        postings, weight_of = self._postings
        found = np.zeros(len(self._texts))
        trigrams = Counter(_trigrams(text))
        size, rarest = 0.0, float(np.log(1.0 + len(self._texts)))
        for trigram, count in trigrams.items():
            weight = count * weight_of.get(trigram, rarest)
            size += weight * weight
            if trigram in postings:
                places, weights = postings[trigram]
                found[places] += weight * weights
        cosines: NDArray[np.float64] = found / max(size**0.5, 1e-12)
        return cosines

    @cached_property
    def _rows(self) -> NDArray[np.float64]:
        assert self._embed is not None
        return _unit(np.asarray(self._embed(self._texts), dtype=float))

    @cached_property
    def _postings(self) -> tuple[dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]], dict[str, float]]:
        """Return two mappings from trigrams (three characters in a row): to the names that contain them, and to their weights.

        In the first mapping, a trigram has two arrays: the positions of the names that contain it, and its component in the
        unit vector of each of these names. The rarer a trigram, the larger is its weight.
        """
        listed = [Counter(_trigrams(name)) for name in self._texts]
        held = Counter(trigram for counts in listed for trigram in counts)
        weight_of = {trigram: float(np.log((1.0 + len(listed)) / count)) for trigram, count in held.items()}
        places: dict[str, list[int]] = {}
        shares: dict[str, list[float]] = {}
        for place, counts in enumerate(listed):
            weights = {trigram: count * weight_of[trigram] for trigram, count in counts.items()}
            size = sum(weight * weight for weight in weights.values()) ** 0.5 or 1.0
            for trigram, weight in weights.items():
                places.setdefault(trigram, []).append(place)
                shares.setdefault(trigram, []).append(weight / size)
        return {trigram: (np.array(places[trigram]), np.array(shares[trigram])) for trigram in places}, weight_of


def _trigrams(text: str) -> list[str]:
    padded = f"  {text.casefold().strip()} "
    return [padded[start : start + 3] for start in range(len(padded) - 2)]


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    units: NDArray[np.float64] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return units

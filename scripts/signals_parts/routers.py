"""Rivals that look at the request and make one call: a table of models by kind, and the nearest labelled requests by text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from science.scored_cascade import first_answers
from scipy import sparse
from signals_parts.record import Asked

from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.rivals import Evidence, PolicyChoice, PolicyResult
from vinelm.trie.arrays import FloatArray

PRIOR = 8.0
"""So many requests the prior of a cell of the table counts as."""
NEIGHBOURS, PRIOR_OF_NEIGHBOURS = 20, 10.0
PRICES = (0.0, *np.geomspace(1.0, 1e6, 61).tolist())
"""Accuracy that a dollar has to buy: each makes one policy."""
_WORD = re.compile(r"[a-z]{2,}|\d+")
_OTHER = "other"


@dataclass(frozen=True, eq=False)
class Labelled:
    """First answers in rows, (requests, systems): right and dollars, NaN where a system was not asked."""

    request_ids: tuple[str, ...]
    right: FloatArray
    cost_usd: FloatArray

    @classmethod
    def of(cls, evidence: Evidence) -> Labelled:
        """Those of the rows."""
        answers, column = first_answers(evidence.rows), {name: m for m, name in enumerate(evidence.systems)}
        right, cost = np.full((2, len(answers), len(column)), np.nan)
        for r, by_model in enumerate(answers.values()):
            for name, row in by_model.items():
                right[r, column[name]], cost[r, column[name]] = float(row.success or 0.0), row.cost_usd
        return cls(tuple(answers), right, cost)

    @cached_property
    def means(self) -> tuple[FloatArray, FloatArray]:
        """Accuracy and dollars of each system, (systems,): shrunk by one right and one wrong answer; infinite if not seen."""
        seen = ~np.isnan(self.right)
        count = seen.sum(axis=0)
        right = (np.nansum(self.right, axis=0) + 1.0) / (count + 2.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return right, np.where(count > 0, np.nansum(self.cost_usd, axis=0) / count, np.inf)


@dataclass(frozen=True, eq=False)
class RoutedPolicy:
    """One call of the system that is worth most at a price of a dollar."""

    router: KindTable | KnnRouter
    labelled: Labelled
    systems: tuple[str, ...]
    price: float

    def run(self, table: OutcomeTable) -> PolicyResult:
        """See :meth:`AnswerPolicy.run`."""
        right, cost = self.router.said(self.labelled, table.request_ids)
        at = (np.arange(len(table)), table.columns(self.systems)[worth_most(right, cost, self.price)])
        return PolicyResult(table.success[at].astype(np.float64), table.cost_usd[at])


@dataclass(frozen=True, eq=False)
class RoutedChooser:
    """The policies of all prices, with what the labelled requests promise of them: (prices,) each."""

    policies: Sequence[RoutedPolicy]
    accuracy: FloatArray
    cost_usd: FloatArray

    @classmethod
    def of(cls, router: KindTable | KnnRouter, evidence: Evidence) -> RoutedChooser:
        """Every price, tried on the labelled requests themselves (each without its own label, for neighbours)."""
        labelled = Labelled.of(evidence)
        right, cost = router.said(labelled, labelled.request_ids)
        picked = [worth_most(right, cost, price) for price in PRICES]
        rows = np.arange(len(labelled.request_ids))
        return cls(
            [RoutedPolicy(router, labelled, evidence.systems, price) for price in PRICES],
            np.array([right[rows, one].mean() for one in picked]),
            np.array([cost[rows, one].mean() for one in picked]),
        )

    def choose(self, max_cost_usd: float) -> PolicyChoice:
        """See :meth:`Chooser.choose`."""
        fits = self.cost_usd <= max_cost_usd
        key = np.where(fits, -self.accuracy, 2.0) if fits.any() else self.cost_usd
        best = int(np.lexsort((self.cost_usd, key))[0])
        return PolicyChoice(
            policy=self.policies[best],
            promised_accuracy=float(self.accuracy[best]),
            promised_cost_usd=float(self.cost_usd[best]),
            words=f"{1 / max(self.policies[best].price, 1e-9):.3g} dollars for a right answer",
        )


@dataclass(frozen=True)
class KindTable:
    """The best single system for each kind of request, by a table that is shrunk to the system's accuracy on all kinds."""

    asked: Asked
    name: str = "kind_table"

    def fit(self, evidence: Evidence) -> RoutedChooser:
        """See :meth:`Method.fit`."""
        return RoutedChooser.of(self, evidence)

    def said(self, labelled: Labelled, request_ids: Sequence[str]) -> tuple[FloatArray, FloatArray]:
        """P(right) and dollars of each system for each request, (requests, systems)."""
        kinds = np.array([self.asked.kinds.get(name, _OTHER) for name in labelled.request_ids])
        right, cost = labelled.means
        table = {}
        for kind in np.unique(kinds):
            own, usd = labelled.right[kinds == kind], labelled.cost_usd[kinds == kind]
            count = (~np.isnan(own)).sum(axis=0)
            # How much easier the kind is than all: over all systems together, which were asked about it in unlike numbers.
            expected = np.where(np.isnan(own), 0.0, right)
            easier = (np.nansum(own) + PRIOR) / (expected.sum() + PRIOR)
            prior = np.clip(right * easier, 0.02, 0.98)
            known = np.where(np.isfinite(cost), cost, 0.0)
            dollars = (np.nansum(usd, axis=0) + PRIOR * known) / (count + PRIOR)
            table[str(kind)] = (np.nansum(own, axis=0) + PRIOR * prior) / (count + PRIOR), np.where(count, dollars, cost)
        found = [table.get(self.asked.kinds.get(name, _OTHER), labelled.means) for name in request_ids]
        return np.array([one for one, _ in found]), np.array([usd for _, usd in found])


@dataclass(frozen=True)
class KnnRouter:
    """The system that did best on the labelled requests whose text is nearest (cosine of TF-IDF)."""

    asked: Asked
    name: str = "knn"
    _kept: dict[tuple[int, tuple[str, ...]], tuple[FloatArray, FloatArray]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def fit(self, evidence: Evidence) -> RoutedChooser:
        """See :meth:`Method.fit`."""
        return RoutedChooser.of(self, evidence)

    def said(self, labelled: Labelled, request_ids: Sequence[str]) -> tuple[FloatArray, FloatArray]:
        """As :meth:`KindTable.said`, from the nearest labelled requests that the system was asked, but itself."""
        key = id(labelled), tuple(request_ids)
        if key not in self._kept:
            self._kept[key] = self._said(labelled, request_ids)
        return self._kept[key]

    def _said(self, labelled: Labelled, request_ids: Sequence[str]) -> tuple[FloatArray, FloatArray]:
        vectors = TfIdf.of([self.asked.texts.get(name, "") for name in labelled.request_ids])
        near = vectors.similarity([self.asked.texts.get(name, "") for name in request_ids])
        own = {name: r for r, name in enumerate(labelled.request_ids)}
        for row, name in enumerate(request_ids):
            if name in own:
                near[row, own[name]] = -1.0
        right, cost = labelled.means
        said = np.empty((len(request_ids), len(right)))
        for m, known in enumerate((~np.isnan(labelled.right)).T):
            at = np.flatnonzero(known)
            if not len(at):
                said[:, m] = right[m]
                continue
            k = min(NEIGHBOURS, len(at))
            some = np.argpartition(-near[:, at], k - 1, axis=1)[:, :k]
            weight = np.maximum(np.take_along_axis(near[:, at], some, axis=1), 0.0)
            labels = labelled.right[at, m][some]
            weight *= k / np.maximum(weight.sum(axis=1, keepdims=True), 1e-9)
            said[:, m] = ((weight * labels).sum(axis=1) + PRIOR_OF_NEIGHBOURS * right[m]) / (k + PRIOR_OF_NEIGHBOURS)
        return said, np.broadcast_to(cost, said.shape)


def worth_most(right: FloatArray, cost_usd: FloatArray, price: float) -> npt.NDArray[np.intp]:
    """The column with the highest P(right) less price times dollars in each row; the cheapest of equals."""
    known = np.isfinite(cost_usd)
    worth = np.where(known, right - (price + 1e-9) * np.where(known, cost_usd, 0.0), -np.inf)
    return np.asarray(worth.argmax(axis=1), np.intp)


@dataclass(frozen=True, eq=False)
class TfIdf:
    """Words of labelled texts, weighted by how rare they are; rows of length 1."""

    place: dict[str, int]
    rarity: FloatArray
    rows: sparse.csr_matrix

    @classmethod
    def of(cls, texts: Sequence[str]) -> TfIdf:
        """Count the words of the texts."""
        counts = [words(text) for text in texts]
        document = Counter(word for one in counts for word in one)
        place = {word: i for i, word in enumerate(sorted(document))}
        rarity = np.log((1.0 + len(texts)) / (1.0 + np.array([document[word] for word in place]))) + 1.0
        return cls(place, rarity, weighed(counts, place, rarity))

    def similarity(self, texts: Sequence[str]) -> FloatArray:
        """Cosine of each text with each labelled one, (texts, labelled)."""
        found = weighed([words(text) for text in texts], self.place, self.rarity) @ self.rows.T
        return np.asarray(found.toarray(), np.float64)


def weighed(counts: Sequence[Counter[str]], place: dict[str, int], rarity: FloatArray) -> sparse.csr_matrix:
    """One row of length 1 for each text, of the words that have a place."""
    cells = [(r, place[word], n) for r, one in enumerate(counts) for word, n in one.items() if word in place]
    row, column, count = (np.array([cell[i] for cell in cells], np.int64) for i in range(3))
    values = (1.0 + np.log(np.maximum(count, 1))) * rarity[column]
    found = sparse.csr_matrix((values, (row, column)), shape=(len(counts), len(place)))
    length = np.sqrt(np.asarray(found.multiply(found).sum(axis=1)).ravel())
    return sparse.csr_matrix(sparse.diags(1.0 / np.maximum(length, 1e-12)) @ found)


@lru_cache(maxsize=20_000)
def words(text: str) -> Counter[str]:
    """The words and numbers of a text, counted."""
    return Counter(_WORD.findall(text.lower()))

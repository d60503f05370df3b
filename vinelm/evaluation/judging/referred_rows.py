"""The rows of a store whose requests have no labels: scored by what runs today has answered, and by what persons say."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from scipy.special import betaincinv

from vinelm.rows.observation import Observation
from vinelm.trie.verdict import ByToday

if TYPE_CHECKING:
    from vinelm.traces import ObservationStore
    from vinelm.traces.served.replayed import SaidOf

Pair = tuple[str, str]
"""(request, digest of an answer)."""
AUDIT_LEVEL = 0.99
"""With which the audit bounds what is lost where answers are the same. With :data:`AUDITED_REACH` both hold with 95 %."""
AUDITED_REACH = 1.7507 / 1.6449
"""Ends of gains that hold with 96 %, over those with 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferredAnswer:
    """An answer beside that of what runs today.

    Attributes:
        unit: Number of the pair's request in the store of questions.
        is_today: It is today's own.
        is_same: It is the same as today's.
        is_audited: Persons are asked about it although it is the same.
        may_hide: Being the same does not imply an equal score for the answers to this request.
    """

    unit: int
    is_today: bool
    is_same: bool
    is_audited: bool = False
    may_hide: bool = False


@dataclass(frozen=True, eq=False)
class ReferredRows:
    """The rules by which rows without a score get one.

    Attributes:
        answers: What is known of each answer of a request without a label, by request and digest.
        said: What persons say, by (unit, digest).
        failed: Requests on which what runs today failed: no answer of theirs counts.
    """

    answers: Mapping[str, Mapping[str, ReferredAnswer]]
    said: Mapping[tuple[int, str], SaidOf]
    failed: Collection[str] = ()

    @classmethod
    def of_store(cls, store: ObservationStore) -> Self | None:
        """Return the rules of an open store; None if all of its requests have labels."""
        from vinelm.traces.served.replayed import ReplayRows

        known = ReplayRows(store)
        if known.is_new or "failed" not in (notes := known.notes()):
            return None
        units = {row["unit_id"]: row["request"] for row in known.units()}
        answers: dict[str, dict[str, ReferredAnswer]] = {}
        for row in known.compared():
            answers.setdefault(units[row["unit_id"]], {})[row["model"]] = ReferredAnswer(
                unit=row["unit_id"], is_today=row["is_today"], is_same=row["is_same"], is_audited=row["is_audited"],
                may_hide=row["may_hide"],
            )  # fmt: skip
        return cls(answers, known.said(), frozenset(notes["failed"]))

    def scored(self, rows: Iterable[Observation], *, is_hopeful: bool = False) -> list[Observation]:
        """Return the rows. A row without a score gets the score of its answer against today's.

        Args:
            rows: Those of the store. A row whose request has a label, or no answer of what runs today, stays as it is.
            is_hopeful: Take every answer that persons are still to be asked about for as good as today's.
        """
        return [self._scored(row, is_hopeful=is_hopeful) for row in rows]

    def _scored(self, row: Observation, *, is_hopeful: bool) -> Observation:
        if row.success is not None or row.failure is not None:
            return row
        if row.request_id in self.failed:
            return replace(row, success=False)
        pair = row.request_id, row.answer_digest or ""
        worth = self._worth.get(pair)
        if worth is None:
            return row
        if is_hopeful and pair in self.open:
            worth = self._today[row.request_id]
        return replace(row, success=bool(worth) if worth in (0.0, 1.0) else worth)

    @cached_property
    def _today(self) -> dict[str, float]:
        """The score of today's answer by request: 1 until persons say otherwise; of several questions the mean."""
        found = {}
        for request, answers in self.answers.items():
            said = [one.today for digest, about in answers.items() if (one := self.said.get((about.unit, digest)))]
            told = [score for score in said if score is not None]
            found[request] = sum(told) / len(told) if told else 1.0
        return found

    @cached_property
    def _worth(self) -> dict[Pair, float]:
        """The score of each answer."""
        found: dict[Pair, float] = {}
        for request, answers in self.answers.items():
            today = self._today[request]
            for digest, about in answers.items():
                said = self.said.get((about.unit, digest))
                if about.is_today:
                    worth = today
                elif said is not None:  # the difference is what persons said of these two; a skipped question counts as lost
                    known = None not in (said.today, said.other)
                    worth = min(max(today + (said.other or 0.0) - (said.today or 0.0), 0.0), 1.0) if known else 0.0
                else:
                    worth = today if about.is_same and not about.is_audited else 0.0
                found[request, digest] = worth
        return found

    @cached_property
    def open(self) -> frozenset[Pair]:
        """The answers that are not known to be as good as today's, and that no person has been asked about."""
        return frozenset(
            (request, digest)
            for request, answers in self.answers.items()
            for digest, about in answers.items()
            if not about.is_today and (about.is_audited or not about.is_same) and (about.unit, digest) not in self.said
        )

    @cached_property
    def asked(self) -> int:
        """How many questions persons have answered, skipped ones included."""
        return sum((about.unit, digest) in self.said for answers in self.answers.values() for digest, about in answers.items())

    @cached_property
    def hidden(self) -> float:
        """The most that an answer that is the same may lose on the mean, by those that persons were asked about.

        0 where the same has the same score; 1 where that is not sure and nobody was asked yet.
        """
        return self._hidden(is_hopeful=False)

    @cached_property
    def hidden_at_best(self) -> float:
        """:attr:`hidden` if all answers that persons are still to be asked about were as good as today's."""
        return self._hidden(is_hopeful=True)

    def _hidden(self, *, is_hopeful: bool) -> float:
        """The upper end of a binomial share (Clopper and Pearson 1934), every loss rounded up."""
        every = [(digest, about) for answers in self.answers.values() for digest, about in answers.items()]
        if not any(about.may_hide and about.is_same and not about.is_today for _, about in every):
            return 0.0
        said = [self.said.get((about.unit, digest)) for digest, about in every if about.is_audited]
        known = [one for one in said if one is not None]
        losses = [1.0 if one.today is None or one.other is None else max(one.today - one.other, 0.0) for one in known]
        lost, count = math.ceil(sum(losses)), len(said) if is_hopeful else len(known)
        return 1.0 if lost >= count else float(betaincinv(lost + 1, count - lost, AUDIT_LEVEL))

    @property
    def counts(self) -> ByToday:
        """How many requests have no label, and what persons have said of them, before plans are looked at."""
        requests = len(self.answers) + len(self.failed)
        return ByToday(requests=requests, asked=self.asked, failed=len(self.failed), hidden=self.hidden)

    @property
    def facts(self) -> dict[str, int]:
        """Provenance for ``meta["as_today"]``: how many requests have no label, and how many questions were answered."""
        return {"requests": len(self.answers) + len(self.failed), "asked": self.asked}

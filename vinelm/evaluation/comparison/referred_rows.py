"""Scores rows of requests without labels by comparing their answers with "today's answers", those of the current setup.

People decide about answers that differ.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy.special import betaincinv

from vinelm.evaluation.off_policy.intervals import effective_number
from vinelm.rows.observation import Observation

if TYPE_CHECKING:
    from vinelm.traces import ObservationStore
    from vinelm.traces.served.replayed import SaidOf

Pair = tuple[str, str]
"""(request, digest of an answer)."""
AUDIT_LEVEL = 0.99
"""Confidence of the audit's bound on the loss among equal answers, at one look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferredAnswer:
    """The comparison of an answer with today's answer, which is the current setup's answer to the same request.

    Attributes:
        unit: The number that identifies the answer's request in the store's table of questions to people.
        is_today: Whether it is today's answer itself.
        is_same: Whether it counts as equal to today's answer.
        is_audited: Whether people are asked to compare the answer with today's, although both count as equal.
        may_hide: Whether, for this request, answers that count as equal may still have different scores.
    """

    unit: int
    is_today: bool
    is_same: bool
    is_audited: bool = False
    may_hide: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether only a person can decide if the answer is as good as today's."""
        return not self.is_today and (self.is_audited or not self.is_same)

    @property
    def hides(self) -> bool:
        """Whether the answer may score differently from today's answer, although it counts as equal to today's answer.

        Always False for today's answer itself.
        """
        return self.may_hide and self.is_same and not self.is_today


@dataclass(frozen=True, eq=False)
class ReferredRows:
    """Scores recorded results that have no label, by comparing their answers with today's answer (the current setup's)
    to the same request.

    Attributes:
        answers: The comparison of each answer with today's, keyed by request id, then by the answer's digest.
        said: The scores that people gave, keyed by (``unit`` of the request, digest of the answer).
        failed: Ids of requests on which the current setup failed. Every answer to them scores 0.
        unlabelled: Ids of all requests without a label, including those without an answer yet.
        clusters: The digest of each request's prompt, keyed by the request's ``unit``. Requests with equal digests
            carry the same information.
        asked_now: Pairs (request id, digest of an answer) about which people are being asked now.
    """

    answers: Mapping[str, Mapping[str, ReferredAnswer]]
    said: Mapping[tuple[int, str], SaidOf]
    failed: Collection[str] = ()
    unlabelled: frozenset[str] = frozenset()
    clusters: Mapping[int, str] = field(default_factory=dict)
    asked_now: frozenset[Pair] = frozenset()

    @classmethod
    def of_store(cls, store: ObservationStore) -> Self | None:
        """Read the comparisons with today's answers from an open store; None if it has none, because labels score all
        requests.
        """
        from vinelm.traces.served.replayed import ReplayRows

        known = ReplayRows(store)
        if known.is_new or "failed" not in (notes := known.notes()):
            return None
        units = {row["unit_id"]: row for row in known.units()}
        answers: dict[str, dict[str, ReferredAnswer]] = {}
        for row in known.compared():
            answers.setdefault(units[row["unit_id"]]["request"], {})[row["model"]] = ReferredAnswer(
                unit=row["unit_id"], is_today=row["is_today"], is_same=row["is_same"], is_audited=row["is_audited"],
                may_hide=row["may_hide"],
            )  # fmt: skip
        asked = {(units[row["unit_id"]]["request"], row["model"]) for row in known.questions() if row["is_open"]}
        return cls(
            answers,
            known.said(),
            frozenset(notes["failed"]),
            frozenset(notes.get("unlabelled", ())).union(answers, notes["failed"]),
            {number: row["cluster"] for number, row in units.items()},
            frozenset(asked),
        )

    def scored(self, rows: Iterable[Observation], *, is_hopeful: bool = False) -> list[Observation]:
        """Return all rows. A row without a score gets the score that follows from the comparison of its answer with
        today's.

        Args:
            rows: The rows of the store. Rows with a score or a failure stay unchanged, and so do rows whose answer was
                not compared with today's. A row of a request on which the current setup failed scores 0.
            is_hopeful: Whether every answer on which people have not yet decided counts as equally good as today's;
                otherwise it counts as worse.
        """
        worth = self._worth(is_hopeful=is_hopeful)
        return [self._scored(row, worth) for row in rows]

    def _scored(self, row: Observation, worth: Mapping[Pair, float]) -> Observation:
        if row.success is not None or row.failure is not None:
            return row
        if row.request_id in self.failed:
            return replace(row, success=False)
        score = worth.get((row.request_id, row.answer_digest or ""))
        return row if score is None else replace(row, success=bool(score) if score in (0.0, 1.0) else score)

    def _worth(self, *, is_hopeful: bool) -> dict[Pair, float]:
        """Return the score of each answer, at most 1, keyed by (request id, digest of the answer).

        An answer's score is that of today's answer plus the difference that people found. If people have not decided yet, the
        difference is -1, or 0 with ``is_hopeful``. Today's answer gets the mean of the scores that people gave it, or 1 if they
        gave none. Its score is raised if another answer's score would otherwise be negative.
        """
        found: dict[Pair, float] = {}
        for request, answers in self.answers.items():
            said = [one.today for digest, about in answers.items() if (one := self.said.get((about.unit, digest)))]
            told = [score for score in said if score is not None]
            gains = {digest: self._gain(digest, about, is_hopeful=is_hopeful) for digest, about in answers.items()}
            today = max(sum(told) / len(told) if told else 1.0, *(-gain for gain in gains.values()))
            found |= {(request, digest): min(today + gain, 1.0) for digest, gain in gains.items()}
        return found

    def _gain(self, digest: str, about: ReferredAnswer, *, is_hopeful: bool) -> float:
        """Return the score of an answer minus that of today's answer, in [-1, 1].

        The result is -1 if people skipped the question. If they have not yet decided, it is -1, or 0 with
        ``is_hopeful``.

        Args:
            digest: The digest of the answer.
            about: The answer's comparison with today's.
            is_hopeful: See :meth:`scored`.
        """
        said = self.said.get((about.unit, digest))
        if said is not None:
            return -1.0 if said.today is None or said.other is None else said.other - said.today
        return -1.0 if about.is_unknown and not is_hopeful else 0.0

    @cached_property
    def open(self) -> frozenset[Pair]:
        """The answers, as (request id, digest), that only people can compare with today's and on which no person has
        decided yet.

        A skipped question counts as decided.
        """
        return frozenset(
            (request, digest)
            for request, answers in self.answers.items()
            for digest, about in answers.items()
            if about.is_unknown and (about.unit, digest) not in self.said
        )

    def holding_back(self, pairs: Iterable[Pair]) -> frozenset[Pair]:
        """Return the :attr:`open` answers, on which a person must decide, to certain requests.

        These are the requests on which an answer in ``pairs`` scores higher than today's. Such a gain counts only after people
        have decided on the request's open answers.
        """
        better = {
            request
            for request, digest in pairs
            if (about := self.answers.get(request, {}).get(digest)) and self._gain(digest, about, is_hopeful=False) > 0.0
        }
        return frozenset(pair for pair in self.open if pair[0] in better)

    @cached_property
    def asked(self) -> int:
        """Number of questions that people have answered, including skipped questions."""
        return sum((about.unit, digest) in self.said for answers in self.answers.values() for digest, about in answers.items())

    @property
    def may_hide(self) -> bool:
        """Whether a person might score any stored answer differently from today's answer, although the two count as equal."""
        return any(about.hides for answers in self.answers.values() for about in answers.values())

    def hidden(self, pairs: Iterable[Pair], *, is_hopeful: bool = False) -> float:
        """Return an upper bound on how much lower a plan's answers score, on average, than today's answers.

        Only answers that count as equal to today's are considered.

        The bound is the upper end of a confidence interval of a binomial share (Clopper and Pearson 1934), computed from those
        answers that people were asked about. Requests with the same prompt carry the same information, so that their effective
        number is used (Korn and Graubard 1998).

        Args:
            pairs: The plan's answers, as (request id, digest).
            is_hopeful: See :meth:`scored`.

        Returns:
            A share in [0, 1]: 0 if equal answers always have equal scores; 1 if their scores may differ and no person was asked
            yet.
        """
        every = [
            (about, self.said.get((about.unit, digest)))
            for request, digest in pairs
            if (about := self.answers.get(request, {}).get(digest)) is not None and about.hides
        ]
        if not every:
            return 0.0
        losses: dict[object, list[float]] = defaultdict(list)
        for about, said in every:
            if about.is_audited and (said is not None or is_hopeful):
                losses[self.clusters.get(about.unit, about.unit)].append(_loss(said))
        known = [loss for of_cluster in losses.values() for loss in of_cluster]
        count = effective_number(np.array([len(of_cluster) for of_cluster in losses.values()], np.float64))
        lost = math.ceil(count * sum(known) / len(known) - 1e-9) if known else 0
        return 1.0 if lost >= count else float(betaincinv(lost + 1, count - lost, AUDIT_LEVEL))

    @cached_property
    def digest(self) -> str:
        """A hash of everything that determines the scores of rows without a label. It changes with every score that
        people give.
        """
        answers = [
            [request, digest, *astuple(about)]
            for request, of_request in self.answers.items()
            for digest, about in of_request.items()
        ]
        said = [[unit, digest, one.today, one.other] for (unit, digest), one in self.said.items()]
        known = [sorted(answers), sorted(said, key=lambda one: one[:2]), sorted(self.failed), sorted(self.unlabelled)]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]

    @property
    def facts(self) -> dict[str, int]:
        """The numbers of requests without a label and of answered questions, as stored in a trie's
        ``meta["as_today"]``.
        """
        return {"requests": len(self.unlabelled), "asked": self.asked}


def _loss(said: SaidOf | None) -> float:
    """Return by how much people scored an answer lower than today's answer, in [0, 1].

    The result is 1 if people skipped the question, and 0 if they were not asked.
    """
    if said is None:
        return 0.0
    return 1.0 if said.today is None or said.other is None else max(said.today - said.other, 0.0)

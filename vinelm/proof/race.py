"""Tests several candidate plans together: decides the next call or question to people, and which plan is proven.

Every candidate has a separate test (a ``Wealth``, see `wealth.py`). The requests are in a fixed order, and the test uses
only the first of them, up to the first request that is incomplete for this candidate. So the guarantee holds at any time,
whichever candidate gets the next question; the candidates share the error probability. Labels go to the candidate that
saves the most money per label it still needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from vinelm.errors import ConfigError
from vinelm.proof.candidates import OUT_OF_REACH, Candidate
from vinelm.proof.moves import Ask, Compare, Ended, Move, Question, Standing
from vinelm.proof.wealth import JUDGE_SHARE, Wealth

MARGINS = (0.01, 0.015, 0.02, 0.03, 0.05)
HEAD_START = 3.0
"""Labels added to those still needed when candidates are compared, so that a very small number does not decide alone."""


@dataclass(eq=False)
class _Entrant:
    """A candidate in the race, with everything known about the candidate.

    Attributes:
        plan: The candidate.
        wealth: The test by bets, for each margin, that the candidate loses less than this margin.
        at: The index of the first cluster (or request, without clusters) that still lacks an answer or a label.
        same: Whether the answer equals today's, keyed by the index of each answered request.
        scores: The candidate's score minus today's according to people, keyed by request; -1 for skipped questions.
        verdicts: The judge's verdict in [-1, 1], keyed by request.
        skipped: The indices of the requests whose questions were skipped.
        differing, requests, lost: Over the clusters before ``at``: number of differing answers, of requests, and of
            skipped questions.
    """

    plan: Candidate
    wealth: Wealth
    at: int = 0
    same: dict[int, bool] = field(default_factory=dict)
    scores: dict[int, float] = field(default_factory=dict)
    verdicts: dict[int, float] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    differing: int = 0
    requests: int = 0
    lost: int = 0


class Race:
    """A joint test of several candidate plans. Decides the next move (a call or a question) until some candidate is
    proven to lose less than the allowed loss, or no candidate can be proven.

    The race is deterministic: the same events lead to the same state in any order. Events of requests that a candidate
    has not reached yet are kept until it reaches them. Labels that were not asked for (of equal answers outside an
    audit, or of requests skipped because of the judge's verdict) are counted, but not used, because they would bias the
    mean.

    Args:
        candidates: The plans to test, chosen on other requests (:func:`choose_candidates`). Without any, the race ends
            at once.
        requests: The number of requests. Requests are numbered from 0, in an order that was shuffled once.
        labels: The maximum number of questions that people will answer; None means no limit.
        max_loss: The loss that has to be excluded, as a fraction. Smaller losses are reported if they are excluded,
            too.
        margins: Further losses that are tested, as fractions, to report the smallest that can be excluded.
        alpha: The allowed probability of a false proof, over all candidates and attempts.
        attempt: The number of the attempt, from 1, if a proof is tried repeatedly; attempt k gets 6 / (pi k)² of alpha,
            so that the sum stays within alpha. None means that this is the only attempt, with all of alpha.
        audit: The share of equal answers that people are asked to compare nevertheless, as an audit. Must be above 0 if
            equal answers may have different scores.
        judge: Whether a judge model compares differing answers (:meth:`judged`), which saves labels if its verdicts are
            good.
        clusters: For each request, the name of its cluster, such as a conversation or requests with equal prompts. A
            cluster counts once, with the mean score of its requests and the mean of their weights. Clusters come in the
            order of their first requests, which must not depend on their sizes.
        weights: The weight of each request, for samples in which some requests are more frequent than in service: the
            true frequency divided by the frequency in the sample, about 1 on average.
        max_weight: The largest weight possible in the sample, which has to be known before it is drawn.
        seed: The seed of the draws: which equal answers are audited, and for which differing answers people are not
            asked because of the judge's verdict.

    Raises:
        ConfigError: a setting is impossible; the methods raise it, too, for an unknown candidate, a request out of
            range, a score out of [-1, 1], or two events that contradict one another.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        requests: int,
        labels: int | None = None,
        max_loss: float = 0.03,
        margins: Sequence[float] = MARGINS,
        alpha: float = 0.05,
        attempt: int | None = 1,
        audit: float = 0.0,
        judge: bool = False,
        clusters: Sequence[object] | None = None,
        weights: Sequence[float] | None = None,
        max_weight: float | None = None,
        seed: int = 0,
    ) -> None:
        self.margins = sorted({float(max_loss), *map(float, margins)})
        _check(
            all(0.0 < m < 1.0 for m in self.margins),
            f"max_loss and margins are fractions above 0 and below 1, not {self.margins}",
        )
        _check(requests >= 0, f"requests is {requests!r}: give 0 or more")
        _check(labels is None or labels >= 0, f"labels is {labels!r}: give 0 or more, or None for no limit")
        _check(0.0 < alpha < 1.0, f"alpha is {alpha!r}: give a probability above 0 and below 1, such as 0.05")
        _check(attempt is None or attempt >= 1, f"attempt is {attempt!r}: count from 1")
        _check(0.0 <= audit <= 1.0, f"audit is {audit!r}: give the share of the same answers to ask, from 0 to 1")
        names = [one.name for one in candidates]
        _check(len(set(names)) == len(names), f"candidates have the same name: {names}")
        for one in candidates:
            _check(0.0 < one.differing < 1.0, f"candidate {one.name!r}: differing is {one.differing!r}: give a share in (0, 1)")
            _check(math.isfinite(one.saved), f"candidate {one.name!r}: saved is {one.saved!r}")
        self.requests, self.labels, self.max_loss = requests, labels, float(max_loss)
        self.audit, self.judge = audit, judge
        # With several candidates one may be proven by chance, so alpha is divided among them. Attempt a on the same data gets
        # the part 6 / (pi a)^2 of it: these parts add up to 1, however many attempts there will be.
        self.threshold = math.log(max(1, len(names)) / alpha) - (math.log(6.0 / (math.pi * attempt) ** 2) if attempt else 0.0)
        if clusters is None:
            self._members: list[list[int]] = [[request] for request in range(requests)]
        else:
            _check(len(clusters) == requests, f"clusters has {len(clusters)} entries for {requests} requests")
            groups: dict[object, list[int]] = {}
            for request, cluster in enumerate(clusters):
                groups.setdefault(cluster, []).append(request)
            self._members = list(groups.values())
        given = np.ones(requests) if weights is None else np.asarray(weights, dtype=float)
        _check(given.shape == (requests,), f"weights has {given.size} entries for {requests} requests")
        _check(
            (weights is None) == (max_weight is None), "weights and max_weight go together: state the largest possible weight"
        )
        heaviest = 1.0 if max_weight is None else float(max_weight)
        fits = bool(np.all((given > 0.0) & (given <= heaviest))) and math.isfinite(heaviest)
        _check(fits, "weights must be above 0, and at most max_weight: leave out what has no weight, cut what has too much")
        self._weights: list[float] = given.tolist()
        # Drawn for all requests before any answer is known: what is audited, or left to the judge, must not depend on answers.
        # More requests do not change the draws of those that are there: a race over a stream begins again as it grows.
        self._audited: list[bool] = (np.random.default_rng(seed).random(requests) < audit).tolist()
        self._drawn: list[bool] = (np.random.default_rng([seed, 1]).random(requests) < JUDGE_SHARE).tolist()
        self._asked = 0
        self._entrants = {
            one.name: _Entrant(
                one,
                Wealth(
                    np.array(self.margins),
                    one.differing,
                    lowest=1.0 / audit if audit else 1.0,
                    heaviest=heaviest,
                    audit=audit,
                    judged=judge,
                ),
            )
            for one in candidates
        }

    def next(self) -> Move:
        """Return the next move: a call, a question, or the end. It stays the same until an event is recorded."""
        return next(self._moves())

    def aim(self, max_loss: float) -> None:
        """Change the loss to exclude: from now on, try to prove that candidates lose less than ``max_loss``, which must
        be one of the margins.

        This does not weaken the guarantee, which covers all margins at any time.
        """
        _check(max_loss in self.margins, f"max_loss {max_loss!r} is none of the margins {self.margins}")
        self.max_loss = float(max_loss)

    def upcoming(self, count: int) -> list[Move]:
        """Return up to ``count`` moves (calls, or questions to people) that can be made in parallel; at least one.

        The first is the next move, the others are later moves of the same candidate. Answers to later questions are wasted if
        the race ends earlier or permanently turns to another candidate.
        """
        return list(islice(self._moves(), max(1, count)))

    def answered(self, candidate: str, request: int, same: bool) -> None:
        """Record whether the candidate's answer to the request with index ``request`` counts as the same as today's."""
        entrant = self._entrant(candidate, request)
        _check(isinstance(same, bool | np.bool_), f"request {request} of {candidate!r}: same is {same!r}, not True or False")
        known = entrant.same.setdefault(request, bool(same))
        _check(known == same, f"request {request} of {candidate!r}: same was {known}, and is {same} now")
        self._advance(entrant)

    def labelled(self, candidate: str, request: int, score: float, *, counted: bool = True) -> None:
        """Record how people scored the candidate's answer to a request, compared with today's.

        Args:
            candidate: The name of the candidate whose answer was compared.
            request: The index of the request.
            score: In [-1, 1]: 1 if only the candidate's answer is right, -1 if only today's is, 0 if both or neither
                are. Graded scores, and means over people who disagree, lie between.
            counted: Whether the label uses up one of the ``labels`` that people will give. False if they compared the
                same two answers for another candidate.
        """
        entrant = self._entrant(candidate, request)
        _check(-1.0 <= score <= 1.0, f"request {request} of {candidate!r}: the score is {score!r}, not within [-1, 1]")
        _check(request not in entrant.skipped, f"request {request} of {candidate!r}: it was skipped, which is final")
        known = entrant.scores.get(request)
        _check(
            known is None or known == score, f"request {request} of {candidate!r}: the score was {known}, and is {score} now"
        )
        if known is None:
            entrant.scores[request] = float(score)
            self._asked += counted
            self._advance(entrant)

    def skipped(self, candidate: str, request: int) -> None:
        """Record that people will not compare the candidate's answer to this request. The question then counts as a
        label with the worst score, -1.

        With a better score, skipping hard comparisons could lead to a false proof. Do not call this for a question that
        may still be answered: such a question stays open, and :meth:`upcoming` returns other questions meanwhile.
        """
        entrant = self._entrant(candidate, request)
        if request not in entrant.skipped:
            _check(request not in entrant.scores, f"request {request} of {candidate!r}: it was labelled, and cannot be skipped")
            entrant.skipped.add(request)
            entrant.scores[request] = -1.0
            self._asked += 1
            self._advance(entrant)

    def judged(self, candidate: str, request: int, verdict: float | None) -> None:
        """Record a judge model's verdict on a request, in [-1, 1]: above 0 if the candidate's answer is better than
        today's.

        None means that the judge failed, and counts as 0. A wrong or biased judge makes more labels necessary, but does
        not weaken the guarantee.
        """
        entrant = self._entrant(candidate, request)
        _check(self.judge, "the race has no judge: Race(..., judge=True)")
        value = 0.0 if verdict is None else verdict
        _check(-1.0 <= value <= 1.0, f"request {request} of {candidate!r}: the verdict is {verdict!r}, not within [-1, 1]")
        known = entrant.verdicts.setdefault(request, float(value))
        _check(known == value, f"request {request} of {candidate!r}: the verdict was {known}, and is {value} now")
        self._advance(entrant)

    def standings(self) -> list[Standing]:
        """Return the state of the test for each candidate, in the order of the candidates."""
        return [self._standing(entrant) for entrant in self._entrants.values()]

    def _standing(self, entrant: _Entrant) -> Standing:
        wealth = entrant.wealth
        return Standing(
            candidate=entrant.plan.name,
            saved=entrant.plan.saved,
            requests=entrant.requests,
            differing=entrant.differing,
            labels=wealth.asked,
            skipped=entrant.lost,
            diff=wealth.diff,
            log_wealth=dict(zip(self.margins, wealth.log.tolist(), strict=True)),
            threshold=self.threshold,
            proven=self._proven(entrant),
            needed={margin: wealth.needed(at, self.threshold) for at, margin in enumerate(self.margins)},
            audit=self.audit,
            judge_r2=wealth.judge_r2 if self.judge else None,
            judge_used=wealth.uses_judge,
        )

    def _proven(self, entrant: _Entrant) -> float | None:
        """Return the smallest loss of accuracy that is excluded for this candidate; None if none is excluded.

        Only the losses in :attr:`margins` are tested. A loss counts as excluded if all larger ones are excluded, too.
        """
        smallest, highest = None, entrant.wealth.highest
        for at in reversed(range(len(self.margins))):
            if highest[at] < self.threshold:
                break
            smallest = self.margins[at]
        return smallest

    def _moves(self) -> Iterator[Move]:
        proven = [(one.plan.saved, one.plan.name, margin) for one in self._entrants.values() if (margin := self._proven(one))]
        # One proof ends the race: people's labels are the scarce good, and a further plan would have to save more than it costs
        # to prove.
        proven = [one for one in proven if one[2] <= self.max_loss]
        if proven:
            _, name, margin = max(proven, key=lambda one: one[0])
            yield Ended("proven", name, margin)
            return
        left = math.inf if self.labels is None else self.labels - self._asked
        if left <= 0:
            yield Ended("labels" if self._entrants else "hopeless")
            return
        at = self.margins.index(self.max_loss)
        running = [one for one in self._entrants.values() if one.at < len(self._members)]
        # Candidates are given up if the remaining labels could hardly prove them even if they lost nothing.
        found = [one for one in running if one.wealth.needed(at, self.threshold, lossless=True) <= OUT_OF_REACH * left]
        if not found:
            yield Ended("requests" if self._entrants and not running else "hopeless")
            return
        leader = found[0]
        if len(found) > 1:
            # All labels go to one candidate at a time: spread over several, they would prove none of them. Candidates compete
            # by the dollars that a label may save; ties go to the first.
            leader = max(found, key=lambda one: one.plan.saved / (one.wealth.needed(at, self.threshold) + HEAD_START))
        questions = 0
        for unit in range(leader.at, len(self._members)):
            for move in self._lacking(leader, unit):
                questions += isinstance(move, Question)
                if questions > left:
                    return
                yield move

    def _lacking(self, entrant: _Entrant, unit: int) -> Iterator[Move]:
        """Yield the moves (calls, judge's comparisons, questions) that the candidate still needs for a cluster of requests.

        ``unit`` is the index of the cluster or, if the requests are not grouped, of a request.
        """
        name, used = entrant.plan.name, entrant.wealth.uses_judge
        for request in self._members[unit]:
            if (same := entrant.same.get(request)) is None:
                yield Ask(name, request)
            elif same:
                if self._audited[request] and request not in entrant.scores:
                    yield Question(name, request, 1.0 / self.audit, audit=True)
            elif self.judge and request not in entrant.verdicts:
                yield Compare(name, request)
            elif request not in entrant.scores and not (used and not self._drawn[request]):
                yield Question(name, request, 1.0 / JUDGE_SHARE if used else 1.0)

    def _advance(self, entrant: _Entrant) -> None:
        """Add requests (or clusters) to the candidate's test in order, until one still lacks an answer or a label."""
        wealth = entrant.wealth
        # In the order of the units, which was fixed beforehand: an incomplete unit holds up those after it. If easy units could
        # go first, the order would depend on the answers, and the guarantee would be lost.
        while entrant.at < len(self._members) and next(self._lacking(entrant, entrant.at), None) is None:
            members = self._members[entrant.at]
            if len(members) == 1 and entrant.same[members[0]] and not self._audited[members[0]]:  # as most units are
                entrant.at += 1
                entrant.requests += 1
                wealth.take(0.0, self._weights[members[0]], differs=False, told=0)
                continue
            total = sum(self._weights[request] for request in members)
            entrant.at += 1
            entrant.requests += len(members)
            differing = [request for request in members if not entrant.same[request]]
            entrant.differing += len(differing)
            audited = [request for request in members if entrant.same[request] and self._audited[request]]
            # An audited answer represents the 1 / audit equal answers that nobody was asked about.
            score = sum(self._weights[one] * entrant.scores[one] for one in audited) / (self.audit or 1.0) / total
            parts = {one: self._weights[one] / total for one in differing}
            weight = total / len(members)
            if self.judge and differing:
                told = [request for request in differing if self._drawn[request] or not wealth.uses_judge]
                scores = {one: entrant.scores[one] for one in told}
                judged = [(entrant.verdicts[one], scores.get(one), part) for one, part in parts.items()]
                wealth.take_judged(judged, weight, rest=score, told=len(audited))
            else:
                told = differing
                score += sum(part * entrant.scores[one] for one, part in parts.items())
                wealth.take(score, weight, differs=bool(differing), told=len(differing) + len(audited))
            told = told + audited
            entrant.lost += len(entrant.skipped.intersection(told))

    def _entrant(self, candidate: str, request: int) -> _Entrant:
        if candidate not in self._entrants:
            raise ConfigError(
                f"no candidate is named {candidate!r}: {', '.join(map(repr, self._entrants)) or 'there are none'}"
            )
        whole = isinstance(request, int | np.integer)
        _check(whole and 0 <= request < self.requests, f"request {request!r} is no number from 0 to {self.requests - 1}")
        return self._entrants[candidate]


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ConfigError(otherwise)

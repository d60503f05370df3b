"""The moves that a test of several candidate plans asks for (a question or a call), and the state of each candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

EndReason = Literal["proven", "labels", "requests", "hopeless"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A move: get the candidate's answer to the request with index ``request``, then call :meth:`Race.answered`."""

    candidate: str
    request: int


@dataclass(frozen=True, slots=True)
class Compare:
    """A move: let a judge model compare the candidate's and today's answer to the request with index ``request``.

    Then call :meth:`Race.judged`.
    """

    candidate: str
    request: int


@dataclass(frozen=True, slots=True)
class Question:
    """A move: let a person compare the candidate's answer with today's, then call :meth:`Race.labelled` or
    :meth:`Race.skipped`.

    Attributes:
        candidate: The name of the candidate whose answer is compared.
        request: The index of the request.
        weight: Number of requests that the person's answer stands for: 1, or 1 / share if people are asked about only a
            share of such requests.
        audit: Whether this is an audit: both answers count as equal, and people check whether their scores are equal.
    """

    candidate: str
    request: int
    weight: float = 1.0
    audit: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of the test: no further move is needed.

    Attributes:
        reason: ``proven``: ``candidate`` loses less than the allowed loss. ``labels`` or ``requests``: all labels or
            requests are used up. ``hopeless``: every candidate needs more than three times the labels that are left,
            even if it loses nothing.
        candidate: The proven candidate; of several, the candidate that saves most.
        margin: The smallest loss that the candidate's proof excludes, as a fraction.
    """

    reason: EndReason
    candidate: str | None = None
    margin: float | None = None


Move = Ask | Compare | Question | Ended


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of the test for one candidate.

    Attributes:
        candidate: The candidate's name.
        saved: Share of the current cost that the candidate saves.
        requests: Number of requests that count so far: in the test's order, all before the first request that still
            lacks an answer or a label.
        differing: Number of these requests in which the candidate's answer differs from today's.
        labels: Number of labels that count so far.
        skipped: Number of skipped questions. Each counts as the worst score.
        diff: Weighted mean of the candidate's score minus today's over the requests that count; an estimate without a
            guarantee.
        log_wealth: The logarithm of the evidence that the candidate loses less than a margin, keyed by margin.
        threshold: A margin is proven once its value in ``log_wealth`` has reached this number.
        proven: The smallest margin that is proven; None if no margin is.
        needed: The expected number of further labels to prove a margin, keyed by margin; 0 if it is proven, infinite if
            it will not be.
        audit: The share of equal answers that people are asked to compare nevertheless, as an audit.
        judge_r2: Share of the scores' variance that the judge explains according to the labels so far; None without a
            judge.
        judge_used: Whether the judge saves labels at the moment.
    """

    candidate: str
    saved: float
    requests: int
    differing: int
    labels: int
    skipped: int
    diff: float
    log_wealth: Mapping[float, float]
    threshold: float
    proven: float | None
    needed: Mapping[float, float]
    audit: float = 0.0
    judge_r2: float | None = None
    judge_used: bool = False

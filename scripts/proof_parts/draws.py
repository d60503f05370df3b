"""Races over requests that are drawn from a table of recorded answers, with its truth as the persons who label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from proof_parts.plans import Plans

from vinelm.proof import Ask, Candidate, Compare, Ended, PlanFacts, Race, choose_candidates

CHOOSING = 150
"""Requests that choose the candidates, or tell the share of differing answers of a given plan."""
REQUESTS = 10_000
"""Requests of a race; they are drawn with replacement, so that the table is all there is and its means are the truth."""

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Played:
    """How one race ended: with which candidate, at which loss; the labels, the requests and the judge's comparisons it took."""

    reason: str
    candidate: str | None = None
    margin: float | None = None
    labels: int = 0
    requests: int = 0
    judged: int = 0


def drawn(plans: Plans, draw: int) -> tuple[IntArray, IntArray]:
    """Requests that choose, and fresh ones in the order of the race."""
    found = np.random.default_rng([draw, 53]).integers(0, len(plans.same), CHOOSING + REQUESTS)
    return found[:CHOOSING], found[CHOOSING:]


def given(plans: Plans, at: int, draw: int, margin: float, **settings: Any) -> Played:
    """A race of one given plan."""
    chosen, fresh = drawn(plans, draw)
    differing = (int((~plans.same[chosen, at]).sum()) + 1) / (CHOOSING + 2)
    return play(plans, [Candidate(plans.names[at], 0.5, differing)], fresh, draw, margin, **settings)


def chosen(plans: Plans, draw: int, margin: float, labels: int, only: Sequence[int] | None = None, **settings: Any) -> Played:
    """A race of those that 150 requests choose, among all plans or only some."""
    seen, fresh = drawn(plans, draw)
    facts = [
        PlanFacts(plans.names[at], 1.0 - float(plans.usd[seen, at].mean()), int((~plans.same[seen, at]).sum()), CHOOSING)
        for at in (range(len(plans.names)) if only is None else only)
    ]
    candidates = choose_candidates(facts, margin=margin, labels=labels)
    return play(plans, candidates, fresh, draw, margin, labels=labels, **settings)


def play(
    plans: Plans,
    candidates: Sequence[Candidate],
    requests: IntArray,
    draw: int,
    margin: float,
    *,
    labels: int | None = None,
    verdicts: Any = None,
    margins: Sequence[float] = (),
    audit: float = 0.0,
) -> Played:
    """Race the candidates; ``verdicts(scores, rng)`` is the judge. Equal answers of two candidates are labelled once."""
    race = Race(
        candidates,
        requests=len(requests),
        labels=labels,
        max_loss=margin,
        margins=margins,
        attempt=None,
        judge=verdicts is not None,
        audit=audit,
        seed=draw,
    )
    column = {name: at for at, name in enumerate(plans.names)}
    columns = {one.name: column[one.name] for one in candidates}
    said = {}
    if verdicts is not None:
        rng = np.random.default_rng([draw, 54])
        said = {name: verdicts(plans.score[requests, at], rng) for name, at in columns.items()}
    asked, judged, questions, paid = set(), 0, 0, set()
    while not isinstance(move := race.next(), Ended):
        name, request = move.candidate, move.request
        row, at = requests[request], columns[name]
        if isinstance(move, Ask):
            asked.add(request)
            race.answered(name, request, bool(plans.same[row, at]))
        elif isinstance(move, Compare):
            judged += 1
            race.judged(name, request, float(said[name][request]))
        else:
            answer = (request, int(plans.answer[row, at]))
            questions += answer not in paid
            race.labelled(name, request, float(plans.score[row, at]), counted=answer not in paid)
            paid.add(answer)
    return Played(move.reason, move.candidate, move.margin, questions, len(asked), judged)

"""Races that are played to their end over requests whose truth is known."""

import numpy as np

from vinelm.proof import Ask, Compare, Ended


def world(rng, requests, differing, diff, tied=0.3, hidden=0.0):
    """Return (same, scores) of one plan: its answers differ in a share of the requests; the mean score is ``diff``.

    ``hidden`` of the requests seem the same and lose all; ``diff`` does not count them.
    """
    same = rng.random(requests) >= differing
    better = (1.0 + diff / (differing * (1.0 - tied))) / 2.0
    scores = np.where(rng.random(requests) < tied, 0.0, np.where(rng.random(requests) < better, 1.0, -1.0))
    return same, np.where(same, -1.0 * (rng.random(requests) < hidden), scores)


def play(race, plans, verdicts=None):
    """Play to the end, and return (how it ended, questions, requests asked).

    Args:
        race: The race.
        plans: By candidate: (same, scores), arrays over the requests.
        verdicts: By request: what the judge says.
    """
    questions = asked = 0
    while not isinstance(move := race.next(), Ended):
        same, scores = plans[move.candidate]
        if isinstance(move, Ask):
            asked += 1
            race.answered(move.candidate, move.request, bool(same[move.request]))
        elif isinstance(move, Compare):
            race.judged(move.candidate, move.request, verdicts[move.request])
        else:
            questions += 1
            race.labelled(move.candidate, move.request, scores[move.request])
    return move, questions, asked

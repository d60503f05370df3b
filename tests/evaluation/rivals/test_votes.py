"""Votes and asking until two agree, against the same rules written out for one request at a time."""

from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pytest
from kit.outcome_tables import evidence, random_outcomes

from vinelm.evaluation.rivals import UntilTwoAgree, VoteOfK
from vinelm.evaluation.rivals.votes import TwoAgreePolicy, VotePolicy

TABLE = random_outcomes(80, 4, seed=3)
TRUST = ("c", "a", "d", "b")


def most_trusted(row, systems):
    """The system whose answer is returned where nothing agrees."""
    at = {name: m for m, name in enumerate(TABLE.systems)}
    for names in (
        [s for s in systems if TABLE.passed[row, at[s]] and TABLE.answer_class[row, at[s]] >= 0],
        [s for s in systems if TABLE.answer_class[row, at[s]] >= 0],
        list(systems),
    ):
        if names:
            return min(names, key=TRUST.index)
    raise AssertionError


def asked_in_turn(row, systems):
    """(system whose answer is returned, systems asked)."""
    at = {name: m for m, name in enumerate(TABLE.systems)}
    seen = set()
    for i, name in enumerate(systems):
        kind = int(TABLE.answer_class[row, at[name]])
        if TABLE.passed[row, at[name]] and kind >= 0:
            if kind in seen:
                return name, systems[: i + 1]
            seen.add(kind)
    return most_trusted(row, systems), systems


def voted(row, systems):
    at = {name: m for m, name in enumerate(TABLE.systems)}
    valid = [s for s in systems if TABLE.passed[row, at[s]] and TABLE.answer_class[row, at[s]] >= 0]
    votes = Counter(int(TABLE.answer_class[row, at[s]]) for s in valid)
    if not votes:
        return most_trusted(row, systems)
    most = max(votes.values())
    return min((s for s in valid if votes[int(TABLE.answer_class[row, at[s]])] == most), key=TRUST.index)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_asking_until_two_agree(length):
    at = {name: m for m, name in enumerate(TABLE.systems)}
    for systems in permutations(TABLE.systems, length):
        success, cost = TwoAgreePolicy(systems, TRUST).run(TABLE)
        for row in range(len(TABLE)):
            returned, asked = asked_in_turn(row, systems)
            assert success[row] == TABLE.success[row, at[returned]]
            assert cost[row] == pytest.approx(sum(TABLE.cost_usd[row, at[name]] for name in asked))


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_a_vote_returns_the_answer_of_most(length):
    at = {name: m for m, name in enumerate(TABLE.systems)}
    for systems in permutations(TABLE.systems, length):
        success, cost = VotePolicy(systems, TRUST).run(TABLE)
        assert np.allclose(cost, TABLE.cost_usd[:, [at[name] for name in systems]].sum(axis=1))
        assert [bool(s) for s in success] == [bool(TABLE.success[r, at[voted(r, systems)]]) for r in range(len(TABLE))]


@pytest.mark.parametrize("rival", [UntilTwoAgree(), VoteOfK()])
def test_a_larger_budget_never_promises_less_and_the_promise_is_kept_within_it(rival):
    chooser = rival.fit(evidence(random_outcomes(200, 4, seed=5)))
    chosen = [chooser.choose(budget) for budget in (0.002, 0.005, 0.02, 0.1)]
    assert all(a.promised_accuracy <= b.promised_accuracy for a, b in pairwise(chosen))
    assert all(one.promised_cost_usd <= budget for one, budget in zip(chosen, (0.002, 0.005, 0.02, 0.1), strict=True))
    assert len(chosen[-1].policy.systems) > 1


def test_what_costs_too_much_gives_way_to_the_cheapest():
    chosen = UntilTwoAgree().fit(evidence(random_outcomes(200, 4, seed=5))).choose(1e-6)
    assert chosen.policy.systems == ("a",)

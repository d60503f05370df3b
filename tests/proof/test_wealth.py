"""The bets: fair in the mean over all that may come, whatever came before."""

from itertools import product

import numpy as np
import pytest

from vinelm.proof.wealth import JUDGE_SHARE, Wealth

MARGINS = np.array([0.05, 0.2])


def means(outcomes, length, tell, **settings):
    """The mean wealth after so many units over all sequences of (probability, outcome), each with a wealth of its own."""
    total = np.zeros(len(MARGINS))
    for sequence in product(outcomes, repeat=length):
        wealth = Wealth(MARGINS, 0.2, **settings)
        for _, outcome in sequence:
            tell(wealth, outcome)
        total += np.prod([chance for chance, _ in sequence]) * np.exp(wealth.log)
    return total


def take(wealth, outcome):
    score, differs = outcome
    wealth.take(score, 1.0, differs=differs, told=int(differs))


@pytest.mark.parametrize("margin", [0, 1])
def test_a_plan_that_loses_just_the_margin_has_a_mean_wealth_of_one(margin):
    lost = MARGINS[margin]
    outcomes = [(0.6, (0.0, False)), (0.1, (0.0, True)), (0.15 - lost / 2, (1.0, True)), (0.15 + lost / 2, (-1.0, True))]
    found = means(outcomes, 6, take)
    assert found[margin] == pytest.approx(1.0, abs=1e-12)
    assert found[0] <= 1.0 + 1e-12, "a smaller margin is proven less often"


def test_graded_scores_and_weights_are_fair_too():
    """Weights of 2 and 1 are drawn with 1/3 and 2/3; by weight the plan loses .05 on the mean."""

    def tell(wealth, outcome):
        score, weight = outcome
        wealth.take(score, weight, differs=score != 0.0, told=int(score != 0.0))

    outcomes = [(1 / 6, (0.4, 2.0)), (1 / 6, (-0.5, 2.0)), (1 / 3, (-0.25, 1.0)), (1 / 3, (0.15, 1.0))]
    weighted = sum(chance * weight * score for chance, (score, weight) in outcomes)
    assert weighted == pytest.approx(-0.05 * sum(chance * weight for chance, (_, weight) in outcomes))
    assert means(outcomes, 6, tell, heaviest=2.0)[0] == pytest.approx(1.0, abs=1e-12)


def test_an_audited_share_is_fair_although_equal_answers_hide_the_loss():
    """A fifth of the equal answers is asked, and a quarter of these loses; the differing ones win what is missing to .05."""
    outcomes = [
        (0.8 * 0.8, (0.0, False)),
        (0.8 * 0.2 * 0.75, (0.0, False)),
        (0.8 * 0.2 * 0.25, (-1.0 / 0.2, False)),
        (0.175, (1.0, True)),
        (0.025, (-1.0, True)),
    ]
    assert means(outcomes, 5, take, lowest=5.0)[0] == pytest.approx(1.0, abs=1e-12)


def told_by_a_judge():
    """A wealth whose judge was right about twelve labels, so that he is used."""
    wealth = Wealth(MARGINS, 0.2, judged=True)
    for at in range(12):
        wealth.take_judged([(1.0 - 2.0 * (at % 2), 1.0 - 2.0 * (at % 2), 1.0)], 1.0)
    return wealth


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("bias", [0.0, 0.9])
def test_a_judge_is_fair_even_if_he_turns_biased(bias, together):
    """He is measured on good verdicts. Then he says "better" of almost everything, and the plan loses .05.

    ``together``: two requests are one unit, such as a conversation.
    """
    before = np.exp(told_by_a_judge().log)
    total = np.zeros(len(MARGINS))
    lost = 0.05
    scores = [(0.5 - lost / 2, 1.0), (0.5 + lost / 2, -1.0)]
    for sequence in product(scores, (1.0, -1.0), (True, False), repeat=2):
        wealth, chance, unit = told_by_a_judge(), 1.0, []
        for (likely, score), verdict, drawn in zip(sequence[::3], sequence[1::3], sequence[2::3], strict=True):
            says_better = 0.5 + bias / 2
            share = JUDGE_SHARE if wealth.uses_judge else 1.0
            chance *= likely * (says_better if verdict > 0 else 1 - says_better) * (share if drawn else 1 - share)
            unit.append((verdict, score if drawn else None, 0.5 if together else 1.0))
            if chance and not together:
                wealth.take_judged([unit.pop()], 1.0)
        if chance and together:
            wealth.take_judged(unit, 1.0)
        total += chance * np.exp(wealth.log) if chance else 0.0
    assert told_by_a_judge().uses_judge
    assert total[0] / before[0] == pytest.approx(1.0, abs=1e-9)


def test_no_single_request_can_ruin():
    wealth = Wealth(MARGINS, 0.001, lowest=5.0, heaviest=3.0)
    for _ in range(40):
        wealth.take(-5.0, 3.0, differs=False, told=1)
    assert np.isfinite(wealth.log).all()
    assert (wealth.highest >= wealth.log).all()


def test_what_is_needed_before_the_first_label_is_the_rule_of_thumb():
    wealth = Wealth(np.array([0.02]), 0.06)
    assert 0.8 * 40.5 < wealth.needed(0, np.log(20.0)) < 1.2 * 40.5


def test_a_useless_judge_is_not_used():
    rng = np.random.default_rng(1)
    wealth = Wealth(np.array([0.02]), 0.06, judged=True)
    used = 0
    for _ in range(120):
        wealth.take_judged([(rng.choice([1.0, -1.0]), rng.choice([1.0, 0.0, -1.0]), 1.0)], 1.0)
        used += wealth.uses_judge
    assert used < 20
    assert wealth.judge_r2 < 0.2

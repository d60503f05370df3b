"""A sequential statistical test, by betting, that a plan loses less than a margin. Tests several margins at once.

For each unit (a request, or a cluster of requests), x is the plan's score minus today's (the current setup's). If the
plan loses the margin m or more, the mean of x + m is at most 0. A bet stakes the share lambda of the wealth, chosen
before x is known. It multiplies the wealth by 1 + lambda (x + m), which is at most 1 on average. Starting with 1, the
wealth ever reaches 1 / alpha with a probability of at most alpha (Ville). This holds whenever one looks, for any
distribution, and for any stakes that use only the past (Waudby-Smith and Ramdas 2024).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

CAP = 0.95
"""Fraction of the largest stake, which could lose everything, that is allowed."""
STAKES = np.geomspace(0.01, 1.0, 48)
"""The stakes that are compared, as shares of the largest allowed one."""
PAIRS = 45.0
BETTER, WORSE, TIED = 0.35, 0.35, 0.3
"""The prior, as pseudo-observations: how many differing answers are better, worse and as good, in addition to the equal ones.
"""
JUDGE_SHARE = 0.25
"""Of the differing requests, the share about which people are asked while a judge is used."""
JUDGE_R2 = 0.25
"""A judge is not used if it explains less than this share of the scores' variance."""
JUDGE_LABELS = 10
"""How many labels are needed before a judge can be used."""
JUDGE_PRIOR = 2.0
"""Labels of a judge that explains nothing, added as a prior to the labels that measure the judge."""


class Wealth:
    """The test of one plan, which bets, for each margin, against "the plan loses at least this margin".

    The wealth of a margin's bet grows if the results contradict this; its stake is the part risked on the next unit. A
    unit is a request or a cluster of requests. Units are taken one by one, in order.

    Args:
        margins: Losses that are tested, shape (margins,), as fractions.
        differing: The prior estimate of the share of requests with differing answers. If it is wrong, more labels are
            needed, but the guarantee holds.
        lowest: The largest possible loss of one unit: 1, or 1 / share if each equal answer that people compare stands for
            1 / share equal answers.
        heaviest: The largest weight that a unit can have. The usual weight is assumed to be 1.
        audit: The share of equal answers that people are asked to compare; used for the expected number of labels.
        judged: Whether a judge model compares answers.
    """

    def __init__(
        self,
        margins: FloatArray,
        differing: float,
        *,
        lowest: float = 1.0,
        heaviest: float = 1.0,
        audit: float = 0.0,
        judged: bool = False,
    ) -> None:
        self.margins = margins
        self.log = np.zeros(len(margins))
        self.highest = np.zeros(len(margins))
        self.units = self.asked = 0
        self._audit = audit
        self._before = PAIRS / differing
        losses = [lowest, max(lowest, 2.0 / JUDGE_SHARE - 1.0)] if judged else [lowest]
        # Axes of all that follows: without and with the judge, margins, stakes.
        caps = CAP / (heaviest * (np.array(losses)[:, None] - margins))
        self._stakes = caps[:, :, None] * STAKES
        self._same = np.zeros_like(self._stakes)
        self._told = np.zeros_like(self._stakes)
        self._differing = self._told_units = self._equal = 0
        self._pairs: list[tuple[float, float, float]] = []
        self._slope = self._level = 0.0
        self.judge_r2 = 0.0
        self._past: FloatArray | None = None
        self._scored = self._weight = 0.0
        self._bet()

    @property
    def uses_judge(self) -> bool:
        """Whether the judge is good enough to save labels now.

        If it is, people are asked about a request with differing answers only with probability :data:`JUDGE_SHARE`.
        """
        return len(self._stakes) > 1 and self.judge_r2 >= JUDGE_R2

    @property
    def diff(self) -> float:
        """The weighted mean, over the units (requests or clusters) so far, of the plan's score minus the current setup's.

        NaN before the first unit.
        """
        return self._scored / self._weight if self._weight else math.nan

    def guess(self, verdict: float) -> float:
        """Return how much better than today's answer a plan's answer is expected to be, in [-1, 1].

        ``verdict`` is the judge's verdict on the two answers. The expectation is a linear fit to the labels so far.
        """
        return min(1.0, max(-1.0, self._level + self._slope * verdict))

    def take(self, score: float, weight: float, *, differs: bool, told: int) -> None:
        """Update the evidence for every margin with the result of one unit: a request or a cluster of requests.

        This is for units whose answers no judge has compared.

        Args:
            score: The mean, over the unit, of the plan's score minus the current setup's; 0 if nothing differs.
            weight: The unit's weight.
            differs: Whether the plan's answer to any of its requests differs from the current setup's.
            told: Number of labels that people gave for the unit.
        """
        self._settle(score, weight, told)
        if not told and weight == 1.0:
            self._equal += 1
            return  # stakes change with labels only, so that equal answers cost next to nothing
        grown = np.log1p(self._stakes * (weight * (score + self.margins))[:, None])
        if differs:
            self._told += grown
            self._told_units += 1
            self._differing += 1
        else:
            self._same += grown
        if told:
            self._bet()

    def take_judged(
        self, judged: Sequence[tuple[float, float | None, float]], weight: float, *, rest: float = 0.0, told: int = 0
    ) -> None:
        """Update the evidence for every margin (the wealth of its bet) with one unit (request or cluster).

        A judge has compared the differing answers of this unit.

        Args:
            judged: One (verdict, score, part) for each request with differing answers: the judge's verdict; the plan's score
                minus the current setup's, None if people were not asked; and the request's share of the unit's weight.
            weight: The unit's weight.
            rest: The part of the unit's mean score that comes from its other requests.
            told: Number of labels that people gave for these other requests.
        """
        share = JUDGE_SHARE if self.uses_judge else 1.0
        value, score, asked = rest, rest, 0
        for verdict, said, part in judged:
            guess = self.guess(verdict) if self.uses_judge else 0.0
            value += part * (guess + (0.0 if said is None else (said - guess) / share))
            score += part * (said or 0.0)
            asked += said is not None
        self._settle(value, weight, told + asked)
        self._differing += 1
        if asked:
            self._pairs += [(verdict, said, weight * part) for verdict, said, part in judged if said is not None]
            if asked == len(judged):
                self._told_units += 1
                self._told[0] += np.log1p(self._stakes[0] * (weight * (score + self.margins))[:, None])
            self._measure_judge()
        self._bet()

    def needed(self, at: int, threshold: float, *, lossless: bool = False) -> float:
        """Return the expected number of further labels until a margin is proven; 0 if it is proven, infinite if it will
        not be.

        Args:
            at: The index of the margin.
            threshold: The log wealth that counts as proof.
            lossless: Whether to assume that the plan loses nothing, whatever its labels say.
        """
        if self.highest[at] >= threshold:
            return 0.0
        growth = self._lossless_growth if lossless else self._growth
        if growth[at] <= 0.0:
            return math.inf
        share = JUDGE_SHARE if self.uses_judge else 1.0
        units = self._before + self.units
        differing = PAIRS + self._differing
        labels = (share * differing + self._audit * (units - differing)) / units
        return (threshold - float(self.log[at])) / float(growth[at]) * labels

    def _settle(self, value: float, weight: float, told: int) -> None:
        # The stakes were chosen before this unit was known; `_bet` comes after. The guarantee needs nothing but this order.
        self.log = self.log + np.log1p(self.stakes * weight * (value + self.margins))
        # Once 1/alpha is reached the proof stands, even if the wealth falls later: Ville's inequality is about ever reaching
        # it.
        self.highest = np.maximum(self.highest, self.log)
        self.units += 1
        self.asked += told
        self._scored += weight * value
        self._weight += weight

    def _bet(self) -> None:
        """Choose each margin's stake, the part of its wealth that the next bet risks.

        It is the stake with which the wealth would have grown most so far. Some imagined observations count as well, as a
        prior.
        """
        mode = int(self.uses_judge)
        # Equal answers were only counted: each has the same factor, so they are booked in one step when stakes are chosen
        # again.
        if self._equal:
            self._same += self._equal * np.log1p(self._stakes * self.margins[:, None])
            self._equal = 0
        imagined = self._imagined(mode)
        # Differing answers without a label (with a judge) are assumed to be like the labelled ones, hence the factor. The
        # pseudo-past keeps the first stakes from being all or nothing.
        total = self._same[mode] + self._told[mode] * (self._differing / max(1, self._told_units)) + imagined
        at = total.argmax(axis=1)[:, None]
        self._growth: FloatArray = total.max(axis=1) / (self._before + self.units)
        self._lossless_growth: FloatArray = imagined.max(axis=1) / self._before
        self.stakes: FloatArray = np.take_along_axis(self._stakes[mode], at, 1)[:, 0]

    def _imagined(self, mode: int) -> FloatArray:
        if mode == 0:
            if self._past is None:
                self._past = self._past_of(self._stakes[0], np.array([1.0, -1.0, 0.0]), np.array([BETTER, WORSE, TIED]))
            return self._past
        # With this R² a judge's calibrated guesses of +s and -s are right with probability (1 + s) / 2. With a judge, people
        # are asked about a share p only, and x becomes g + (L/p)(x - g): unbiased whatever the judge says, but an asked answer
        # counts 1/p times its surprise, which makes the largest loss larger.
        s, p = self.judge_r2**0.5, JUDGE_SHARE
        right, wrong = s + (1.0 - s) / p, -s + (1.0 + s) / p  # the value of an asked answer that is better than today's
        drawn = p * np.array([1.0 + s, 1.0 - s]) / 2.0
        chances = np.concatenate([BETTER * drawn, WORSE * drawn, (1.0 - p) * np.array([BETTER, WORSE]), [TIED]])
        return self._past_of(self._stakes[1], np.array([right, wrong, -right, -wrong, s, -s, 0.0]), chances)

    def _past_of(self, stakes: FloatArray, values: FloatArray, chances: FloatArray) -> FloatArray:
        """Return, for each stake, how much the log of the wealth would grow over a number of imagined results, used as a prior.

        Args:
            stakes: The stakes to compare, shape (margins, stakes).
            values: The scores that a differing answer may have.
            chances: The probability of each score.

        Returns:
            An array of shape (margins, stakes).
        """
        gains = values[:, None] + self.margins  # (values, margins)
        grown = np.tensordot(chances, np.log1p(stakes * gains[:, :, None]), 1)
        same = np.log1p(stakes * self.margins[:, None])
        past: FloatArray = PAIRS * grown + (self._before - PAIRS) * same
        return past

    def _measure_judge(self) -> None:
        """Fit the scores to the judge's verdicts, and measure how much of the scores' variance the fit explains."""
        verdicts, scores, weights = np.array(self._pairs).T
        spread = verdicts - verdicts.mean()
        self._slope = float(spread @ scores / (spread @ spread + JUDGE_PRIOR))
        self._level = float(scores.mean() - self._slope * verdicts.mean())
        count = len(scores)
        guesses = np.clip(self._level + self._slope * verdicts, -1.0, 1.0)
        around = float(((scores - scores.mean()) ** 2).sum())
        explained = 1.0 - float(((scores - guesses) ** 2).sum()) / around if around > 0.0 else 0.0
        adjusted = 1.0 - (1.0 - explained) * (count - 1) / max(1, count - 2)
        self.judge_r2 = max(0.0, adjusted) if count >= JUDGE_LABELS else 0.0
        if self.uses_judge:
            worth = (weights * (guesses + (scores - guesses) / JUDGE_SHARE))[:, None] + weights[:, None] * self.margins
            alone = (weights * guesses)[:, None] + weights[:, None] * self.margins
            asked = np.log1p(self._stakes[1] * worth[:, :, None]).sum(axis=0)
            left = np.log1p(self._stakes[1] * alone[:, :, None]).sum(axis=0)
            self._told[1] = JUDGE_SHARE * asked + (1.0 - JUDGE_SHARE) * left

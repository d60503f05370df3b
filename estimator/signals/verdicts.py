"""Judges in the latent model of answers: the probability of a verdict, given the answer and the request's easiness.

A judge writes no answer. Let y be whether the answer is right, missing or wrong, t the easiness of the request, j the
judge's model and l its verdict. Then

    P(l | y, t, j)  is proportional to  exp(a_yl + b_yjl + c_yl t)

with normal priors on the effects. The slope c is needed because judges fail on the same requests as models: without it,
verdicts on hard requests would be trusted too much. A skipped stage counts as a judge that gives no information. Whether the
answer passes the workflow's check after a judge, and which stage comes next, depends on the verdict and on the previous label.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vinelm.estimator.signals.course import Context
from vinelm.signals import Label
from vinelm.template import SKIP
from vinelm.trie.arrays import BoolArray, FloatArray

Ints = npt.NDArray[np.int64]
KINDS = 3
"""The number of kinds of answers: right, missing and wrong."""
LEVEL_SD, MODEL_SD, SLOPE_SD = 1.5, 0.7, 0.3
"""Prior standard deviations of a, b and c."""
FOLLOWS_PSEUDO = 0.1
"""The number of results that the prior of the label after a verdict counts as: few, since mostly code decides the label."""
NEVER = -40.0


@dataclass(frozen=True, eq=False)
class Verdicts:
    """The results of judges and skipped stages, which leave the current answer unchanged.

    Args:
        contexts: the contexts that occur. A context is everything that an answer depends on, except the request.
        labels: the labels that occur.
        context: the context of each result, an index into ``contexts``; shape (results,).
        label: the label of each result, an index into ``labels``; shape (results,).
        before: the label of the previous result; -1 without such a result; shape (results,).
        is_missing: whether there was no current answer, shape (results,).
    """

    contexts: tuple[Context, ...] = ()
    labels: tuple[Label, ...] = ()
    context: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    label: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    before: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    is_missing: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))

    @cached_property
    def judges(self) -> list[int]:
        """The judges, as indices of their contexts in ``contexts``. A judge's number is its index in this list."""
        return [i for i, context in enumerate(self.contexts) if context.keeps]

    @cached_property
    def number(self) -> dict[int, int]:
        """The number of each judge, keyed by the judge's index in ``contexts``."""
        return {context: j for j, context in enumerate(self.judges)}

    @cached_property
    def judge(self) -> Ints:
        """The number of the judge that gave each result; -1 for results that are answers, not verdicts; shape (results,)."""
        of_context = np.full(len(self.contexts) + 1, -1, np.int64)
        of_context[self.judges] = np.arange(len(self.judges))
        return of_context[self.context]

    @cached_property
    def signals(self) -> list[str | None]:
        """The different signals that judges have given, sorted; one of them is None if a stage was skipped."""
        return sorted({self.labels[label].signal for label in self.label[self.judge >= 0].tolist()}, key=str)

    @cached_property
    def signal(self) -> Ints:
        """For each label, the index of its signal in :attr:`signals`, shape (labels,); -1 if the signal is not in that list."""
        return np.array([self.signals.index(one.signal) if one.signal in self.signals else -1 for one in self.labels], np.int64)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape (judges, kinds of answer, signals) of arrays that count the judges' verdicts.

        The kinds of answer are right (0), missing (1) and wrong (2).
        """
        return len(self.judges), KINDS, len(self.signals)

    @cached_property
    def column(self) -> Ints:
        """A code for each verdict that combines its judge, whether the answer was missing, and its signal; shape (results,).

        The code is -1 for results that are answers, not verdicts. :meth:`counts_of` decodes it.
        """
        code = (self.judge * 2 + self.is_missing) * len(self.signals) + self.signal[self.label] if self.judges else self.judge
        return np.where(self.judge >= 0, code, -1)

    def counts_of(self, column: int, right: float) -> list[tuple[int, float]]:
        """Return where a verdict is counted in a flattened array of :attr:`shape`, as pairs (index, weight).

        The array counts verdicts by judge, kind of the judged answer (right, missing, wrong) and signal. If the judged answer
        has a score between 0 and 1, the verdict counts partly as one on a right answer and partly as one on a wrong answer.

        Args:
            column: The verdict's code, an element of :attr:`column`.
            right: The score of the judged answer, in [0, 1].
        """
        rest, signal = divmod(column, len(self.signals))
        judge, is_missing = divmod(rest, 2)
        parts = [(1, 1.0)] if is_missing else [(0, right), (2, 1.0 - right)]
        return [((judge * KINDS + kind) * len(self.signals) + signal, share) for kind, share in parts if share]

    @cached_property
    def _stages(self) -> tuple[list[str], list[str]]:
        asked = [self.contexts[i] for i in self.judges]
        return sorted({one.stage for one in asked}), sorted({one.model for one in asked})

    @cached_property
    def _stage(self) -> Ints:
        return np.array([self._stages[0].index(self.contexts[i].stage) for i in self.judges], np.int64)

    @cached_property
    def features(self) -> FloatArray:
        """The design matrix of the judges: a constant, and 1 for the judge's model; shape (judges, 1 + models)."""
        models = np.array([[self.contexts[i].model == name for name in self._stages[1]] for i in self.judges], np.float64)
        return np.column_stack((np.ones(len(self.judges)), models.reshape(len(self.judges), len(self._stages[1]))))

    @cached_property
    def possible(self) -> BoolArray:
        """A mask of the signals that each judge may give; shape (judges, signals).

        Skipping a judge's stage counts as a separate judge, whose only signal is None.
        """
        found = np.zeros((len(self.judges), len(self.signals)), np.bool_)
        is_skip = np.array([self.contexts[i].model == SKIP for i in self.judges], np.bool_)
        at = np.flatnonzero(self.judge >= 0)
        judge, signal = self.judge[at], self.signal[self.label[at]]
        for j in range(len(self.judges)):
            alike = (self._stage == self._stage[j]) & (is_skip == is_skip[j])
            found[j, signal[alike[judge]]] = True
            if not found[j].any():
                found[j] = [(one is None) == is_skip[j] for one in self.signals]
        return found

    @cached_property
    def follows(self) -> FloatArray:
        """For each judge, P(label of the judge's result | its signal, the label of the result before it).

        The shape is (judges, labels + 1, labels). The second axis is the label of the result before it; the last index is for
        a judge's result without a result before it. The third axis is the label of the judge's result. The probability is 0 for
        a label whose signal the judge cannot give, or whose next stage cannot follow the judge.
        """
        n = len(self.labels)
        counts = np.zeros((len(self._stages[0]), n + 1, n))
        at = np.flatnonzero(self.judge >= 0)
        np.add.at(counts, (self._stage[self.judge[at]], self.before[at], self.label[at]), 1.0)
        found = np.zeros((len(self.judges), n + 1, n))
        for j, context in enumerate(self.judges):
            arms = (None, *self.contexts[context].arms)
            fits = np.array([label.arm in arms for label in self.labels], np.bool_)
            for signal in np.flatnonzero(self.possible[j]):
                here = np.flatnonzero(fits & (self.signal == signal))
                if len(here):
                    seen = counts[self._stage[j]][:, here]
                    prior = (seen.sum(axis=0) + 1e-3) / (seen.sum() + 1e-3 * len(here))
                    found[j][:, here] = (seen + FOLLOWS_PSEUDO * prior) / (seen.sum(axis=1, keepdims=True) + FOLLOWS_PSEUDO)
        return found

    # -- the effects: shape (stages, kinds, 1 + models + 1, signals); the last feature is the easiness -------------------

    def no_effects(self) -> FloatArray:
        """Return the effects with which the fit of the judges begins: all 0, shape (stages, 3, features + 1, signals).

        The 3 is for right, missing and wrong answers. On the third axis, the last item is the effect of easiness.
        """
        return np.zeros((len(self._stages[0]), KINDS, self.features.shape[1] + 1, len(self.signals)))

    def log_chances(self, effects: FloatArray, easy: FloatArray) -> FloatArray:
        """Return log P(signal | judge, kind of answer, easiness), shape (judges, kinds, signals, points).

        The kinds of answer are right, missing and wrong. A point is a possible value of a request's latent traits; ``easy`` is
        the easiness at each point. ``effects`` has the shape of :meth:`no_effects`.
        """
        if not self.judges:
            return np.zeros((*self.shape, len(easy)))
        own = effects[self._stage]
        logit = np.einsum("jf,jkfs->jks", self.features, own[:, :, :-1])[..., None] + own[:, :, -1, :, None] * easy
        logit = np.where(self.possible[:, None, :, None], logit, NEVER)
        return np.asarray(logit - np.logaddexp.reduce(logit, axis=2, keepdims=True))

    def stepped(self, effects: FloatArray, counts: FloatArray, easy: FloatArray) -> FloatArray:
        """Return the effects (the coefficients of the regression) after one Newton step.

        ``counts`` are the expected numbers of results, shape (judges, kinds of answers, signals, points). ``easy`` is the
        easiness at each grid point.
        """
        if not self.judges:
            return effects
        chance, moved = np.exp(self.log_chances(effects, easy)), effects.copy()
        n_features, n_signals = effects.shape[2:]
        sd = np.repeat([LEVEL_SD, *[MODEL_SD] * (n_features - 2), SLOPE_SD], n_signals)
        for stage in range(len(effects)):
            here = np.flatnonzero((self._stage == stage) & (self.possible.sum(axis=1) > 1))
            if not len(here):
                continue
            x = np.concatenate(
                [np.column_stack((np.broadcast_to(self.features[j], (len(easy), n_features - 1)), easy)) for j in here]
            )
            for kind in range(KINDS):
                said = counts[here, kind].transpose(0, 2, 1).reshape(-1, n_signals)
                p = chance[here, kind].transpose(0, 2, 1).reshape(-1, n_signals)
                asked = said.sum(axis=1)
                now = effects[stage, kind].ravel()
                gradient = (x.T @ (said - asked[:, None] * p)).ravel() - now / sd**2
                mixed = np.einsum("n,ns,sr->nsr", asked, p, np.eye(n_signals)) - np.einsum("n,ns,nr->nsr", asked, p, p)
                curvature = np.einsum("nf,ng,nsr->fsgr", x, x, mixed, optimize=True).reshape(len(now), -1)
                curvature += np.diag(1.0 / sd**2)
                step = np.clip(np.linalg.solve(curvature, gradient), -1.0, 1.0)
                moved[stage, kind] = (now + step).reshape(n_features, n_signals)
        return moved


def kinds_of(types: npt.NDArray[np.int8], right: int, missing: int) -> Ints:
    """Return the kind of each answer as a number: 0 if it is right, 1 if it is missing, 2 if it is wrong.

    ``types`` has the answers' types; ``right`` and ``missing`` are the types of right and of missing answers.
    """
    return np.where(types == right, 0, np.where(types == missing, 1, 2)).astype(np.int64)

"""Combines fits to resampled requests into probabilities of outcomes that include the uncertainty of the estimate.

A single fit to few results is overconfident: an answer that it considers right with probability .98 is right less often. The
Bayesian bootstrap (Rubin 1981) weights the requests at random. The mean over the fits of P(history, and class j is right)
is the predictive probability by which plans are chosen; the spread over the fits gives the standard error of a whole plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from vinelm.estimator.signals.answer_model import Labelings, fit_answers
from vinelm.estimator.signals.answers import AnswerTable
from vinelm.estimator.signals.course import Context
from vinelm.estimator.signals.verdicts import Verdicts
from vinelm.signals import Label
from vinelm.trie.arrays import FloatArray

FITS = 8
"""The number of fits to resampled requests."""
LEAST_RISE = 0.1
"""The smallest cost of a call, relative to ``cost_usd``, however few earlier calls it has."""
LEAST_WEIGHT = 1e-4
"""A latent pair with a smaller weight in its fit is left out."""


@dataclass(frozen=True, eq=False)
class Predictive:
    """Several fits of the latent model to resampled requests, combined into one model. A *point* is a pair of latent traits in
    a fit.

    Args:
        contexts: The distinct contexts. A context is what an answer depends on except the request.
        labels: The distinct labels. A label is what is known about an answer at run time.
        log_types: Log P(type | context, point), shape (contexts, types, points).
        log_weights: Log of the points' weights; the weights sum to 1 over all fits; shape (points,).
        size: Size of a point's requests relative to the mean, shape (points,).
        fit: The fit of each point, shape (points,).
        n_fits: Number of fits.
        label_rates: P(label | context, right / none / wrong), shape (contexts, 3, labels).
        same_again: P(the model repeats its earlier answer), shape (contexts,); NaN if a context is not a repetition.
        label_follows_class: Whether all answers of a class have the same label.
        cost_usd: Cost of a call in dollars for a request of mean size, shape (contexts,).
        cost_by_fit: This cost by fit, shape (contexts, fits).
        verdicts: The judges, and the stages that may be skipped.
        log_verdicts: Log P(signal | judge, right / missing / wrong, point), shape (judges, 3, signals, points).
        growth: Relative increase of a call's cost per earlier call, as in :class:`AnswerFit`.
        turn: Mean number of earlier calls, as in :class:`AnswerFit`; shape (contexts,).
    """

    contexts: tuple[Context, ...]
    labels: tuple[Label, ...]
    log_types: FloatArray
    log_weights: FloatArray
    size: FloatArray
    fit: npt.NDArray[np.int64]
    n_fits: int
    label_rates: FloatArray
    same_again: FloatArray
    label_follows_class: bool
    cost_usd: FloatArray
    cost_by_fit: FloatArray
    verdicts: Verdicts = field(default_factory=Verdicts)
    log_verdicts: FloatArray = field(default_factory=lambda: np.zeros((0, 3, 0, 0)))
    growth: float = 0.0
    turn: FloatArray = field(default_factory=lambda: np.zeros(1))

    def rise(self, earlier: int) -> FloatArray:
        """Return, for each context, the cost of a call after ``earlier`` other calls, divided by ``cost_usd``.

        The array has shape (contexts,). A context is everything that an answer depends on, except the request.
        """
        return np.broadcast_to(np.maximum(1.0 + self.growth * (earlier - self.turn), LEAST_RISE), len(self.contexts))

    @property
    def mean_size(self) -> FloatArray:
        """For each fit, the mean size of all requests, shape (fits,).

        A request's size is the cost of its calls, relative to those of the mean request.
        """
        weights = np.exp(self.log_weights) * self.n_fits
        return np.asarray(np.bincount(self.fit, weights * self.size, self.n_fits))

    @classmethod
    def of(cls, table: AnswerTable, *, fits: int = FITS, seed: int = 0) -> Predictive:
        """Fit the latent model to all requests and to resampled requests, and combine the fits.

        Args:
            table: The answers.
            fits: Number of resampled fits; 0 uses only the fit to all requests.
            seed: The seed of the resampled fits.
        """
        labelings = Labelings.of(table)  # the possible types of a request's wrong answers: the same for all fits
        whole = fit_answers(table, labelings=labelings)
        found = [whole]
        if fits:
            drawn = resampled(len(table.requests), fits, seed), prior_means(len(whole.features.sd), fits, seed)
            found = [fit_answers(table, labelings=labelings, weights=w, centre=c) for w, c in zip(*drawn, strict=True)]
        # The latent points of all fits are put side by side, each fit with the weight 1 / fits, and then treated as one
        # mixture. Points of almost no weight are left out, since every history is multiplied by the number of points.
        kept = [np.flatnonzero(one.log_weights > np.log(LEAST_WEIGHT)) for one in found]
        weights = [one.log_weights[at] for one, at in zip(found, kept, strict=True)]
        return cls(
            contexts=whole.contexts,
            labels=whole.labels,
            log_types=np.concatenate([one.log_types[:, :, at] for one, at in zip(found, kept, strict=True)], axis=2),
            log_weights=np.concatenate([log - np.logaddexp.reduce(log) for log in weights]) - np.log(len(found)),
            size=np.concatenate([one.size[at] for one, at in zip(found, kept, strict=True)]),
            fit=np.repeat(np.arange(len(found)), [len(at) for at in kept]),
            n_fits=len(found),
            label_rates=whole.label_rates,
            same_again=whole.same_again,
            label_follows_class=whole.label_follows_class,
            cost_usd=whole.cost_usd,
            cost_by_fit=np.stack([one.cost_usd for one in found], axis=1),
            verdicts=table.verdicts,
            log_verdicts=np.concatenate([one.log_verdicts[..., at] for one, at in zip(found, kept, strict=True)], axis=3),
            growth=whole.growth,
            turn=whole.turn,
        )


def resampled(requests: int, fits: int, seed: int) -> FloatArray:
    """Return random weights of the requests for each fit, shape (fits, requests).

    The mean of each request's weights over all fits is 1.
    """
    weights = np.random.default_rng(seed).dirichlet(np.ones(requests), fits)
    return np.asarray(weights / weights.mean(axis=0))


def prior_means(effects: int, fits: int, seed: int) -> FloatArray:
    """Return random means of the effects' priors for each fit, in standard deviations; shape (fits, 2, effects).

    Resampling alone underestimates the uncertainty of a model with few results: if it was right in all three results, it is
    right in every resample. With random prior means, the fits differ wherever the prior dominates. The means add up to 0 over
    the fits.
    """
    drawn = np.random.default_rng((seed, 1)).standard_normal((fits, 2, effects))
    return np.asarray(drawn - drawn.mean(axis=0))

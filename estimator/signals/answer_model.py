"""The latent model of answers: the probabilities of an answer's type and label, given the request's two latent traits.

Types of an answer: right (R), none (E), wrong but equal to a right answer by ``agree`` (V), the request's usual mistake
(W1), its second mistake (W2), wrong in a unique way (U). Answers of the same type agree, and R agrees with V; an answer of
type U agrees with no other. With easiness t and popularity k (of the usual mistake) on a grid, and c the context of the
answer (model, stage, earlier calls):

    p = sigma(a_c + t)                         w = (1 - p)(1 - e_c)
    P(R) = p (1 - g)                           P(W1) = w u,            u = sigma(b_c + k)
    P(V) = p g                                 P(W2) = w (1 - u) v
    P(E) = (1 - p) e_c                         P(U)  = w (1 - u)(1 - v)

A label's probability depends on the context's model and on whether the answer is right, wrong or missing. If the
application chooses the next stage, this choice is part of the label. Stages that write no answer have only labels, whose
rates do not depend on the request; how these labels affect later answers is an effect of the context. Judges give verdicts
on an answer (:mod:`~vinelm.estimator.signals.verdicts`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from vinelm.estimator.latent.logistic_regression import sigmoid
from vinelm.estimator.signals.answers import AnswerTable, Ints
from vinelm.estimator.signals.course import Context
from vinelm.estimator.signals.verdicts import Verdicts
from vinelm.signals import Label
from vinelm.template import SKIP
from vinelm.trie.arrays import FloatArray

RIGHT, NONE, ALIKE, USUAL, SECOND, OWN = range(6)
N_TYPES = 6
POINTS_EASY, POINTS_POPULAR = 10, 3
EASY_END, POPULAR_END = 5.0, 1.5
EASY_SD = 2.0
"""The standard deviation of the easiness' prior."""
GRID_PRIOR = 10.0
"""The number of requests that the prior of the grid's weights counts as."""
ITERATIONS = 40
"""EM iterations, with one Newton step of the effects in each."""
DOLLAR_ROUNDS = 4
"""The number of rounds in which the costs of models and of the positions of calls are separated."""
PSEUDO_COUNTS = 6.0
"""The number of answers that the prior of a rate counts as."""
LEAST_PRICE = 0.01
"""Models that cost less than this share of the median model count as equally cheap."""
BEGINNING = 15
"""The number of Newton steps before the first EM iteration."""
BEGUN_SD, SUITED_SD = 1.0, 1.0
"""The prior standard deviations of the effects of how a request began, and of each model for requests that began so."""
FOUND_SD = 2.5
"""The prior standard deviation of what a stage without an answer has shown: a search that found nothing decides the answer."""
TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a logistic regression for answers: effects on the log odds, each with a normal prior.

    A context is what an answer depends on except the request; see :class:`~vinelm.estimator.signals.course.Context`. There are
    effects of the model, of the stage (separately for a later answer), and of calling the same model again. Further effects are
    those of the model and outcome of an earlier stage without an answer, and of how the request began, overall and by model.
    The last effect is that of the price, because expensive models are mostly better but have few answers. Without it, the prior
    would pull them to the mean of the cheap models.

    Args:
        matrix: Shape (contexts, effects).
        sd: Prior standard deviation of each effect; the first effect is the mean of the models and has a wide prior.
        mean: Prior mean of each effect.
    """

    matrix: FloatArray
    sd: FloatArray
    mean: FloatArray

    @classmethod
    def of(cls, contexts: Sequence[Context], model_sd: float, price: FloatArray, centre: FloatArray | None) -> Features:
        """Return the features of these contexts.

        Args:
            contexts: What an answer depends on, except the request: its stage, its model and more.
            model_sd: Prior standard deviation of a model's effect, and of the effect of a price that is ten times as high.
            price: The price of the context's model, as log10 dollars with mean 0 over the models; shape (contexts,).
            centre: The prior mean of each effect, in units of its prior standard deviation, shape (effects,); None for 0.
        """
        models = sorted({c.model for c in contexts})
        stages = sorted({(c.stage, c.is_later) for c in contexts if c.is_later or c.stage != contexts[0].stage})
        again = sorted({c.model for c in contexts if c.is_again})
        columns, sd = [np.ones(len(contexts))], [3.0]
        for name in models:
            columns.append(np.array([float(c.model == name) for c in contexts]))
            sd.append(model_sd)
        for stage in stages:
            columns.append(np.array([float((c.stage, c.is_later) == stage) for c in contexts]))
            sd.append(0.5)
        if again:
            columns.append(np.array([float(c.is_again) for c in contexts]))
            sd.append(1.0)
        for part, spread in ((1, 0.5), (2, FOUND_SD)):  # the model of a stage without an answer, and what it has shown
            for before in sorted({(c.after[0], c.after[part]) for c in contexts if c.after}):
                columns.append(np.array([float(bool(c.after) and (c.after[0], c.after[part]) == before) for c in contexts]))
                sd.append(spread)
        begun = sorted({c.begins for c in contexts})
        for begins in begun if len(begun) > 1 else ():
            columns.append(np.array([float(c.begins == begins) for c in contexts]))
            columns += [np.array([float((c.begins, c.model) == (begins, name)) for c in contexts]) for name in models]
            sd += [BEGUN_SD, *[SUITED_SD] * len(models)]
        columns.append(price)
        sd.append(model_sd)
        errors = np.array(sd)
        return cls(np.stack(columns, axis=1), errors, np.zeros(len(sd)) if centre is None else errors * centre)


@dataclass(frozen=True, eq=False)
class Grid:
    """The grid of latent pairs: how easy a request is, and how popular its usual mistake is; arrays of shape (points,).

    Attributes:
        easy: the easiness of each point.
        popular: the popularity of the usual mistake.
        log_prior: the log of the point's prior weight.
    """

    easy: FloatArray
    popular: FloatArray
    log_prior: FloatArray

    @classmethod
    def new(cls) -> Grid:
        """Return the grid of latent pairs (easiness, popularity of the usual mistake) that the module's constants define."""
        easy, popular = np.linspace(-EASY_END, EASY_END, POINTS_EASY), np.linspace(-POPULAR_END, POPULAR_END, POINTS_POPULAR)
        t, k = (values.ravel() for values in np.meshgrid(easy, popular, indexing="ij"))
        log = -0.5 * (t / EASY_SD) ** 2 - 0.5 * k**2
        return cls(t, k, log - np.logaddexp.reduce(log))

    def __len__(self) -> int:
        return len(self.easy)


@dataclass(frozen=True, eq=False)
class AnswerFit:
    """A fitted latent model of answers. Its types of answers (R, E, V, W1, W2, U) are explained in the module's docstring.

    Args:
        contexts: The situations of calls. A context is everything that an answer depends on, except the request.
        labels: The labels of results: signal, passed check and next stage.
        grid: The latent pairs (easiness, popularity of the usual mistake); a point is one pair.
        log_weights: Log of their weights, shape (points,).
        features: The effects of the contexts.
        right_effects: Effects on an answer being right, or wrong but equal to a right answer (R or V); shape (effects,).
        usual_effects: Effects on an answer being the request's usual mistake (W1), shape (effects,).
        none: The share of missing answers (E) among the answers that are neither R nor V, by context.
        alike: The share of wrong answers (V) among the answers that are R or V, by context.
        second: The share of the request's second mistake (W2) among the answers that are W2 or U.
        label_rates: P(label | context, right / none / wrong), shape (contexts, 3, labels).
        same_again: P(the model repeats its earlier answer) by context, NaN if the context is not ``is_again``.
        label_follows_class: Whether all answers of a class have the same label.
        cost_usd: Cost of a call in dollars for a request of mean size, by context.
        size: Size of the requests of each latent pair, relative to the mean; shape (points,).
        verdicts: The judges, and the stages that were skipped.
        verdict_effects: Effects of judges' verdicts; see :class:`~vinelm.estimator.signals.verdicts.Verdicts`.
        growth: Relative increase of a call's cost per earlier call, because prompts grow with their history.
        turn: Mean number of earlier calls over the results from which ``cost_usd`` was estimated, by context.
    """

    contexts: tuple[Context, ...]
    labels: tuple[Label, ...]
    grid: Grid
    log_weights: FloatArray
    features: Features
    right_effects: FloatArray
    usual_effects: FloatArray
    none: FloatArray
    alike: FloatArray
    second: float
    label_rates: FloatArray
    same_again: FloatArray
    label_follows_class: bool
    cost_usd: FloatArray
    size: FloatArray
    verdicts: Verdicts
    verdict_effects: FloatArray
    growth: float
    turn: FloatArray

    @cached_property
    def log_verdicts(self) -> FloatArray:
        """The log probability of each signal of each judge, by the state of the answer; shape (judges, 3, signals, points).

        The states are right, missing and wrong. A point is a pair of the request's latent traits.
        """
        return self.verdicts.log_chances(self.verdict_effects, self.grid.easy)

    @cached_property
    def log_types(self) -> FloatArray:
        """The log probability of each type of answer, shape (contexts, types, points).

        A context is everything that an answer depends on, except the request. A point is a pair of latent traits of the
        request.
        """
        looks_right = sigmoid((self.features.matrix @ self.right_effects)[:, None] + self.grid.easy)
        usual = sigmoid((self.features.matrix @ self.usual_effects)[:, None] + self.grid.popular)
        none = self.none[:, None]
        wrong = (1.0 - looks_right) * (1.0 - none)
        found = np.empty((len(self.contexts), N_TYPES, len(self.grid)))
        alike = self.alike[:, None]
        found[:, RIGHT] = looks_right * (1.0 - alike)
        found[:, NONE] = (1.0 - looks_right) * none
        found[:, ALIKE] = looks_right * alike
        found[:, USUAL] = wrong * usual
        found[:, SECOND] = wrong * (1.0 - usual) * self.second
        found[:, OWN] = wrong * (1.0 - usual) * (1.0 - self.second)
        found[[not context.answers for context in self.contexts]] = (np.arange(N_TYPES) == NONE)[:, None]
        return np.log(np.maximum(found, TINY))


OF_TYPE = np.array([0, 1, 0, 2, 2, 2])
"""The index of the label rates that each type uses: of right (or alike), missing and wrong answers."""


@dataclass(frozen=True, eq=False)
class Labelings:
    """The labelings of requests, as counts. A labeling assigns a type of answer to each class of wrong answers.

    All possible labelings of each request are stored. A class is a set of answers that agree. A class with answers of several
    models cannot be of the type OWN (wrong in a unique way); a class with answers of one model may be a single answer that the
    model repeats. At most one class is the request's USUAL mistake, and at most one its SECOND.

    Many requests have results that differ only in cost: the same models, agreement of answers and scores. Such requests form a
    pattern, and the pattern's labelings are stored once.

    Args:
        pattern_of: The pattern of each request, shape (requests,).
        pattern: The pattern of each labeling, ascending.
        counts: Weighted counts for each labeling, shape (labelings, contexts * types + verdicts). The first columns count
            answers by context (the situation of the call) and type. The others count verdicts by judge, correctness of the
            judged answer (right, missing, wrong) and signal.
    """

    pattern_of: Ints
    pattern: Ints
    counts: FloatArray

    @cached_property
    def sparse(self) -> tuple[csr_array, csr_array]:
        """The array :attr:`counts` of answers and verdicts, and its transpose, as sparse matrices.

        Most counts are zero, and the fit multiplies by both matrices often.
        """
        return csr_array(self.counts), csr_array(self.counts.T)

    @classmethod
    def of(cls, table: AnswerTable) -> Labelings:
        """Return the possible labelings of the requests in ``table``.

        A labeling assigns a type of answer to each of a request's classes of agreeing wrong answers.
        """
        width, answers = len(table.contexts) * N_TYPES, [context.answers for context in table.contexts]
        verdicts = table.verdicts
        known: dict[tuple[object, ...], int] = {}
        pattern_of: list[int] = []
        patterns: list[int] = []
        rows: list[npt.NDArray[np.float64]] = []
        bounds = np.searchsorted(table.request, np.arange(len(table.requests) + 1))
        for r in range(len(table.requests)):
            here = slice(bounds[r], bounds[r + 1])
            # Requests that show the same have the same labelings and the same likelihood, so each pattern is enumerated once.
            firsts: dict[int, int] = {}  # a key of labelings: classes numbered in the order of rows
            kinds = tuple(-1 if kind < 0 else firsts.setdefault(kind, len(firsts)) for kind in table.kind[here].tolist())
            key = (kinds, *(getattr(table, name)[here].tobytes() for name in ("context", "right", "evidence")))
            key = (*key, verdicts.column[here].tobytes())
            pattern_of.append(known.setdefault(key, len(known)))
            if pattern_of[-1] < len(known) - 1 or (patterns and patterns[-1] == pattern_of[-1]):
                continue
            base = np.zeros(width + int(np.prod(verdicts.shape)))
            for column, score, weight in zip(verdicts.column[here], table.right[here], table.evidence[here], strict=True):
                for at, share in verdicts.counts_of(int(column), float(score)) if column >= 0 else ():
                    base[width + at] += weight * share
            # What the labels settle goes into the base: right answers, missing ones, and wrong answers that agree with a right
            # one. Only wrong classes remain open, and only these are enumerated.
            right_class = {int(k) for k, right in zip(table.kind[here], table.right[here], strict=True) if right >= 1.0}
            of_class: dict[int, npt.NDArray[np.float64]] = {}
            givers: dict[int, set[str]] = {}
            for context, right, kind, weight in zip(
                table.context[here], table.right[here], table.kind[here], table.evidence[here], strict=True
            ):
                if not answers[context]:
                    continue
                base[context * N_TYPES + RIGHT] += weight * right
                if right >= 1.0:
                    continue
                if kind < 0:
                    base[context * N_TYPES + NONE] += weight * (1.0 - right)
                    continue
                if kind in right_class:
                    base[context * N_TYPES + ALIKE] += weight * (1.0 - right)
                    continue
                of_class.setdefault(int(kind), np.zeros(len(table.contexts)))[context] += weight * (1.0 - right)
                givers.setdefault(int(kind), set()).add(table.contexts[context].model)
            # A class that two models gave cannot be a unique mistake, since U agrees with nothing. The assignments contain that
            # rule.
            for types in _assignments([len(givers[kind]) > 1 for kind in of_class], may_be_alike=not right_class):
                row = base.copy()
                for type_, counts in zip(types, of_class.values(), strict=True):
                    row[type_:width:N_TYPES] += counts
                patterns.append(pattern_of[-1])
                rows.append(row)
        return cls(np.array(pattern_of, np.int64), np.array(patterns, np.int64), np.array(rows))


def _assignments(shared: Sequence[bool], *, may_be_alike: bool) -> list[tuple[int, ...]]:
    """Return the possible assignments of types to a request's classes of agreeing wrong answers, each as one type per class.

    Only the first four classes are distinguished; all others are of type U (wrong in a unique way). If this leaves no
    assignment, all classes are of type U.

    Args:
        shared: for each class, whether several models gave the answer.
        may_be_alike: whether a class may be of type V (wrong, but equal to a right answer according to ``agree``).
    """
    found = []
    allowed = (OWN, USUAL, SECOND, ALIKE) if may_be_alike else (OWN, USUAL, SECOND)
    # Four classes are distinguished and the others are OWN, since the assignments multiply with every further class.
    for first in product(allowed, repeat=min(len(shared), 4)):
        types = first + (OWN,) * (len(shared) - len(first))
        several = [type_ for type_ in types if type_ != OWN]
        if len(set(several)) == len(several) and not any(
            is_shared and type_ == OWN for is_shared, type_ in zip(shared, types, strict=True)
        ):
            found.append(types)
    return found or [tuple(OWN for _ in shared)]


def fit_answers(
    table: AnswerTable,
    *,
    labelings: Labelings | None = None,
    weights: FloatArray | None = None,
    centre: FloatArray | None = None,
) -> AnswerFit:
    """Fit the latent model of answers by expectation maximization (EM) and return it.

    Args:
        table: The answers.
        labelings: The table's labelings, if several fits share them; None to enumerate them here.
        weights: The weight of each request (for the bootstrap), shape (requests,); None means 1.
        centre: Means of the effects' priors in standard deviations, shape (2, effects); None for 0. The first row is for
            ``right_effects``, the second for ``usual_effects`` of :class:`AnswerFit`.
    """
    weights = np.ones(len(table.requests)) if weights is None else weights
    labelings, grid = Labelings.of(table) if labelings is None else labelings, Grid.new()
    n, price = len(table.contexts), _log_price(table)
    of_right, of_usual = (None, None) if centre is None else centre
    right = Features.of(table.contexts, 1.0, price, of_right)
    usual = Features.of(table.contexts, 0.7, price, of_usual)
    again, (rows, same) = [c.is_again for c in table.contexts], table.repeats.sum(axis=0)  # of all models: such rows are few
    model = AnswerFit(
        contexts=table.contexts, labels=table.labels, grid=grid, log_weights=grid.log_prior, features=right,
        right_effects=np.zeros(len(right.sd)), usual_effects=np.zeros(len(usual.sd)),
        none=np.full(n, 0.05), alike=np.full(n, 0.02), second=0.3, label_rates=_label_rates(table, weights),
        same_again=np.where(again, (same + 0.5 * PSEUDO_COUNTS) / (rows + PSEUDO_COUNTS), np.nan),
        label_follows_class=table.label_follows_class,
        cost_usd=np.zeros(n), size=np.ones(len(grid)), growth=0.0, turn=np.zeros(n),
        verdicts=table.verdicts, verdict_effects=table.verdicts.no_effects(),
    )  # fmt: skip
    fit = _Fit(labelings, weights, usual)
    return _with_dollars(fit.run(model, ITERATIONS), table, weights, fit)


class _Fit:
    def __init__(self, labelings: Labelings, weights: FloatArray, usual: Features) -> None:
        self.labelings, self.usual = labelings, usual
        self.counts, self.transposed = labelings.sparse
        self.weights = np.bincount(labelings.pattern_of, weights)
        self.starts = np.searchsorted(labelings.pattern, np.arange(len(self.weights)))

    def run(self, model: AnswerFit, iterations: int) -> AnswerFit:
        if any(context.after for context in model.contexts):
            model = self._begun(model)
        for _ in range(iterations):
            # E step: how probable each reading of a request (types of its wrong classes, latent point) is, given everything
            # that it shows.
            posterior = self.posterior(model)
            every, of_types = self.transposed @ posterior, len(model.contexts) * N_TYPES
            counts = every[:of_types].reshape(len(model.contexts), N_TYPES, -1)
            said = every[of_types:].reshape(*model.verdicts.shape, every.shape[1])
            # The prior counts as requests do, so that few of them cannot empty a grid point. M step: effects by one Newton step
            # on expected counts; shares (alike, none, second) by counts with pseudo-counts.
            of_grid = posterior.sum(axis=0) + GRID_PRIOR * np.exp(model.grid.log_prior)
            model = replace(
                model,
                log_weights=np.log(of_grid / of_grid.sum()),
                verdict_effects=model.verdicts.stepped(model.verdict_effects, said, model.grid.easy),
                right_effects=_newton(
                    model.features,
                    model.right_effects,
                    counts[:, RIGHT] + counts[:, ALIKE],
                    counts.sum(axis=1),
                    model.grid.easy,
                ),
                usual_effects=_newton(
                    self.usual, model.usual_effects, counts[:, USUAL], counts[:, USUAL:].sum(axis=1), model.grid.popular
                ),
                alike=_share_of(counts, [ALIKE], [RIGHT, ALIKE], model.contexts, 0.02),
                none=_share_of(counts, [NONE], [NONE, USUAL, SECOND, OWN], model.contexts, 0.05),
                second=float((counts[:, SECOND].sum() + 0.3 * PSEUDO_COUNTS)
                             / (counts[:, SECOND:].sum() + PSEUDO_COUNTS)),
            )  # fmt: skip
        return model

    def _begun(self, model: AnswerFit) -> AnswerFit:
        """Return the model with initial values of ``right_effects``.

        They are fitted as if nothing were known about the latent traits of any single request.
        """
        # At the beginning the first labeling of each pattern suffices.
        of_types = self.weights @ self.counts[self.starts][:, : len(model.contexts) * N_TYPES]
        counts = of_types.reshape(len(model.contexts), N_TYPES, 1)
        counts = counts * np.exp(model.grid.log_prior)
        right, effects = counts[:, RIGHT] + counts[:, ALIKE], model.right_effects
        for _ in range(BEGINNING):
            effects = _newton(model.features, effects, right, counts.sum(axis=1), model.grid.easy)
        return replace(model, right_effects=effects)

    def posterior(self, model: AnswerFit) -> FloatArray:
        """Return the expected number of requests that have each labeling and each latent pair; shape (labelings, points).

        A labeling assigns types to a request's wrong answers. A latent pair (point) is an easiness and a popularity of the
        usual mistake. The number is the sum of P(labeling, point | request), times the request's weight, over the requests for
        which the labeling is possible.
        """
        chances = np.concatenate([one.reshape(-1, len(model.grid)) for one in (model.log_types, model.log_verdicts)])
        log = self.counts @ chances + model.log_weights
        # With the largest of each pattern subtracted, exp cannot underflow everywhere.
        highest = np.maximum.reduceat(log.max(axis=1), self.starts)[self.labelings.pattern]
        mass = np.exp(log - highest[:, None])
        total = np.add.reduceat(mass.sum(axis=1), self.starts)
        return np.asarray(mass * (self.weights / total)[self.labelings.pattern][:, None])


def _with_dollars(model: AnswerFit, table: AnswerTable, weights: FloatArray, fit: _Fit) -> AnswerFit:
    """Return the model with the mean cost of each context, and the mean size of requests with each pair of latent traits.

    The size of a result is its cost divided by the mean cost of its context. The mean of a context with few results is shrunk
    towards its model's mean. ``weights`` has the weight of each request; ``fit`` gives the requests' latent traits.
    """
    weight = table.weight * weights[table.request]
    weight = weight * np.array([context.model != SKIP for context in table.contexts])[table.context]  # skipping costs nothing
    n = len(table.contexts)
    of_model = _same_model(table.contexts)
    paid, count = np.bincount(table.context, weight * table.cost_usd, n), np.bincount(table.context, weight, n)
    overall = np.divide(of_model @ paid, of_model @ count, out=np.zeros(n), where=of_model @ count > 0.0)
    mean = (paid + PSEUDO_COUNTS * overall) / (count + PSEUDO_COUNTS)
    size = np.divide(table.cost_usd, mean[table.context], out=np.ones(len(table)), where=mean[table.context] > 0.0)
    posterior = np.add.reduceat(fit.posterior(model), fit.starts, axis=0)
    posterior /= np.maximum(posterior.sum(axis=1, keepdims=True), TINY)
    pattern = fit.labelings.pattern_of[table.request]
    at = posterior[pattern] * weight[:, None]
    of_point = ((at * size[:, None]).sum(axis=0) + PSEUDO_COUNTS) / (at.sum(axis=0) + PSEUDO_COUNTS)
    of_point /= float(np.exp(model.log_weights) @ of_point)
    expected = np.bincount(table.context, weight * (posterior @ of_point)[pattern], n)
    usual = _usual_dollars(table, np.asarray(paid, np.float64), np.asarray(expected, np.float64))
    cost_usd = (paid + PSEUDO_COUNTS * usual) / (expected + PSEUDO_COUNTS)
    turn, growth = _growth(table, weight, cost_usd[table.context] * (posterior @ of_point)[pattern])
    return replace(model, cost_usd=cost_usd, size=of_point, turn=turn, growth=growth)


def _usual_dollars(table: AnswerTable, paid: FloatArray, expected: FloatArray) -> FloatArray:
    """Return the prior cost of each context in dollars, towards which the costs of contexts with few results are shrunk.

    A context is everything that an answer depends on, except the request. Its prior cost is its model's cost times a factor
    for its position among the request's calls. No later position gets a smaller factor than the first.

    Args:
        table: The answers.
        paid: The total cost of each context's results, in dollars.
        expected: The number of each context's results, in results of mean size.
    """
    same, later = _same_model(table.contexts), np.array([c.is_later for c in table.contexts])
    place = [(c.is_later, c.is_later and c.stage) for c in table.contexts]
    alike = np.array([[float(one == other) for other in place] for one in place])
    dearer = np.ones(len(place))
    for _ in range(DOLLAR_ROUNDS):
        below = same @ (expected * dearer)
        usual = np.divide(same @ paid, below, out=np.zeros(len(place)), where=below > 0.0)
        rows = np.divide(paid, usual, out=expected.copy(), where=usual > 0.0)
        ratio = (alike @ rows + PSEUDO_COUNTS) / (alike @ expected + PSEUDO_COUNTS)
        dearer = np.where(later, np.maximum(ratio / ratio[~later].mean(), 1.0), 1.0) if (~later).any() else dearer
    return usual * dearer


def _growth(table: AnswerTable, weight: FloatArray, expected_usd: FloatArray) -> tuple[FloatArray, float]:
    """Return the mean number of earlier calls in each context, and the relative growth of the cost per earlier call.

    A context is everything that an answer depends on, except the request. The growth is estimated by least squares within
    contexts, shrunk towards 0, and never negative.

    Args:
        table: The answers.
        weight: The weight of each answer.
        expected_usd: The cost of each answer in dollars that its context and the size of its request imply.
    """
    n = len(table.contexts)
    count = np.bincount(table.context, weight, n)
    later = np.array([context.is_later for context in table.contexts])
    total = np.bincount(table.context, weight * table.turn, n)
    usual = total[later].sum() / max(float(count[later].sum()), TINY)
    turn = np.where(count > 0.0, total / np.maximum(count, TINY), np.where(later, usual, 0.0))
    away = table.turn - turn[table.context]
    excess = np.divide(table.cost_usd, expected_usd, out=np.ones(len(table)), where=expected_usd > 0.0) - 1.0
    return turn, max(0.0, float((weight * away * excess).sum() / ((weight * away**2).sum() + PSEUDO_COUNTS)))


def _newton(features: Features, effects: FloatArray, yes: FloatArray, asked: FloatArray, offset: FloatArray) -> FloatArray:
    """Return the effects (the coefficients of the features) after one Newton step of a logistic regression with normal priors.

    ``yes`` and ``asked`` are the numbers of yes answers and of all answers, shape (contexts, points). A point is a pair of
    values of the latent traits. ``offset`` is the part of the logit at each point that does not depend on the effects.
    """
    x = features.matrix
    p = sigmoid((x @ effects)[:, None] + offset)
    gradient = x.T @ (yes - asked * p).sum(axis=1) - (effects - features.mean) / features.sd**2
    curvature = (x * (asked * p * (1.0 - p)).sum(axis=1)[:, None]).T @ x + np.diag(1.0 / features.sd**2)
    return np.asarray(effects + np.clip(np.linalg.solve(curvature, gradient), -1.0, 1.0))


def _log_price(table: AnswerTable) -> FloatArray:
    """Return, for each context, how expensive its model is: the log10 of the model's mean cost per call, shape (contexts,).

    A context is everything that an answer depends on, except the request. The mean of the logarithm over all models is
    subtracted. Very cheap models count as equally cheap. All values are 0 if at least half of the models are free.
    """
    n, same = len(table.contexts), _same_model(table.contexts)
    rows = same @ np.bincount(table.context, minlength=n)
    first = (same.argmax(axis=1) == np.arange(n)) & (rows > 0.0)  # one context of each model
    mean = same @ np.bincount(table.context, table.cost_usd, n) / np.maximum(rows, 1.0)
    least = LEAST_PRICE * float(np.median(mean[first]))
    log = np.log10(np.maximum(mean, least)) if least > 0.0 else np.zeros(n)
    return np.asarray(log - log[first].mean())


def _same_model(contexts: Sequence[Context]) -> FloatArray:
    """Return a matrix that is 1 for each pair of contexts with the same model, otherwise 0; shape (contexts, contexts).

    It is also 0 if the stage of only one of the two contexts writes answers.
    """
    models = np.array([f"{c.answers}{c.model}" for c in contexts])
    return np.asarray(models[:, None] == models, np.float64)


@lru_cache(maxsize=8)
def _shares_signal(contexts: tuple[Context, ...]) -> tuple[FloatArray, FloatArray]:
    """Return two 0/1 matrices with an entry for each pair of contexts, of shape (contexts, contexts). Cached.

    A context is everything that an answer depends on, except the request. An entry of the first matrix is 1 if both contexts
    follow the same signal of a stage without answers, or neither follows such a stage. In the second matrix the contexts must
    also have the same model; see :func:`_same_model`.
    """
    names = {signal: place for place, signal in enumerate({c.after[2:] for c in contexts})}
    signals = np.array([names[c.after[2:]] for c in contexts])
    alike = np.asarray(signals[:, None] == signals, np.float64)
    return alike, _same_model(contexts) * alike


def _share_of(counts: FloatArray, some: list[int], among: list[int], contexts: tuple[Context, ...], usual: float) -> FloatArray:
    """Return, for each context, P(an answer's type is in ``some`` | it is in ``among``), shrunk towards the mean of all models.

    After a stage without an answer, the probability is computed separately for each signal, because the outcome of such a stage
    changes it.

    Args:
        counts: The expected number of answers of each type, shape (contexts, types, points). A point is a pair of values of
            the latent traits.
        some: The numbers of the types whose share is estimated.
        among: The numbers of all types that are considered, including ``some``.
        contexts: What an answer depends on, except the request: its stage, its model and more. Those of one model are estimated
            together.
        usual: The value towards which the mean of all models is shrunk.
    """
    yes, asked = counts[:, some].sum(axis=(1, 2)), counts[:, among].sum(axis=(1, 2))
    overall = (yes.sum() + usual * PSEUDO_COUNTS) / (asked.sum() + PSEUDO_COUNTS)
    alike, of_model = _shares_signal(contexts)
    of_signal = (alike @ yes + PSEUDO_COUNTS * overall) / (alike @ asked + PSEUDO_COUNTS)
    towards = np.where([bool(c.after[2:]) for c in contexts], of_signal, overall)
    return np.asarray((of_model @ yes + PSEUDO_COUNTS * towards) / (of_model @ asked + PSEUDO_COUNTS))


def _label_rates(table: AnswerTable, weights: FloatArray) -> FloatArray:
    """Return P(label | context, right / none / wrong): the probability of each label of a right, missing or wrong answer.

    The shape is (contexts, 3, labels). The rates are estimated for each model, and shrunk towards those of all contexts with
    the same possible next stages.
    """
    counts = np.zeros((len(table.contexts), 3, len(table.labels)))
    weight = table.evidence * weights[table.request]
    right, other = np.zeros_like(table.context), np.where(table.kind < 0, 1, 2)
    np.add.at(counts, (table.context, right, table.label), weight * table.right)
    np.add.at(counts, (table.context, other, table.label), weight * (1.0 - table.right))
    found = np.zeros(counts.shape)
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, c in enumerate(table.contexts):
        groups[c.arms, () if c.answers else (c.stage, c.after[2:], c.keeps)].append(i)
    for at in groups.values():  # contexts after which the same stages may follow
        contexts = [table.contexts[i] for i in at]
        possible = np.array([label.arm in (None, *contexts[0].arms) for label in table.labels])
        possible |= not possible.any()  # no row has come so far
        pooled = counts[at].sum(axis=0)
        prior = (pooled.sum(axis=0) + 1.0) * possible
        pooled = (pooled + prior / prior.sum()) / (pooled.sum(axis=1, keepdims=True) + 1.0)
        of_model = np.einsum("cd,dkl->ckl", _same_model(contexts), counts[at])
        rates = (of_model + PSEUDO_COUNTS * pooled) / (of_model.sum(axis=2, keepdims=True) + PSEUDO_COUNTS)
        is_here = np.isin(table.context, at)
        for kinds, with_answer in ((slice(1, 2), False), (slice(0, None, 2), True)):
            seen = np.isin(np.arange(len(table.labels)), table.label[is_here & ((table.kind >= 0) == with_answer)])
            rates[:, kinds] *= seen if seen.any() else possible * [not label.passed for label in table.labels]
        total = rates.sum(axis=2, keepdims=True)
        even = np.broadcast_to(possible / possible.sum(), rates.shape).copy()
        found[at] = np.divide(rates, total, out=even, where=total > 0.0)
    return found

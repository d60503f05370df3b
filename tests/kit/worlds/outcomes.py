"""Random latent models of answers, small enough to write out every sequence of answers, and the tries that follow from them."""

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kit.catalogs import make_catalog
from vinelm.estimator.signals.answers import Context
from vinelm.estimator.signals.build import signals_trie
from vinelm.estimator.signals.course import Course
from vinelm.estimator.signals.predictive import Predictive
from vinelm.signals import Label
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie

LABELS = (Label(False, None), Label(True, None), Label(False, "odd"))
RIGHT, NONE, ALIKE, USUAL, SECOND, OWN = range(6)


def small_template(models, depth):
    """generate, then repair."""
    steps = (
        (Stage("generate", models),) if depth == 1 else (Stage("generate", models), Loop((Stage("repair", models),), depth - 1))
    )
    return Template(steps)


def random_predictive(rng, *, n_models=2, depth=2, n_labels=2, fits=1, points=2, follows=False, again=True):
    """Draw a model at random; points are spread evenly over the fits, sizes have mean 1."""
    models = tuple(f"m{i}" for i in range(n_models))
    contexts = sorted(
        {Context("generate", m, False, False) for m in models}
        | {Context("repair", m, True, is_again) for m in models for is_again in {False, again} if depth > 1}
    )
    types = rng.dirichlet(np.ones(6), (len(contexts), fits * points)).transpose(0, 2, 1)
    weights = rng.dirichlet(np.ones(points), fits).ravel() / fits
    size = rng.uniform(0.5, 2.0, fits * points)
    cost_usd = rng.uniform(0.1, 2.0, len(contexts))
    return Predictive(
        contexts=tuple(contexts),
        labels=LABELS[:n_labels],
        log_types=np.log(types),
        log_weights=np.log(weights),
        size=size / (weights @ size),
        fit=np.repeat(np.arange(fits), points),
        n_fits=fits,
        label_rates=rng.dirichlet(np.ones(n_labels), (len(contexts), 3)),
        same_again=np.where([c.is_again for c in contexts], rng.random(len(contexts)), np.nan),
        label_follows_class=follows,
        cost_usd=cost_usd,
        cost_by_fit=np.repeat(cost_usd[:, None], fits, axis=1),
    )


def chain(stages):
    """The course of these (stage, models)."""
    return Course.chain([stage for stage, _ in stages], dict(stages))


def path_trie(rng, n_models=2, depth=2):
    """A path trie with random annotations: what a trie of outcomes takes its seconds from."""
    template = small_template(tuple(f"m{i}" for i in range(n_models)), depth)
    trie = Trie.from_template(template)
    n = len(trie)
    stop = rng.uniform(0.1, 0.6, n)
    return AnnotatedTrie(
        trie, template, make_catalog(n_models), success=stop + (1 - stop) * rng.uniform(0, 0.5, n), stop=stop,
        stop_success=stop * rng.random(n), cost_usd=rng.uniform(0.1, 2.0, n), cost_var=rng.random(n),
        latency_s=rng.uniform(0.1, 2.0, n), latency_var=rng.random(n), accuracy_se=rng.uniform(0.01, 0.05, n),
    )  # fmt: skip


def random_outcome_trie(rng, *, n_models=2, depth=2, goes_on=True, least_reach=0.0, **of_model):
    """A random trie of outcomes, the model that it follows from, and its path trie."""
    model = random_predictive(rng, n_models=n_models, depth=depth, **of_model)
    path = path_trie(rng, n_models, depth)
    return signals_trie(path, model, goes_on=goes_on, least_reach=least_reach), model, path


def agree(one, other):
    """Whether answers of two types are equal. R agrees with V."""
    alike = {RIGHT: "right", ALIKE: "right", USUAL: "usual", SECOND: "second"}
    return one in alike and alike[one] == alike.get(other)


class Answer(NamedTuple):
    """An answer of a sequence: who gave it, its type, its class (-1 without an answer) and its label."""

    model: int
    type: int
    kind: int
    label: int


def every_history(model, stages, models, *, goes_on):
    """Enumerate all sequences of answers with their types and labels.

    Returns:
        For each history, a tuple of (model, label, class), its reach, and the mass of "class j is right" by j, and that by fit.
    """
    reach, right = defaultdict(float), defaultdict(lambda: defaultdict(float))
    by_fit = defaultdict(lambda: defaultdict(lambda: np.zeros(model.n_fits)))

    def answered(answers, mass):
        shown = tuple((answer.model, answer.label, answer.kind) for answer in answers)
        if shown:
            reach[shown] += mass.sum()
            for kind, first in firsts(answers).items():
                if first.type == RIGHT:
                    right[shown][kind] += mass.sum()
                    by_fit[shown][kind] += np.bincount(model.fit, mass, model.n_fits) * model.n_fits
        if len(shown) == len(stages) or (shown and not goes_on and model.labels[answers[-1].label].passed):
            return
        stage, allowed = stages[len(shown)]
        for m, name in enumerate(models):
            context = Context(stage, name, bool(shown), any(answer.model == m for answer in answers))
            if name in allowed and context in model.contexts:
                for answer, chance in next_answers(model, model.contexts.index(context), m, answers):
                    answered((*answers, answer), mass * chance)

    answered((), np.exp(model.log_weights))
    return reach, right, by_fit


def firsts(answers):
    """The first answer of each class."""
    found = {}
    for answer in answers:
        if answer.kind >= 0:
            found.setdefault(answer.kind, answer)
    return found


def next_answers(model, context, m, answers):
    """Yield every answer that a model may give, and the chance of it at each point."""
    of_right, of_none, of_wrong = model.label_rates[context]
    known, before = firsts(answers), [answer for answer in answers if answer.model == m]
    same = model.same_again[context] if before else 0.0
    for type_ in range(6):
        chance = (1 - same) * np.exp(model.log_types[context, type_])
        kind = -1
        rates = of_none if type_ == NONE else of_right if type_ in (RIGHT, ALIKE) else of_wrong
        if type_ != NONE:
            kind = next((k for k, first in sorted(known.items()) if agree(first.type, type_)), len(known))
            if kind in known and model.label_follows_class:
                rates = np.eye(len(rates))[known[kind].label]
        for label, rate in enumerate(rates):
            if rate:
                yield Answer(m, type_, kind, label), chance * rate
    if before:
        _, type_, kind, _ = before[-1]
        rates = of_none if kind < 0 else np.eye(len(of_none))[known[kind].label]
        for label, rate in enumerate(rates):
            if rate:
                yield Answer(m, type_, kind, label), same * rate


def sequences(levels):
    """The histories of :func:`histories` as tuples of (model, label, class), level by level."""
    found = []
    for before, level in pairwise((None, *levels)):
        own = zip(level.model.tolist(), level.label.tolist(), level.kind.tolist(), strict=True)
        if before is None:
            found.append([(step,) for step in own])
        else:
            found.append([(*found[-1][p], step) for p, step in zip(level.parent.tolist(), own, strict=True)])
    return found

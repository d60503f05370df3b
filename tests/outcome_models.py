"""Random latent models of answers, small enough to write out every sequence of answers, and the tries that follow from them."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
from conftest import make_catalog

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.estimator.signals.answers import Context
from vinelm.estimator.signals.build import signals_trie
from vinelm.estimator.signals.predictive import Predictive
from vinelm.signals import Label
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie

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
        cost_usd=rng.uniform(0.1, 2.0, len(contexts)),
    )


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


def every_history(model, stages, models, *, goes_on):
    """Enumerate all sequences of answers with their types and labels.

    Returns:
        For each history, a tuple of (model, label, class), its reach, and the mass of "class j is right" by j and by fit.
    """
    reach, right = defaultdict(float), defaultdict(lambda: defaultdict(float))
    by_fit = defaultdict(lambda: defaultdict(lambda: np.zeros(model.n_fits)))

    def answered(d, shown, answers, mass):
        """``answers``: (model, type, class, label) of each; type None of one without an answer."""
        if d:
            reach[shown] += mass.sum()
            firsts = {}
            for _, type_, kind, _ in answers:
                if kind >= 0:
                    firsts.setdefault(kind, type_)
            for kind, type_ in firsts.items():
                if type_ == RIGHT:
                    right[shown][kind] += mass.sum()
                    by_fit[shown][kind] += np.bincount(model.fit, mass, model.n_fits) * model.n_fits
            if not goes_on and model.labels[shown[-1][1]].passed:
                return
        if d == len(stages):
            return
        stage, allowed = stages[d]
        for m, name in enumerate(models):
            before = [answer for answer in answers if answer[0] == m]
            context = Context(stage, name, d > 0, bool(before))
            if name not in allowed or context not in model.contexts:
                continue
            c = model.contexts.index(context)
            same = model.same_again[c] if before else 0.0
            rates = dict(zip(("right", "none", "wrong"), model.label_rates[c], strict=True))
            for type_ in range(6):
                chance = (1 - same) * np.exp(model.log_types[c, type_])
                if type_ == NONE:
                    options = [(-1, label, rate) for label, rate in enumerate(rates["none"])]
                else:
                    firsts = {}
                    for _, earlier, kind, label in answers:
                        if kind >= 0:
                            firsts.setdefault(kind, (earlier, label))
                    kind = next((k for k, (first, _) in sorted(firsts.items()) if agree(first, type_)), len(firsts))
                    if kind in firsts and model.label_follows_class:
                        options = [(kind, firsts[kind][1], 1.0)]
                    else:
                        drawn = rates["right" if type_ in (RIGHT, ALIKE) else "wrong"]
                        options = [(kind, label, rate) for label, rate in enumerate(drawn)]
                for kind, label, rate in options:
                    go(d, shown, answers, (m, type_, kind, label), mass * chance * rate)
            if before and same:
                _, type_, kind, _ = before[-1]
                if kind < 0:
                    options = list(enumerate(rates["none"]))
                else:
                    options = [(next(label for _, _, k, label in answers if k == kind), 1.0)]
                for label, rate in options:
                    go(d, shown, answers, (m, type_, kind, label), mass * same * rate)

    def go(d, shown, answers, answer, mass):
        m, _, kind, label = answer
        answered(d + 1, (*shown, (m, label, kind)), (*answers, answer), mass)

    answered(0, (), (), np.exp(model.log_weights))
    return reach, right, by_fit


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

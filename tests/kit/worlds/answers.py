"""Requests drawn from a known latent model of answers: rows for the estimator, and what a plan achieves."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kit.catalogs import make_catalog
from vinelm.rows.observation import Observation
from vinelm.signals import Outcome
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie

RIGHT, NONE, ALIKE, USUAL, SECOND, OWN = range(6)
PRICES = (1.0, 3.0, 10.0)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


@dataclass(frozen=True, eq=False)
class World:
    """One answer of each model to each request, whatever was asked before; a model that is asked again repeats itself.

    Args:
        types: Of each answer, shape (requests, models).
        passed: Whether the workflow's own check passes it; same shape.
        odd: Whether it shows the signal "odd".
    """

    types: np.ndarray
    passed: np.ndarray
    odd: np.ndarray

    @classmethod
    def draw(cls, rng, n, *, ability=(-0.3, 0.6, 1.6), usual=(0.4, 0.2, 0.0)):
        """Easiness and popularity are normal, as in the model; the check passes most right answers and half of the wrong."""
        easy, popular = rng.normal(0, 2.0, n)[:, None], rng.normal(0, 1.0, n)[:, None]
        p, u = sigmoid(easy + np.array(ability)), sigmoid(popular + np.array(usual))
        answered = (1 - p) * 0.9
        wrong = answered * 0.97
        chances = np.stack([p, (1 - p) * 0.1, answered * 0.03, wrong * u, wrong * (1 - u) * 0.3, wrong * (1 - u) * 0.7], axis=2)
        types = (rng.random(p.shape)[:, :, None] > chances.cumsum(axis=2)[:, :, :-1]).sum(axis=2)
        is_like_right = np.isin(types, (RIGHT, ALIKE))
        draws = rng.random((2, n, 7))  # of each class one draw, so that labels follow from the answer
        kind = np.where(types == OWN, 4 + np.arange(p.shape[1]), np.where(types == ALIKE, RIGHT, types))
        draw = np.take_along_axis(draws, kind[None], axis=2)
        passed = (draw[0] < np.where(is_like_right, 0.9, 0.45)) & (types != NONE)
        odd = (draw[1] < np.where(is_like_right, 0.1, 0.4)) & (types != NONE)
        return cls(types, passed, odd)

    def __len__(self):
        return len(self.types)

    def same(self, request, one, other):
        """Whether two models' answers agree."""
        a, b = self.types[request, [one, other]]
        return one == other or (a == b != OWN) or {int(a), int(b)} == {RIGHT, ALIKE}

    def classes(self, request, models):
        """The class of each answer, by first appearance; -1 without one."""
        found, firsts = [], []
        for m in models:
            if self.types[request, m] == NONE:
                found.append(-1)
                continue
            kind = next((k for k, first in enumerate(firsts) if self.same(request, first, m)), len(firsts))
            firsts += [m] if kind == len(firsts) else []
            found.append(kind)
        return found

    def rows(self, paths):
        """The rows of some paths of models for each request: ``paths(request)``; going on below a passed check."""
        for request in range(len(self)):
            prefixes = sorted({path[:k] for path in paths(request) for k in range(1, len(path) + 1)}, key=lambda p: (len(p), p))
            for prefix, kind in zip(prefixes, self.classes(request, [p[-1] for p in prefixes]), strict=True):
                m = prefix[-1]
                yield Observation(
                    request_id=f"q{request:05d}", prefix=tuple(f"m{i}" for i in prefix),
                    stage="generate" if len(prefix) == 1 else "repair", success=bool(self.types[request, m] == RIGHT),
                    stopped=bool(self.passed[request, m]), cost_usd=PRICES[m], latency_s=1.0,
                    signal="odd" if self.odd[request, m] else None, answer_class=None if kind < 0 else kind,
                    is_continued=any(self.passed[request, i] for i in prefix[:-1]),
                )  # fmt: skip

    @cached_property
    def right(self):
        return self.types == RIGHT

    def follow(self, signals, plan):
        """Serve every request by a plan: whether what it returns is right, and what the trie promised there."""
        trie, outcomes, found = signals.trie, signals.outcomes, []
        next_model = {}
        for request in range(len(self)):
            node, asked, place = 0, [], -1
            stage = trie.stages[0]
            while True:
                if (node, stage) not in next_model:
                    next_model[node, stage] = plan.next_model(node, stage)
                model = next_model[node, stage]
                if model is None:
                    break
                asked.append(int(model[1:]))
                node = trie.child(node, model, stage)
                m, kinds = asked[-1], self.classes(request, asked)
                shown = Outcome("odd" if self.odd[request, m] else None, None if kinds[-1] < 0 else kinds[-1])
                place = outcomes.seen(node, shown, passed=bool(self.passed[request, m])).place
                if outcomes.arm[place] < 0:
                    break
                stage = trie.stages[outcomes.arm[place]]
            returned = int(outcomes.returned[place])
            right = returned in kinds and bool(self.right[request, asked[kinds.index(returned)]])
            found.append((right, outcomes.right[place] / outcomes.chance[place]))
        return np.array(found, float)


def path_trie(depth=3):
    """A path trie that only says which paths there are."""
    models = ("m0", "m1", "m2")
    template = Template((Stage("generate", models), Loop((Stage("repair", models),), depth - 1)))
    trie = Trie.from_template(template)
    arrays = {name: np.full(len(trie), 0.5) for name in ("success", "stop", "cost_usd", "latency_s")}
    arrays |= {name: np.zeros(len(trie)) for name in ("stop_success", "cost_var", "latency_var", "accuracy_se")}
    return AnnotatedTrie(trie, template, make_catalog(3), **arrays)

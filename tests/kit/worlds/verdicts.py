"""Small worlds for the verdict: stores of simulated rows, where more freedom than a static plan helps or not."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import vinelm
from kit.catalogs import make_catalog
from kit.templates import make_template
from vinelm.evaluation import Evaluation
from vinelm.objective import Objective
from vinelm.rows.observation import Observation
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.trie import Trie

N_REQUESTS = 160
"""Requests of a world; half of them judge each plan."""
WALKS = 16
"""Paths of each request whose rows are bought."""


@dataclass(frozen=True)
class World:
    """A world of three models, drawn with a seed.

    Kinds: "alike", all models equal in all; "one-wins", one model cheaper and better than the others; "gain", in which a third
    model mends what two others left, while a model that is asked twice in a row does not, so that no static plan is best.
    """

    kind: str
    seed: int

    def evaluation(self, folder: Path, objective: Objective | None = None) -> Evaluation:
        """Return what `evaluate` says of a store of this world."""
        store = self.store(folder / f"{self.kind}-{self.seed}.db")
        return vinelm.evaluate(store, objective=objective, seed=self.seed)

    def store(self, path: Path) -> Path:
        """Write the rows of random paths. Requests differ in difficulty; every call draws its own answer, price and time."""
        rng = np.random.default_rng([self.seed, len(self.kind)])
        catalog, template = make_catalog(3), make_template(3, 3).bind(("m0", "m1", "m2"))
        identity = StoreIdentity(
            workflow="a world", template=template.to_dict(), catalog=catalog.to_dict(), dataset_digest="d", fingerprint={},
            is_simulated=True, created_at="2026-01-01T00:00:00+00:00",
        )  # fmt: skip
        trie, names = Trie.from_template(template), [f"q{i}" for i in range(N_REQUESTS)]
        skill = self._skill(trie)
        with ObservationStore.create(path, identity) as store:
            store.register_digests(dict.fromkeys(names, "x"))
            for name in names:
                store.add_many(self._rows(rng, name, trie, skill + 0.25 * rng.standard_normal()))
        return path

    def _rows(self, rng, request, trie, chance):
        shape = len(trie)
        right = rng.random(shape) < np.clip(chance, 0.02, 0.98)
        stopped = rng.random(shape) < np.where(right, 0.95, 0.15)
        price = np.array([0.4, 1.0, 1.5])[trie.model] if self.kind == "one-wins" else np.ones(shape)
        cost_usd, latency_s = price * rng.lognormal(-6, 0.4, shape), rng.lognormal(0, 0.4, shape)
        found = {}
        for end in rng.choice(np.flatnonzero(trie.depth == 3), WALKS):
            for node in trie.path(int(end)):
                prefix = trie.prefix(int(node))
                found[prefix] = Observation(
                    request_id=request, prefix=prefix, stage=("generate", "repair")[len(prefix) > 1],
                    success=bool(right[node]), stopped=bool(stopped[node]),
                    cost_usd=float(cost_usd[node]), latency_s=float(latency_s[node]),
                )  # fmt: skip
                if stopped[node]:
                    break
        return list(found.values())

    def _skill(self, trie: Trie) -> np.ndarray:
        """Chance of a right answer at each node for a request of mean difficulty."""
        if self.kind == "one-wins":
            return np.array([0.7, 0.5, 0.45])[trie.model]
        skill = np.full(len(trie), 0.4)
        gain = 0.5 if self.kind == "gain" else 0.0
        for node in np.flatnonzero(trie.depth == 3):
            used = trie.prefix(int(node))
            skill[node] += gain if len(set(used)) == 3 else -gain / 2
        return skill

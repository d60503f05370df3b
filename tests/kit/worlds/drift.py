"""A small trie, and rows that are served as it says, or not."""

import numpy as np

from vinelm.catalog import Catalog
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie

PRICE = {"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2025-06-01"}
CATALOG = Catalog.from_dict({"model": [{"name": n, "provider": "simulated", "model": n, "price": PRICE} for n in "ab"]})
TEMPLATE = Template((Stage("generate"), Loop((Stage("repair"),), times=1))).bind(("a", "b"))


def made_trie(stop=0.4) -> AnnotatedTrie:
    trie = Trie.from_template(TEMPLATE)
    inside = trie.depth > 0
    amount = np.where(inside, 2.0, 0.0)
    share = np.where(inside, np.where(trie.is_leaf, 1.0, stop), 0.0)
    return AnnotatedTrie(
        trie, TEMPLATE, CATALOG, success=0.5 * inside, stop=share, stop_success=0.5 * share, cost_usd=0.01 * amount,
        cost_var=1e-4 * amount, latency_s=amount, latency_var=amount, count=np.where(inside, 5000, 0), meta={"workflow": "toy"},
    )  # fmt: skip


def rows(seed, count, *, stop=0.4, dollars=1.0, seconds=1.0, first=0, **more):
    rng = np.random.default_rng(seed)
    for i in range(first, first + count):
        yield Observation(
            request_id=f"r{i}", prefix=("a",), stage="generate", success=None, stopped=bool(rng.random() < stop),
            cost_usd=0.01 * dollars * rng.gamma(2.0, 1.0), latency_s=seconds * rng.gamma(2.0, 1.0), **more,
        )  # fmt: skip

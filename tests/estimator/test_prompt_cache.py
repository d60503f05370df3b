"""What a change of model costs, by edge."""

from dataclasses import replace

import numpy as np
from kit.catalogs import make_catalog
from kit.templates import make_template

from vinelm import AnnotatedTrie
from vinelm.catalog import Catalog
from vinelm.estimator.prompt_cache import cached_shares, edge_of, follow_ups
from vinelm.rows.observation import Observation
from vinelm.trie.trie import Trie


def catalog_on_engines(*engines: str, model_ids: tuple[str, ...] = ("x", "y", "z")) -> Catalog:
    plain = make_catalog(len(engines))
    pairs = zip(plain.models, engines, model_ids, strict=False)
    return Catalog([model.model_copy(update={"engine": engine, "model_id": name}) for model, engine, name in pairs])


def test_a_cache_belongs_to_a_model_on_an_engine():
    a, b, c = catalog = catalog_on_engines("gpu", "gpu", "other", model_ids=("x", "y", "x"))
    assert edge_of((a,), catalog) == "first"
    assert [edge_of((a, then), catalog) for then in (a, b, c)] == ["kept", "switched", "switched"]
    same = catalog_on_engines("gpu", "gpu", model_ids=("x", "x"))  # two settings of one model
    assert edge_of(tuple(same), same) == "kept"


def test_shares_are_of_tokens_and_of_rows_that_say_them():
    catalog = catalog_on_engines("gpu", "gpu")
    a, b = catalog

    def row(*prefix: str, tokens_in: int | None, cached: int | None) -> Observation:
        known = {"request_id": "q", "stage": "s", "success": None, "stopped": None, "cost_usd": 0.0, "latency_s": 0.0}
        return Observation(prefix=prefix, tokens_in=tokens_in, tokens_cached=cached, **known)

    rows = [
        row(a, tokens_in=100, cached=0),
        row(a, a, tokens_in=100, cached=90),
        row(b, a, a, tokens_in=300, cached=0),
        row(b, a, tokens_in=50, cached=5),
        row(a, a, a, tokens_in=100, cached=None),
        row(b, tokens_in=None, cached=7),
    ]
    assert cached_shares(rows, catalog) == {a: {"first": 0.0, "kept": 90 / 400, "switched": 0.1}}


def test_follow_ups_compare_within_a_depth():
    catalog, template = catalog_on_engines("gpu", "gpu"), make_template(2, 3)
    trie = Trie.from_template(template)
    same = np.array([trie.depth[u] > 1 and trie.model[u] == trie.model[trie.parent[u]] for u in range(len(trie))])
    cost = np.where(same, 1.0, 2.0) * trie.depth * (1 + trie.model)  # later turns are dearer for everybody
    zeros = np.zeros(len(trie))
    annotated = AnnotatedTrie(trie, template, catalog, zeros, zeros, zeros, cost, zeros, 3 * cost, zeros)
    a, b = catalog
    expected = {"switched_cost_usd": 5.0, "kept_cost_usd": 2.5, "switched_latency_s": 15.0, "kept_latency_s": 7.5}
    found = {row.pop("model"): row for row in follow_ups(annotated)}
    assert found == {a: expected, b: {name: 2 * value for name, value in expected.items()}}
    one_cache = replace(annotated, catalog=catalog_on_engines("gpu", "gpu", model_ids=("x", "x")))
    assert follow_ups(one_cache) == []

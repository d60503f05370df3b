"""Small random truths, and rows bought from them, for every estimator's tests."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from vinelm.catalog import Catalog
from vinelm.observation import Observation
from vinelm.recorded_table import RecordedTable
from vinelm.template import Loop, Stage, StopRule, Template
from vinelm.trie import Trie

PRICE = {"input": 1.0, "output": 2.0, "source": "a test", "as_of": "2025-06-01"}


def catalog_of(*names: str) -> Catalog:
    return Catalog.from_dict({"model": [{"name": n, "provider": "simulated", "model": n, "price": PRICE} for n in names]})


def template_of(catalog: Catalog, depth: int, stop: StopRule) -> Template:
    return Template((Stage("generate"), Loop((Stage("repair"),), times=depth - 1)), stop).bind(tuple(catalog))


def random_table(seed: int, *, models: int = 2, depth: int = 3, requests: int = 12, stop: StopRule = "oracle") -> RecordedTable:
    """Requests of unlike ease; costs, latencies and the workflow's verdicts at random."""
    rng = np.random.default_rng(seed)
    catalog = catalog_of(*"abcdefgh"[:models])
    template = template_of(catalog, depth, stop)
    trie = Trie.from_template(template)
    shape = (requests, len(trie))
    ease = rng.random((requests, 1))
    cost_usd, latency_s = rng.lognormal(size=shape), rng.lognormal(size=shape)
    cost_usd[:, 0] = latency_s[:, 0] = 0.0  # observations say nothing of what runs before the first invocation
    return RecordedTable(
        template=template, catalog=catalog, trie=trie, request_ids=tuple(f"q{i}" for i in range(requests)),
        success=rng.random(shape) < ease, stopped=rng.random(shape) < 0.5, cost_usd=cost_usd, latency_s=latency_s,
    )  # fmt: skip


def all_rows(table: RecordedTable) -> list[Observation]:
    """A row for every cell that its request reaches."""
    cells = np.argwhere(table.reached[:, 1:])
    return [table.observation(int(r), int(u) + 1) for r, u in cells]


def sampled_rows(table: RecordedTable, seed: int, runs: int) -> list[Observation]:
    """Cascade runs: random request, random models, on until the stop."""
    rng = random.Random(seed)
    rows: dict[tuple[int, int], Observation] = {}
    for _ in range(runs):
        request, node = rng.randrange(len(table.request_ids)), 0
        while (children := table.trie.children(node)) and not (node and table.ended[request, node]):
            node = rng.choice(children)
            rows[request, node] = table.observation(request, node)
    return list(rows.values())


class Made:
    """The functions above, for tests (test files do not import one another)."""

    catalog: Callable[..., Catalog] = staticmethod(catalog_of)
    template: Callable[..., Template] = staticmethod(template_of)
    table: Callable[..., RecordedTable] = staticmethod(random_table)
    all_rows: Callable[..., list[Observation]] = staticmethod(all_rows)
    sampled_rows: Callable[..., list[Observation]] = staticmethod(sampled_rows)


@pytest.fixture(scope="session")
def made() -> type[Made]:
    return Made

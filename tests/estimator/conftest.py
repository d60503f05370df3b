"""Small random truths, and rows bought from them, for every estimator's tests."""

import random
from collections.abc import Callable

import numpy as np
import pytest
from science.recorded_table import RecordedTable

from vinelm.catalog import Catalog
from vinelm.rows.observation import Observation
from vinelm.template import Branch, Loop, Stage, StopRule, Template
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
            children = [child for child in children if table.reached[request, child]]
            if not children:
                break
            node = rng.choice(children)
            rows[request, node] = table.observation(request, node)
    return list(rows.values())


def branching_template(catalog: Catalog, shape: str = "router", stop: StopRule = "workflow") -> Template:
    """``router``: three arms, one of two stages, one at once; ``corrective``: a graded retrieval that is rewritten and rejoins;
    ``entry``: several first stages.
    """
    steps = {
        "router": (
            Stage("router", answerable=False),
            Branch({"search": (Stage("search"), Stage("check")), "math": (Stage("math"),), "direct": ()}),
            Stage("write"),
        ),
        "corrective": (
            Loop((Stage("grade", answerable=False), Branch({"rewrite": (Stage("rewrite", answerable=False),), "go": ()})), 1),
            Stage("answer"),
            Branch({"retry": (Stage("fix"),), "no": ()}),
        ),
        "entry": (Branch({"a": (Stage("first"),), "b": (Stage("second"),)}), Stage("last")),
    }[shape]
    return Template(steps, stop).bind(tuple(catalog))


def branching_table(
    seed: int,
    *,
    shape: str = "router",
    models: int = 2,
    requests: int = 30,
    is_graded: bool = False,
    stop: StopRule = "workflow",
) -> RecordedTable:
    """Requests of unlike ease; the model that decides and the ease change the arm; costs and verdicts at random."""
    rng = np.random.default_rng(seed)
    catalog = catalog_of(*"abcdefgh"[:models])
    template = branching_template(catalog, shape, stop)
    trie = Trie.from_template(template)
    size = (requests, len(trie))
    ease = rng.random((requests, 1))
    arm = np.full(size, -1, np.int64)
    lean = rng.random((len(trie.stages) + 1, models + 1))
    for node in range(len(trie)):
        stages = [trie.stages.index(name) for name in trie.arms(node)]
        if stages:
            x = (0.5 * ease[:, 0] + 0.5 * lean[trie.stage[node], trie.model[node]] + 0.3 * rng.random(requests)) / 1.3
            arm[:, node] = np.array(stages)[np.minimum((x * len(stages)).astype(int), len(stages) - 1)]
    stopped = (rng.random(size) < 0.3) & trie.answerable
    stopped[:, 0] = False
    arm[stopped] = -1
    cost_usd, latency_s = rng.lognormal(size=size), rng.lognormal(size=size)
    cost_usd[:, 0] = latency_s[:, 0] = 0.0
    success = (rng.random(size) < ease) & trie.answerable
    scores = np.where(success, 1.0, np.round(rng.random(size) * 0.5, 2)) * trie.answerable if is_graded else success
    return RecordedTable(
        template=template, catalog=catalog, trie=trie, request_ids=tuple(f"q{i}" for i in range(requests)),
        success=scores, stopped=stopped, cost_usd=cost_usd, latency_s=latency_s, arm=arm,
    )  # fmt: skip


class Made:
    """The functions above, for tests (test files do not import one another)."""

    catalog: Callable[..., Catalog] = staticmethod(catalog_of)
    template: Callable[..., Template] = staticmethod(template_of)
    table: Callable[..., RecordedTable] = staticmethod(random_table)
    branching_template: Callable[..., Template] = staticmethod(branching_template)
    branching: Callable[..., RecordedTable] = staticmethod(branching_table)
    all_rows: Callable[..., list[Observation]] = staticmethod(all_rows)
    sampled_rows: Callable[..., list[Observation]] = staticmethod(sampled_rows)


@pytest.fixture(scope="session")
def made() -> type[Made]:
    return Made

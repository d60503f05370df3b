"""What tests of several parts share: small catalogs and random complete tables."""

import datetime
import gc
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from vinelm.catalog import Catalog, Model, Price
from vinelm.template import Loop, Stage, Template
from vinelm.trie import Trie
from vinelm.trie.recorded_table import RecordedTable

pytest_plugins = ("outside_world",)

SCRIPTS = str(Path(__file__).parents[1] / "scripts")
if SCRIPTS not in sys.path:
    sys.path.append(SCRIPTS)  # parts are imported as the scripts import them; last, so that none hides a test's module

settings.register_profile("no deadline", deadline=None)  # no test asserts a time of the clock
settings.load_profile("no deadline")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Modules and collected tests stay to the end: the garbage collector need not look at them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def make_catalog(n_models: int = 2, **fields) -> Catalog:
    """Models m0, m1, ... on two engines, each dearer than the one before."""
    return Catalog(
        Model(
            **{
                "name": f"m{i}",
                "provider": "test",
                "model_id": f"test-{i}",
                "engine": ("east", "west")[i % 2],
                "price": Price(input=1.0 + i, output=4.0 * (1 + i), source="a test", as_of=datetime.date(2026, 1, 1)),
                **fields,
            }
        )
        for i in range(n_models)
    )


def make_template(n_models: int = 2, depth: int = 3, stop: str = "workflow") -> Template:
    """generate, then repair up to depth - 1 times."""
    models = tuple(f"m{i}" for i in range(n_models))
    return Template((Stage("generate", models), Loop((Stage("repair", models),), depth - 1)), stop)


def random_table(seed: int, *, n_requests: int, n_models: int, depth: int, stop: str = "workflow") -> RecordedTable:
    """A complete table without structure: outcomes, stops, costs and latencies drawn independently."""
    rng = np.random.default_rng(seed)
    template = make_template(n_models, depth, stop)
    trie = Trie.from_template(template)
    shape = (n_requests, len(trie))
    success = rng.random(shape) < 0.4
    success[:, 0] = False
    stopped = rng.random(shape) < 0.5
    stopped[:, 0] = False
    return RecordedTable(
        template=template,
        catalog=make_catalog(n_models),
        trie=trie,
        request_ids=tuple(f"q{i}" for i in range(n_requests)),
        success=success,
        stopped=stopped,
        cost_usd=rng.lognormal(-6, 1, shape),
        latency_s=rng.lognormal(0, 0.5, shape),
    )


@pytest.fixture
def catalog() -> Catalog:
    return make_catalog()

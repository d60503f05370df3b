"""Random tables of first answers, and evidence bought from them."""

import numpy as np

from vinelm.catalog import Catalog
from vinelm.estimator import make_estimator
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.rivals import Evidence
from vinelm.requests.protocols import RequestPath
from vinelm.template import Loop, Stage, Template


def catalog(table: OutcomeTable) -> Catalog:
    price = {"input": 1.0, "output": 1.0, "source": "a test", "as_of": "2026-01-01"}
    return Catalog.from_dict(
        {"model": [{"name": n, "provider": "recorded", "model": n, "price": price} for n in table.systems]}
    )


def random_outcomes(n_requests: int, n_systems: int, seed: int = 0, *, easy: float = 0.0) -> OutcomeTable:
    """Right answers agree, wrong ones often; the check passes most right and some wrong answers; dear systems are better."""
    rng = np.random.default_rng(seed)
    shape = (n_requests, n_systems)
    ability = np.linspace(-0.3, 1.5, n_systems) + easy
    right = rng.random(shape) < 1 / (1 + np.exp(-(ability[None, :] + rng.normal(0, 1.5, (n_requests, 1)))))
    missing = ~right & (rng.random(shape) < 0.2)
    kind = np.where(right, 0, np.where(missing, -1, rng.integers(1, 4, shape)))
    passed = ~missing & (rng.random(shape) < np.where(right, 0.9, 0.5))
    names = tuple(f"q{r}" for r in range(n_requests))
    return OutcomeTable(
        request_ids=names,
        systems=tuple("abcdefgh"[:n_systems]),
        success=right,
        signal=np.where(missing, 0, 1 + passed).astype(np.int64),
        labels=("error", "failed", "passed"),
        passed=passed,
        answer_class=kind.astype(np.int64),
        cost_usd=0.001 * 3.0 ** np.arange(n_systems)[None, :] * rng.uniform(0.8, 1.2, shape),
        groups=names,
    )


def evidence(table: OutcomeTable, depth: int = 3, n_paths: int = 150, seed: int = 0) -> Evidence:
    """Evidence from random paths."""
    template = Template((Stage("answer"), Loop((Stage("retry"),), times=depth - 1))).bind(table.systems)
    rng = np.random.default_rng(seed)
    paths = [
        RequestPath(str(rng.choice(table.request_ids)), tuple(str(name) for name in rng.choice(table.systems, depth)))
        for _ in range(n_paths)
    ]
    rows = table.observations(paths, template)
    return Evidence(rows, make_estimator("latent").fit(rows, template, catalog(table)).annotated_, depth)

"""How often a small profile names the strongest model, on recorded answers of real models.

For each of --halves random halves of a table, the default sampler buys answers worth --coverages of the dollars of all of them,
or of 30 answers of the strongest model where these are dearer; every request is one call. Named is what the table of single
models calls the strongest by these rows. `named` is the share of the halves in which that is the model with the most right
answers of the whole table, `behind` by how many points it is less accurate than that one. `by_mean` is the share of a simpler
rule: the highest mean, pulled towards that of all models by five requests, of the models with four requests or more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from science.complete_tables import as_recorded_table
from signals_parts.buying import bought, catalog_of, template_of
from signals_parts.protocol import FLOOR_RUNS, split, strongest
from signals_parts.systems import Loaded, load_tables
from studies import Options, each, study, table

from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.profiler.sampling.race import ModelRace
from vinelm.profiler.sampling.single_models import SingleModel

TABLES = "exams,classeval,routerbench,llmrouter,swe,livecodebench"
COLUMNS = {
    "answers of": "{table:16}",
    "coverage": "{coverage:.0%}",
    "models": "{models}",
    "halves": "{halves}",
    "named": "{named:.0%}",
    "by mean": "{by_mean:.0%}",
    "behind, points": "{behind:.1f}",
}


def main() -> int:
    options = {
        "--tables": (TABLES, "names of tables, separated by commas"),
        "--halves": (20, "random halves of each"),
        "--coverages": ("0.02,0.05", "shares of the dollars, separated by commas"),
        "--kept": (Path, "file of the halves so far: the same line takes up a run that ended early", {"metavar": "FILE"}),
    }
    return study(__doc__, options, measured, lines, data="folder with outcomes/, math/, mixed/ and agents/")


def measured(options: Options) -> dict[str, Any]:
    names, coverages = options.tables.split(","), list(map(float, options.coverages.split(",")))
    cells = [(name, coverage, seed) for seed in range(options.halves) for name in names for coverage in coverages]
    found = list(each(partial(half, options.data), cells, kept=options.kept))
    rows = []
    for coverage in coverages:
        for name in (*names, "all"):
            own = [one for one in found if one["coverage"] == coverage and name in (one["table"], "all")]
            means = {key: float(np.mean([one[key] for one in own])) for key in ("named", "by_mean", "behind")}
            models = max(one["models"] for one in own)
            rows.append({"table": name, "coverage": coverage, "models": models, "halves": len(own), **means})
    return {"rows": rows}


@cache
def loaded(data: Path, name: str) -> Loaded:
    return load_tables(data, None, (name,))[name]


def half(data: Path, cell: tuple[str, float, int]) -> dict[str, Any]:
    """What is named by the rows of one half."""
    name, coverage, seed = cell
    every = loaded(data, name).table
    training, _ = split(every.groups, 0.5, seed)
    own = every.rows(training)
    catalog = catalog_of(own)
    template = template_of(1).bind(tuple(catalog))
    accuracy = dict(zip(every.systems, every.success.mean(axis=0).tolist(), strict=True))
    best = strongest(every)
    least = FLOOR_RUNS * float(own.cost_usd[:, own.column[best]].mean())
    budget_usd = max(coverage * as_recorded_table(own, template, catalog).exhaustive_cost_usd, least)
    rows = bought(own, template, catalog, sampler="deciding", budget_usd=budget_usd, seed=seed)
    race = ModelRace(template, catalog, own.request_ids, [tuple(catalog)], ProfileLimits(budget_usd=budget_usd))
    found = race.table(rows)
    assert found.strongest is not None
    named = found.strongest.name
    return {
        "table": name, "coverage": coverage, "models": len(every.systems), "named": named == best,
        "by_mean": by_mean(found.models) == best, "behind": 100.0 * (accuracy[best] - accuracy[named]),
    }  # fmt: skip


def by_mean(models: Iterable[SingleModel]) -> str:
    """The model of the highest mean, pulled towards that of all models by five requests; only of those with four requests."""
    known = [one for one in models if one.requests >= 4]
    mean = sum(one.right / one.requests for one in known) / len(known)
    return max(known, key=lambda one: (one.right + 5.0 * mean) / (one.requests + 5.0)).name


def lines(found: dict[str, Any]) -> Iterator[str]:
    return table(found["rows"], COLUMNS)


if __name__ == "__main__":
    sys.exit(main())

"""Buying rows on a complete table: what a profile under a budget would have left in its store."""

from __future__ import annotations

from datetime import date

import numpy as np

from vinelm.api.deciding import recommended_plans
from vinelm.catalog import Catalog, Model, Price
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.outcome_table import OutcomeCell
from vinelm.profiler import SAMPLERS, ProfileLimits, make_sampler
from vinelm.requests.protocols import Sampler
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template

BUYERS = SAMPLERS
"""Who can buy rows, by name."""
SCORED = "scored-"
"""With a number: so many requests are answered by every system once, whatever that costs."""
MOST_IDLE = 20_000
"""Paths in a row that buy nothing new, after which everything is taken to be bought."""


def template_of(depth: int, memory: int | None = None) -> Template:
    """A first answer and up to ``depth - 1`` retries, ended by the application's own check; ``memory`` merges histories."""
    if depth == 1:
        return Template((Stage("answer"),), "workflow")
    return Template((Stage("answer"), Loop((Stage("retry"),), times=depth - 1, memory=memory)), "workflow")


def catalog_of(table: OutcomeTable) -> Catalog:
    """The systems as models whose price is the table's mean dollars of a call."""
    when = date(2026, 11, 20)
    usd = {name: float(table.cost_usd[:, m].mean()) for name, m in table.column.items()}
    price = {name: Price(input=0.0, output=0.0, call=usd[name], source="mean of the table", as_of=when) for name in usd}
    return Catalog([Model(name=n, provider="recorded", model_id=n, engine=n, price=price[n]) for n in usd])


def bought(
    table: OutcomeTable,
    template: Template,
    catalog: Catalog,
    *,
    sampler: str,
    budget_usd: float,
    seed: int,
    continued_share: float = 0.0,
) -> list[Observation]:
    """The rows that a sampler buys until the next one would exceed the budget.

    Args:
        table: the requests that may be profiled.
        template: bound to the catalog.
        catalog: the systems.
        sampler: a name of :data:`BUYERS`.
        budget_usd: dollars; a row that goes on below a passed answer counts as any other.
        seed: of the sampler.
        continued_share: share of the priced paths that go on below a passed answer, where the sampler has that setting.
    """
    made = new_sampler(sampler, template, catalog, table.request_ids, seed, continued_share, budget_usd)
    cells: dict[OutcomeCell, None] = {}
    spent, idle, round_ = 0.0, 0, 0
    while idle < MOST_IDLE:
        before = len(cells)
        rows = table.observations_of(cells, template) if round_ else []
        for path in made.propose(round_, rows):
            idle += 1
            for cell in table.cells(path):
                if cell in cells:
                    continue
                usd = float(table.cost_usd[cell.row, table.column[cell.prefix[-1]]])
                if spent + usd > budget_usd:
                    return table.observations_of(cells, template)
                cells[cell], spent, idle = None, spent + usd, 0
            if idle >= MOST_IDLE:
                break
        if len(cells) == before:
            break
        round_ += 1
    return table.observations_of(cells, template)


def scored(table: OutcomeTable, template: Template, n: int, seed: int) -> list[Observation]:
    """The first answer of every system to ``n`` requests, drawn at random: fully scored requests."""
    drawn = np.random.default_rng(seed).permutation(len(table))[:n]
    cells = [OutcomeCell(int(r), (name,), False) for r in sorted(drawn.tolist()) for name in table.systems]
    return table.observations_of(cells, template)


def new_sampler(  # noqa: PLR0917
    name: str, template: Template, catalog: Catalog, request_ids: tuple[str, ...], seed: int, continued_share: float,
    budget_usd: float,
) -> Sampler:  # fmt: skip
    """The sampler of that name over a bound template, as a profile makes it."""
    return make_sampler(
        name,
        template,
        request_ids,
        seed,
        catalog=catalog,
        limits=ProfileLimits(budget_usd=budget_usd),
        continued_share=continued_share,
        candidates=recommended_plans(template, catalog),
    )

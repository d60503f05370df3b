"""A sparse profile drawn from a complete table: what a profiler would have bought, without running anything."""

from __future__ import annotations

from vinelm.observation import Observation
from vinelm.outcomes import OutcomeTable
from vinelm.profiler.sampling import CascadeSampler


def sampled_rows(table: OutcomeTable, coverage: float, seed: int) -> list[Observation]:
    """Rows of the cascade sampler's walks until ``coverage`` of the table's exhaustive dollars is spent; stops respected."""
    if not 0.0 < coverage <= 1.0:
        raise ValueError(f"coverage is {coverage}: it must be a fraction in (0, 1]")
    row_of = {request_id: row for row, request_id in enumerate(table.request_ids)}
    cap, n_cells = coverage * table.exhaustive_cost_usd, int(table.reached[:, 1:].sum())
    spent, bought = 0.0, dict[tuple[int, int], Observation]()
    for walk in CascadeSampler(table.template, table.request_ids, seed).walks(0, ()):
        row, node = row_of[walk.request_id], 0
        for model in walk.path:
            node = table.trie.child(node, model)
            if (row, node) not in bought:
                bought[row, node] = table.observation(row, node)
                spent += float(table.cost_usd[row, node])
                if spent >= cap or len(bought) == n_cells:
                    return list(bought.values())
            if table.ended[row, node]:
                break
    return list(bought.values())

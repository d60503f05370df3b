"""Complete tables of first answers: of some systems only, and as the table of every path of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from science.recorded_table import RecordedTable

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.evaluation import OutcomeTable
from vinelm.template import Template


def for_systems(table: OutcomeTable, systems: Sequence[str]) -> OutcomeTable:
    """Return the table of these systems only, in this order.

    Raises:
        ConfigError: The table lacks one.
    """
    keep = table.columns(systems)
    return replace(
        table,
        systems=tuple(systems),
        success=table.success[:, keep],
        signal=table.signal[:, keep],
        passed=table.passed[:, keep],
        answer_class=table.answer_class[:, keep],
        cost_usd=table.cost_usd[:, keep],
    )


def as_recorded_table(table: OutcomeTable, template: Template, catalog: Catalog) -> RecordedTable:
    """Return the table of every path of models, where the application's own check ends a request. Latencies are 0.

    Args:
        table: The first answers.
        template: Linear; its stages may run on every system.
        catalog: Has a model of the name of every system, in the same order.

    Raises:
        ConfigError: The catalog has other models.
    """
    if tuple(catalog) != table.systems:
        raise ConfigError("the catalog's models are not the table's systems, in their order")
    return RecordedTable.from_answers(
        template.with_stop("workflow").bind(table.systems),
        catalog,
        table.request_ids,
        success=table.success,
        stopped=table.passed,
        cost_usd=table.cost_usd,
        latency_s=np.zeros(table.cost_usd.shape),
    )

"""Catalogs of models whose answers are recorded in a table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

from vinelm.catalog import Catalog, Model, Price


def recorded_catalog(
    table: Path, prices: Mapping[str, tuple[str, float, float]], source: str, as_of: date, **columns: str | int
) -> Catalog:
    """Return a catalog of the models whose answers are recorded in a table, with their list prices.

    Args:
        table: The file of recorded answers.
        prices: By catalog name of the model: (name in the table, dollars per million prompt tokens, dollars per million
            completion tokens).
        source: The source of the prices.
        as_of: The day of the prices.
        columns: Further options of the ``recorded`` backend, such as the table's column names.
    """
    models = [
        Model(
            name=name,
            provider="recorded",
            model_id=recorded,
            engine=name,
            price=Price(input=tokens_in, output=tokens_out, source=source, as_of=as_of),
        )
        for name, (recorded, tokens_in, tokens_out) in prices.items()
    ]
    return Catalog(models, {"recorded": {"table": str(table), **columns}})

"""Small catalogs."""

import datetime

from vinelm.catalog import Catalog, Model, Price


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

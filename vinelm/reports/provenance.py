"""The provenance of a report: models, prices and versions, as (name, value) pairs."""

from __future__ import annotations

import platform
from importlib.metadata import version

from vinelm.catalog import Catalog
from vinelm.reports.formatting import usd
from vinelm.reports.page.document import Row, Table
from vinelm.version import __version__

Facts = tuple[tuple[str, str], ...]


def catalog_facts(catalog: Catalog) -> Facts:
    """Describe a catalog: its models and the dates of their prices."""
    days = sorted(model.price.as_of for model in catalog.models)
    dated = f"{days[0]}" if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return (("Models", f"{len(catalog)}: {', '.join(catalog)}"), ("Prices as of", dated))


def version_facts() -> Facts:
    """Describe the versions of VineLM, Python and the main packages."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("langgraph", "numpy", "matplotlib"))
    return (("Made by", f"vinelm {__version__}, Python {platform.python_version()}, {packages}"),)


def price_table(catalog: Catalog) -> Table:
    """Return a table of the catalog's prices with date and source."""
    rows = tuple(
        Row(cells=(m.name, usd(m.price.input), usd(m.price.output), str(m.price.as_of), m.price.source)) for m in catalog.models
    )
    columns = ("model", "$ per million in", "$ per million out", "as of", "source")
    return Table(title="Prices", columns=columns, rows=rows, text_columns=(0, 4), is_folded=True)

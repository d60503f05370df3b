"""A catalog file, entry by entry: what can be used, and what is wrong with the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm.catalog.catalog import Catalog, Model, entry, tables_of, toml_tables
from vinelm.errors import ConfigError

YAML_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class CatalogFile:
    """The entries of a file that can be read, one error for each that cannot, the settings by provider, and notes on what of
    the file has no effect.
    """

    path: str
    models: tuple[Model, ...]
    errors: tuple[ConfigError, ...]
    backends: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...] = ()

    def catalog(self) -> Catalog:
        """The whole file as a catalog. Raises its first error; logs its notes as warnings."""
        for error in self.errors:
            raise error
        for note in self.notes:
            logging.getLogger(__name__).warning("%s", note)
        return Catalog(self.models, self.backends)


def read_catalog_file(path: str | Path) -> CatalogFile:
    """Read our TOML, or a LiteLLM ``model_list`` in YAML. :class:`ConfigError` where the file as a whole is at fault."""
    if Path(path).suffix.lower() in YAML_SUFFIXES:
        from vinelm.catalog.litellm import read_model_list

        read = read_model_list(path)
        return CatalogFile(str(path), *_sorted_out(read.makers), read.backends, read.notes)
    items, backends = tables_of(toml_tables(path), str(path))
    makers = (lambda item=item: entry(item, str(path)) for item in items)
    return CatalogFile(str(path), *_sorted_out(makers), backends)


def _sorted_out(makers: Iterable[Callable[[], Model]]) -> tuple[tuple[Model, ...], tuple[ConfigError, ...]]:
    models, errors = [], []
    for make in makers:
        try:
            models.append(make())
        except ConfigError as error:
            errors.append(error)
    return tuple(models), tuple(errors)

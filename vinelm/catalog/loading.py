"""A catalog file, entry by entry: what can be used, and what is wrong with the rest."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm.catalog.litellm import read_model_list
from vinelm.catalog.model import Model, entry
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

    def checked(self) -> CatalogFile:
        """This file, if all of it can be read. Raises its first error; logs its notes as warnings."""
        for error in self.errors:
            raise error
        for note in self.notes:
            logging.getLogger(__name__).warning("%s", note)
        return self


def read_catalog_file(path: str | Path) -> CatalogFile:
    """Read our TOML, or a LiteLLM ``model_list`` in YAML. :class:`ConfigError` where the file as a whole is at fault."""
    if Path(path).suffix.lower() in YAML_SUFFIXES:
        read = read_model_list(path, catalog_text(path))
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


def catalog_text(path: str | Path) -> str:
    """A catalog file's text; :class:`ConfigError` if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read the catalog: {error}") from error


def toml_tables(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file; :class:`ConfigError` if it is missing or malformed."""
    try:
        return tomllib.loads(catalog_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def tables_of(plain: Mapping[str, Any], where: str) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Mapping[str, Any]]]:
    """The ``[[model]]`` and the ``[backend.NAME]`` tables of a catalog; :class:`ConfigError` if they are none, or not all."""
    for key in plain:
        if key not in ("model", "backend"):
            raise ConfigError(f"{where}: unknown key {key!r}: use [[model]] and [backend.NAME]")
    models, backends = plain.get("model", []), plain.get("backend", {})
    if not isinstance(models, list | tuple) or not all(isinstance(item, Mapping) for item in models):
        raise ConfigError(f"{where}: 'model' is no list of tables: head each model with [[model]]")
    if not isinstance(backends, Mapping) or not all(isinstance(item, Mapping) for item in backends.values()):
        raise ConfigError(f"{where}: 'backend' holds something else than tables: head each provider's with [backend.NAME]")
    if not models:
        raise ConfigError(f"{where}: a catalog needs at least one model: add a [[model]] table")
    return models, backends

"""Reads catalog files entry by entry, so that one malformed entry does not hide the others."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from vinelm.catalog.entries import entry
from vinelm.catalog.environment import take_variables
from vinelm.catalog.litellm import read_model_list
from vinelm.catalog.model import Model
from vinelm.catalog.prices import old_price_note
from vinelm.errors import ConfigError
from vinelm.io.file_kinds import unread
from vinelm.io.reading import read_text
from vinelm.meant import did_you_mean

YAML_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class CatalogFile:
    """The content of a catalog file.

    Args:
        models: The entries that can be read.
        errors: One error for each entry that cannot be read.
        backends: Settings by provider.
        notes: One line for each group of keys that have no effect.
        skipped: The names of entries that are not chat models, such as embedding models in a LiteLLM file.
        copies: The names of entries that were left out because they differ from another entry only in settings that change
            neither answers nor prices.
        is_foreign: Whether the file was written for another program. Then its unusable parts are left out with a warning.
    """

    path: str
    models: tuple[Model, ...]
    errors: tuple[ConfigError, ...]
    backends: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    is_foreign: bool = False

    def checked(self) -> CatalogFile:
        """Return this file if all its entries are usable, else raise the first error.

        Logs a warning for each note and one for old prices. If the file was written for another program and has at least one
        usable entry, its unusable entries are left out instead. Each of them causes a warning.
        """
        for error in self.errors:
            if not self.is_foreign or not self.models:
                raise error
        notes = [*(f"left out: {error}" for error in self.errors), *self.notes]
        if (old := old_price_note(self.models, date.today())) is not None:
            notes.append(f"{self.path}: {old}")
        for note in notes:
            logging.getLogger(__name__).warning("%s", note)
        return self


def read_catalog_file(path: str | Path) -> CatalogFile:
    """Read a TOML catalog or a LiteLLM ``model_list`` in YAML; raise :class:`ConfigError` if the whole file cannot be read.

    Also sets variables that the models need from ``.env`` files; see :mod:`vinelm.catalog.environment`.
    """
    take_variables(Path(path).parent, catalog_text(path))
    if Path(path).suffix.lower() in YAML_SUFFIXES:
        read = read_model_list(path, catalog_text)
        models, errors = _sorted_out(read.makers())
        settings, notes = read.backends(models), read.notes_on(models)
        return CatalogFile(str(path), models, errors, settings, notes, read.skipped, read.copies, is_foreign=True)
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
    """Return the text of a catalog file; raise :class:`ConfigError` if it cannot be read."""
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read the catalog: {unread(path, error)}") from error


def toml_tables(path: str | Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raise :class:`ConfigError` if it is missing or malformed."""
    try:
        return tomllib.loads(catalog_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def tables_of(plain: Mapping[str, Any], where: str) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Mapping[str, Any]]]:
    """Return the ``[[model]]`` tables of ``plain``, and its ``[backend.NAME]`` tables by name.

    Raise :class:`ConfigError`, which names ``where``, for unknown keys or wrong types.
    """
    for key in plain:
        if key not in ("model", "backend"):
            raise ConfigError(
                f"{where}: unknown key {key!r}{did_you_mean(key, ('model', 'backend'))}: use [[model]] and [backend.NAME]"
            )
    models, backends = plain.get("model", []), plain.get("backend", {})
    if not isinstance(models, list | tuple) or not all(isinstance(item, Mapping) for item in models):
        raise ConfigError(f"{where}: 'model' is not a list of tables: start each model with [[model]]")
    if not isinstance(backends, Mapping) or not all(isinstance(item, Mapping) for item in backends.values()):
        raise ConfigError(
            f"{where}: 'backend' holds values that are not tables: start the settings of a provider with [backend.NAME]"
        )
    if not models:
        raise ConfigError(f"{where}: a catalog needs at least one model: add a [[model]] table")
    return models, backends

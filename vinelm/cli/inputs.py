"""Reads a command's inputs: the workflow, its catalog and backends, and the objective; and checks output paths."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vinelm.cli.console import echo
from vinelm.errors import ConfigError, InputError
from vinelm.io.file_kinds import unread
from vinelm.io.reading import read_text

if TYPE_CHECKING:
    from vinelm.catalog import Catalog, Model
    from vinelm.objective import Objective

DEFAULT_PRESET = "paper"
FILE = "objective"
BOUNDS = ("maximize", "minimize", "min_accuracy", "max_cost_usd", "max_latency_s", "cost_budget", "risk", FILE)
"""The parameters of a command that receive :data:`~vinelm.cli.options.objective_options`."""
UNSET = {"cost_budget": "population", "risk": "mean"}
"""Objective options that are never None."""
_FIELDS = f"({'|'.join((*BOUNDS[:-1], 'elapsed_s'))})"
_SETTING = re.compile(rf'\b{_FIELDS}="([^"]*)"')
_FIELD = re.compile(rf"(?<![-\w]){_FIELDS}\b")


def catalog_for_check(models: Path | None, preset: str | None = None) -> Catalog:
    """Return the catalog in the file ``models``. If it is None, return a simulated catalog, for a check that calls no model.

    ``preset`` names the preset of the simulated catalog; None takes the default preset.
    """
    from vinelm.backends import simulated_catalog
    from vinelm.catalog import Catalog

    return simulated_catalog(preset or DEFAULT_PRESET) if models is None else Catalog.from_file(models)


def is_trie_file(path: Path) -> bool:
    """Return whether the file is an annotated trie. Its content decides, or its suffix if the file does not exist."""
    if not path.is_file():
        return path.suffix == ".vine"
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def refuse_replacing(output: Path, made_of: Path) -> None:
    """Raise :class:`ConfigError` if ``output`` is the input file ``made_of`` itself, which would be overwritten."""
    if output.exists() and made_of.exists() and output.samefile(made_of):
        raise ConfigError(f"{output}: this is the input file and would be overwritten: use another name for -o")


def refuse_other_file(output: Path) -> None:
    """Raise :class:`ConfigError` if ``output`` exists and is not a trie file, because only an earlier trie may be replaced."""
    if output.exists() and not output.is_file():
        raise ConfigError(f"{output}: is not a regular file and would be destroyed: use another name for -o")
    if output.is_file() and output.stat().st_size:
        with output.open("rb") as file:
            if file.read(2) != b"PK":
                raise ConfigError(f"{output}: exists and is not a trie file: use another name for -o, or move the file away")


# -- the objective -----------------------------------------------------------------------------------------------


def objective_of(bounds: dict[str, Any], **fixed: Any) -> Objective:
    """Return the objective given by the options and the file that ``--objective`` names.

    Args:
        bounds: Values of the objective options by field name; ``objective`` is the path of the file, or None.
        **fixed: Further fields of the objective.

    Raises:
        ConfigError: The objective is invalid. The message names the options, or the file.
    """
    from vinelm.objective import Objective

    file: Path | None = bounds.get(FILE)
    given = {name: value for name, value in bounds.items() if name != FILE}
    if file is not None:
        with in_options():
            return Objective.from_dict({**_joined(given, read_fields(file), file), **fixed})
    if (given.get("maximize") is None) == (given.get("minimize") is None):
        raise ConfigError("give exactly one target: --maximize accuracy, --minimize cost or --minimize latency")
    with in_options():
        return Objective(**given, **fixed)


def objective_in(given: dict[str, Any], *, is_open: bool = False) -> Any:
    """Remove the objective's options from a command's options, and return the objective; see :func:`objective_of`.

    Args:
        given: The options by keyword; the objective's options are removed.
        is_open: Whether to return None if none of these options is set. Otherwise a missing target is an error.
    """
    bounds = {name: given.pop(name) for name in BOUNDS}
    unset = all(value == UNSET.get(name) for name, value in bounds.items())
    return None if is_open and unset else objective_of(bounds)


def _joined(given: dict[str, Any], read: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return the objective's options combined with the fields of its file. Raise :class:`ConfigError` if a field is in both."""
    for name in read.keys() & given.keys():
        if given[name] not in (None, UNSET.get(name)):
            raise ConfigError(f"--{name.replace('_', '-')} is also a field of {file}: give it once")
    return given | read


def read_fields(file: Path) -> dict[str, Any]:
    """Return the fields of a TOML or JSON file; the suffix determines the format. Raise :class:`ConfigError` if the file cannot
    be parsed.
    """
    try:
        text = read_text(file)
        fields = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:  # RecursionError: nested thousands of levels deep
        raise ConfigError(
            f"{file}: cannot be read as {'JSON' if file.suffix == '.json' else 'TOML'}: {unread(file, error)}"
        ) from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{file}: holds {type(fields).__name__}: it must be an object of fields and values")
    return fields


def say_changed_prices(held: Mapping[str, Model]) -> None:
    """Warn on stderr if prices in the working folder's ``models.toml`` differ from those of ``held``, the models of a trie or
    store by name.
    """
    from vinelm.catalog.entries import entry
    from vinelm.catalog.loading import tables_of, toml_tables
    from vinelm.catalog.prices import changed_prices_note

    path = Path("models.toml")
    if not path.is_file():
        return
    now: dict[str, Model] = {}
    with suppress(InputError):  # errors in the file are reported when it is used
        items, _ = tables_of(toml_tables(path), str(path))
        for item in items:
            with suppress(InputError):
                now[str(item.get("name"))] = entry(item, str(path))
    # An entry of the same name must be the same model: otherwise the file is for something else.
    same = {name: model for name, model in now.items() if name in held and held[name].model_id == model.model_id}
    note = changed_prices_note(held, same, str(path))
    if note is not None:
        echo(note, err=True)


@contextmanager
def in_options() -> Iterator[None]:
    """Inside the block, reword errors about the input so that they name options (``--max-cost-usd``) instead of fields
    (``max_cost_usd``).
    """
    try:
        yield
    except InputError as error:
        raise ConfigError(_in_options(str(error)), code=error.code) from error


def _in_options(message: str) -> str:
    def option(found: re.Match[str]) -> str:
        return "--" + found[1].replace("_", "-")

    message = _SETTING.sub(lambda found: f"{option(found)} {found[2]}", message)
    return _FIELD.sub(option, message)

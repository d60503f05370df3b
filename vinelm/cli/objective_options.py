"""Build an objective from a command's options, with error messages that name the options."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vinelm.errors import ConfigError, InputError
from vinelm.io.reading import read_text

if TYPE_CHECKING:
    from vinelm.objective import Objective

_FIELDS = r"(maximize|minimize|min_accuracy|max_cost_usd|max_latency_s|cost_budget|risk|elapsed_s|spent_usd)"
_SETTING = re.compile(rf'\b{_FIELDS}="([^"]*)"')
_FIELD = re.compile(rf"(?<![-\w]){_FIELDS}\b")
FILE = "objective_file"


def objective_of(bounds: dict[str, Any], **fixed: Any) -> Objective:
    """Return the objective of the options, and of the file that ``--objective`` names.

    Args:
        bounds: Values of the objective options by field name; ``objective_file`` is the path of the file, or None.
        **fixed: Further fields of the objective.

    Raises:
        ConfigError: They are not a valid objective; the message names the options, or the file.
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


def _joined(given: dict[str, Any], read: dict[str, Any], file: Path) -> dict[str, Any]:
    """The options and the file's fields together."""
    defaults = {"cost_budget": "population", "risk": "mean"}
    for name in read.keys() & given.keys():
        if given[name] not in (None, defaults.get(name)):
            raise ConfigError(f"--{name.replace('_', '-')} is also a field of {file}: give it once")
    return given | read


def read_fields(file: Path) -> dict[str, Any]:
    """Return the fields of a TOML or JSON file (by its suffix); :class:`ConfigError` if it is not one."""
    try:
        text = read_text(file)
        fields = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:  # RecursionError: nested thousands deep
        raise ConfigError(f"{file}: cannot be read as {'JSON' if file.suffix == '.json' else 'TOML'}: {error}") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{file}: holds {type(fields).__name__}: it must be an object of fields and values")
    return fields


@contextmanager
def in_options() -> Iterator[None]:
    """Reword an input error raised in the block: it names options (``--max-cost-usd``), not fields (``max_cost_usd``)."""
    try:
        yield
    except InputError as error:
        raise ConfigError(_in_options(str(error)), code=error.code) from error


def _in_options(message: str) -> str:
    def option(found: re.Match[str]) -> str:
        return "--" + found[1].replace("_", "-")

    message = _SETTING.sub(lambda found: f"{option(found)} {found[2]}", message)
    return _FIELD.sub(option, message)

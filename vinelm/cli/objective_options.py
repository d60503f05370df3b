"""Build an objective from a command's options, with error messages that name the options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vinelm.errors import ConfigError, InputError

if TYPE_CHECKING:
    from vinelm.objective import Objective

_FIELDS = (
    r"(maximize|minimize|min_accuracy|max_cost_usd|max_latency_s|cost_budget|risk|late_weight|confidence|z|elapsed_s|spent_usd)"
)
_SETTING = re.compile(rf'\b{_FIELDS}="([^"]*)"')
_FIELD = re.compile(rf"(?<![-\w]){_FIELDS}\b")


def objective_of(bounds: dict[str, Any], **fixed: Any) -> Objective:
    """Return the objective of the options.

    Args:
        bounds: Values of the objective options by field name.
        **fixed: Further fields of the objective.

    Raises:
        ConfigError: The options are not a valid objective; the message names the options.
    """
    from vinelm.objective import Objective

    if (bounds["maximize"] is None) == (bounds["minimize"] is None):
        raise ConfigError("give exactly one target: --maximize accuracy, --minimize cost or --minimize latency")
    with in_options():
        return Objective(**bounds, **fixed)


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

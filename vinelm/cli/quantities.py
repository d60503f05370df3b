"""Option types that accept dollars, fractions, seconds and counts in everyday notation, such as ``$5`` or ``1h30m``.

Values are parsed when the command starts. An invalid value raises an error that names the option, before the command does or
spends anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from vinelm.io.file_kinds import near
from vinelm.meant import count_of, did_you_mean, dollars_of, fraction_meant, fraction_of, number_of, points_of, seconds_of

if TYPE_CHECKING:
    _OfFloat: TypeAlias = click.ParamType[float]
    _OfInt: TypeAlias = click.ParamType[int]
else:
    _OfFloat = _OfInt = click.ParamType  # generic only from click 8.3 on


class Quantity(_OfFloat):
    """A parameter type for a finite number with a unit, at least 0.

    Args:
        name: The quantity's name in help and completions.
        read: Parses a text as a number, or raises :class:`ValueError`.
        forms: The accepted notations, for the error message.
        most: The largest number that the user may enter.
        unit: The factor by which the parsed number is multiplied for the command.
    """

    def __init__(
        self, name: str, read: Callable[[str], float], forms: str, *, most: float = math.inf, unit: float = 1.0
    ) -> None:
        self.name, self._read, self._forms, self._most, self._unit = name, read, forms, most, unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return ``value`` as a number in the command's unit. Raise a usage error if it is invalid; its message suggests the
        value that was probably meant.
        """
        if not isinstance(value, str):
            return float(value)
        try:
            number = self._read(value)
        except ValueError:
            raise _refused(param, ctx, f"is {value!r}: write {self._forms}") from None
        if number > self._most:
            meant = fraction_meant(number) if self._most == 1.0 else ""
            raise _refused(param, ctx, f"is {value}: it must be a {self.name} in [0, {self._most:g}]{meant}")
        if not (number >= 0.0 and math.isfinite(number)):
            rule = f"a {self.name} in [0, {self._most:g}]" if self._most < math.inf else "a finite number >= 0"
            raise _refused(param, ctx, f"is {value}: it must be {rule}")
        return number * self._unit


class Count(_OfInt):
    """A parameter type for a whole number that is at least ``least``."""

    name = "count"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return ``value`` as a whole number. Raise a usage error, which names the smallest allowed value, if it is invalid."""
        if not isinstance(value, str):
            return int(value)
        try:
            number = count_of(value)
        except ValueError:
            number = self._least - 1
        if number < self._least:
            raise _refused(param, ctx, f"is {value}: it must be a whole number >= {self._least}")
        return number


class OneOf(click.Choice[str]):
    """A parameter type for one of a list of words. The error for any other word suggests the most similar one of the list."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word. Raise a usage error with the valid words if ``value`` is not among them."""
        if value in self.choices:
            return str(value)
        raise _refused(param, ctx, f"is {value!r}{did_you_mean(value, self.choices)}: use {' or '.join(self.choices)}")


class InputFile(click.Path):
    """A parameter type for the path of an existing file or folder. The error for a missing path suggests a similar one that
    exists.
    """

    def __init__(self) -> None:
        super().__init__(path_type=str)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path unchanged if it exists. Otherwise raise a usage error that suggests a similar path that exists."""
        found = str(super().convert(value, param, ctx))
        try:
            is_there = Path(found).exists()
        except (OSError, ValueError):  # a name that no file can have
            is_there = False
        if not is_there:
            raise _refused(param, ctx, f"is {found}: no such file{near(found)}")
        return found


def _refused(param: click.Parameter | None, ctx: click.Context | None, what: str) -> click.UsageError:
    return click.UsageError(f"{param.opts[-1] if param else 'the value'} {what}", ctx)


FRACTION = Quantity("fraction", fraction_of, "a fraction such as 0.8, or 80%", most=1.0)
POINTS = Quantity("number of points", points_of, "points of accuracy such as 3", most=100.0, unit=0.01)
"""Points of accuracy; the command gets a fraction."""
USD = Quantity("dollars", dollars_of, "dollars such as 0.002, or '$0.002'")
SECONDS = Quantity("seconds", seconds_of, "seconds such as 1.5, or 90s, 250ms, 2m, 1h30m")
DURATION = Quantity(
    "seconds", partial(seconds_of, is_bare_allowed=False), "hours, minutes or seconds, such as 7h, 1h30m or 45s"
)
RATE = Quantity("number", number_of, "a number such as 100")

"""Deprecated import paths: those that README and docs showed work for one more minor version and warn."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

REMOVED_IN = "0.2"


def moved(old: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` that forwards deprecated names to their new place.

    Args:
        old: The module's dotted name.
        names: Old name to the dotted path of its replacement.

    Returns:
        A function that returns the attribute of that name and emits a :class:`DeprecationWarning`. It raises
        :class:`AttributeError` for any other name.
    """

    def getattr_(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        message = f"{old}.{name} is now {names[name]}; the old path goes with VineLM {REMOVED_IN}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        module, _, attribute = names[name].rpartition(".")
        return getattr(import_module(module), attribute)

    return getattr_

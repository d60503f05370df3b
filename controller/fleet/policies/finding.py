"""Finds the policy that a name or a file means."""

from __future__ import annotations

import importlib.util
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from vinelm.controller.fleet.policies.built_in import FLEET_POLICIES
from vinelm.controller.fleet.policies.orders import FleetPolicy, combined
from vinelm.errors import ConfigError

FUNCTION = "policy"
"""The function of a file that is meant if none is named."""


def fleet_policy(text: str) -> FleetPolicy:
    """Return the policy of this name: built-in ones and functions of files, joined by ``+``.

    Args:
        text: for example ``slack+balance+shares``, ``my_policy.py`` (its function ``policy``), ``my_policy.py:mine+shares``.

    Raises:
        ConfigError: there is no policy of such a name, or its file cannot be used.
    """
    names = [name.strip() for name in text.split("+")]
    if not all(names):
        raise ConfigError(f"policy {text!r} has an empty part: write names with + between them, as in slack+balance+shares")
    return combined(_one(name) for name in names)


def _one(name: str) -> FleetPolicy:
    file, _, function = name.rpartition(":") if ":" in name else (name, "", FUNCTION)
    if file.endswith(".py"):
        return _of_file(Path(file), function)
    if name in FLEET_POLICIES:
        return FLEET_POLICIES[name]
    near = get_close_matches(name, FLEET_POLICIES, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigError(f"unknown policy {name!r}: {meant}built in are {', '.join(FLEET_POLICIES)}; your own is a file FILE.py")


def _of_file(path: Path, function: str) -> FleetPolicy:
    if not path.is_file():
        raise ConfigError(f"policy file {str(path)!r} does not exist")
    spec = importlib.util.spec_from_file_location(f"vinelm_fleet_policy_{path.stem}", path)
    assert spec is not None  # a path that ends with .py always has a loader
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ConfigError(f"policy file {str(path)!r} cannot be imported: {type(error).__name__}: {error}") from error
    found: Any = getattr(module, function, None)
    if not callable(found):
        there = "no function" if found is None else f"a {type(found).__name__}, no function,"
        raise ConfigError(f"policy file {str(path)!r} has {there} {function!r}: define it, or name another as FILE.py:NAME")
    policy: FleetPolicy = found
    return policy

"""Reads workflow states from stores without calling any function that a store names.

A store may come from an untrusted source. LangGraph's serializer imports and calls whatever a serialized object names as its
type, which can be any function. Here a state is rebuilt only from data types of the packages that this process already uses.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from dataclasses import is_dataclass
from datetime import date, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from importlib import import_module
from inspect import isclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import PurePath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from vinelm.errors import StoreError
from vinelm.foreign_code import answered

_CONSTRUCTORS = range(6)
"""Codes of the extensions that name a type; see ``EXT_CONSTRUCTOR_SINGLE_ARG`` and the following in LangGraph's module."""
_SNAPSHOT = 7
_NAMED = frozenset({("re", "compile"), ("langgraph.types", "Send"), ("langgraph.store.base", "Item")})
_VALUES = (
    set, frozenset, deque, date, time, timedelta, timezone, Decimal, UUID, ZoneInfo, Enum, PurePath,
    IPv4Address, IPv6Address, IPv4Network, IPv6Network,
)  # fmt: skip
_MARKS = ("model_fields", "__fields__", "_asdict", "get_secret_value")
"""Attributes that tell the serializer that a type is a data type: pydantic's, named tuples', secrets'."""


class StateSerializer(JsonPlusSerializer):
    """LangGraph's serializer without pickle. It restores only objects that hold data, such as dataclasses and enums."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the deserialized object.

        Raises:
            StoreError: the data name something other than a data type, which may be an attempt to run code.
        """
        kind, content = data
        if kind == "msgpack":
            wrong: list[object] = []
            with suppress(ormsgpack.MsgpackDecodeError):  # unreadable data creates no objects
                _look(content, wrong)
            if wrong:
                raise StoreError(
                    f"a state in the store names {str(wrong[0])[:60]!r}, which is no type of data: it was not written by this "
                    "application: profile into a store of your own"
                )
        return super().loads_typed(data)


def _look(content: bytes, wrong: list[object]) -> Any:
    """Return the data serialized in ``content`` as plain values, without creating the objects that they describe.

    Appends the name of every type that :func:`_is_data` rejects to ``wrong``.
    """

    def inside(code: int, data: bytes) -> None:
        if code != _SNAPSHOT and code not in _CONSTRUCTORS:
            return
        try:
            named = _look(data, wrong)
        except ormsgpack.MsgpackDecodeError:  # LangGraph continues after what it cannot read
            return
        if code in _CONSTRUCTORS and not (isinstance(named, list | tuple) and len(named) > 1 and _is_data(named[0], named[1])):
            wrong.append(named[:2] if isinstance(named, list | tuple) else named)

    return ormsgpack.unpackb(content, ext_hook=inside, option=ormsgpack.OPT_NON_STR_KEYS)


_ABSENT: Any = object()


def _is_data(module: Any, name: Any) -> bool:
    """Return whether ``name`` is a data type in the package ``module``, which this process has already imported.

    Also True if the package has no such name: the values of a local or deleted type are restored without the type.
    """
    if (module, name) in _NAMED:
        return True
    if not isinstance(module, str) or not isinstance(name, str) or module.partition(".")[0] not in sys.modules:
        return False
    if module.rpartition(".")[2] == "__main__" and module not in sys.modules:  # a program, which would run on import
        return False
    found = answered(lambda: getattr(import_module(module), name), _ABSENT)
    if found is _ABSENT:  # a local or deleted type: its values are restored without it
        return True
    if not isclass(found):
        return False
    return issubclass(found, _VALUES) or is_dataclass(found) or any(hasattr(found, mark) for mark in _MARKS)

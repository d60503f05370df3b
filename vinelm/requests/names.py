"""Makes names of requests, conversations and tenants unique within their scope, since callers choose them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from vinelm.foreign_code import answered

RunLabel = str | Callable[[Mapping[str, Any]], Any]
"""How a run names something: a key of LangGraph's ``config["configurable"]``, or a function of that mapping."""


def label_of(label: RunLabel, configurable: Mapping[str, Any] | None) -> str:
    """Return a run's name: the value of the key ``label`` in ``configurable`` or, if ``label`` is a function, its result
    for ``configurable``.

    ``configurable`` is the run's ``config["configurable"]``. Empty if the value is missing, or the function fails.
    """
    given = configurable or {}
    found: Any = given.get(label) if isinstance(label, str) else answered(lambda: label(given), None)
    return "" if found is None else str(found)


def scoped(name: str, *scope: str) -> str:
    """Return the name together with its scope (such as a tenant), so that it cannot collide with a name of another scope.

    If the scope is empty, the name is unchanged, unless it looks like a scoped name. All names of one table must have
    scopes of the same length.

    Examples:
        >>> scoped("order-7", ""), scoped("order-7", "acme"), scoped("[order-7]", "")
        ('order-7', '["acme", "order-7"]', '["", "[order-7]"]')
    """
    if not any(scope) and not name.startswith("["):
        return name
    return json.dumps([*scope, name], ensure_ascii=False)


def unscoped(name: str) -> str:
    """Return the original name that was passed to :func:`scoped`; ``name`` is the result of that call."""
    if not name.startswith("["):
        return name
    with suppress(ValueError, IndexError, TypeError):
        return str(json.loads(name)[-1])
    return name

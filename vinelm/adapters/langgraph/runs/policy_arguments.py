"""Arguments that were added to :class:`~vinelm.protocols.Policy` later: a policy that was written before does without them."""

from __future__ import annotations

import inspect
from functools import cache

from vinelm.protocols import Policy


def accepts(policy: Policy, method: str, argument: str) -> bool:
    """Return whether a method of the policy takes that argument by name."""
    return _accepts(type(policy), method, argument)


@cache
def _accepts(owner: type, method: str, argument: str) -> bool:
    try:
        parameters = inspect.signature(getattr(owner, method)).parameters
    except (AttributeError, TypeError, ValueError):
        return False
    return argument in parameters or any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())

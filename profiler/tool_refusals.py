"""Tools that refuse the arguments of a scripted model: it fits their schema, and knows no order number that exists."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from langchain_core.tools import BaseTool

_FAULTS = (NameError, AttributeError, ImportError, SyntaxError, TypeError, NotImplementedError)
"""What a tool raises by a mistake in its code, whatever it is given."""
_FOUND_NOTHING = "'NoneType' object"
"""Begins what Python says of a look-up that found nothing: no mistake of a tool that is asked for what does not exist."""


@dataclass(frozen=True, slots=True)
class ToolRefusal:
    """A tool that raised on its arguments.

    Attributes:
        tool: Its name.
        error: What it raised.
    """

    tool: str
    error: Exception


def tool_refusal(error: Exception | None) -> ToolRefusal | None:
    """Return the tool that an exception came from; None for one of another place, and for a mistake in the tool's code."""
    if error is None or (isinstance(error, _FAULTS) and not str(error).startswith(_FOUND_NOTHING)):
        return None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, BaseTool):
            return ToolRefusal(owner.name, error)
        trace = trace.tb_next
    return None

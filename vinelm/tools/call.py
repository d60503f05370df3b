"""One call of a tool: the key that equal calls have in common, and the event that is recorded."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from vinelm.errors import WorkflowError

CallKind = Literal["authoritative", "speculated", "eager"]
"""Why a call was started: by the application; on a guess; while the model was still writing the call."""


def text_of(content: Any) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)
    return "" if content is None else str(content)


def value_of(text: str) -> Any:
    """Return a tool's answer parsed as JSON, or the text itself if it is not JSON."""
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text


def is_answered(status: str | None, text: str) -> bool:
    """Return whether a tool's answer is a result rather than an error, which has "error" as its status or first word."""
    return status != "error" and not text.lower().startswith("error")


def canonical_key(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return the key of a call. Calls of one tool with equal arguments, in any order, have equal keys.

    Args:
        tool: the tool's name.
        arguments: JSON values by name.

    Raises:
        WorkflowError: an argument is not JSON.
    """
    try:
        plain = json.dumps([tool, arguments], sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError):
        raise WorkflowError(f"tool {tool!r}: an argument is not JSON: pass texts, numbers, lists and dictionaries") from None
    return blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEvent:
    """One call of a tool, as it is recorded.

    Args:
        request_id: the request in which it was called.
        seq: the call's index among the calls of the request, from 0.
        tool: the tool's name.
        key: :func:`canonical_key` of the call.
        is_ok: whether the call returned a result; False if it raised.
        kind: why the call was started.
        started_s: seconds from the beginning of the request to the start of the call.
        ended_s: seconds from the beginning of the request to the end of the call, >= ``started_s``.
        cost_usd: the cost in dollars that the tool's declaration gives for a call.
        is_used: whether the application asked for the call's result.
        arguments: JSON values by name; None unless values are recorded.
        result: a JSON value; None unless values are recorded.
    """

    request_id: str
    seq: int
    tool: str
    key: str
    is_ok: bool
    kind: CallKind = "authoritative"
    started_s: float = 0.0
    ended_s: float = 0.0
    cost_usd: float = 0.0
    is_used: bool = True
    arguments: Mapping[str, Any] | None = None
    result: Any = None


class SessionPart(NamedTuple):
    """One event that a run adds to a recorded session (a conversation): a user message, or a tool call.

    Args:
        session: the name of the session; the runs of one conversation share it.
        run: the id of the run, unique within the session.
        event: the message or the call, with seconds counted from the beginning of the run.
        is_read: whether the called tool is declared read-only; None for an undeclared tool or a user message.
    """

    session: str
    run: str
    event: str | ToolEvent
    is_read: bool | None = None


class ToolSession(NamedTuple):
    """The user messages and tool calls of one recorded request or conversation.

    Args:
        name: the name of the request or conversation.
        group: the name of a group of sessions that repeat each other, such as several trials of one task.
        events: the user's messages and the calls, in order.
    """

    name: str
    group: str
    events: list[str | ToolEvent]


History = Sequence["str | ToolEvent"]
"""The events of a request, in order: the user's messages, and the calls that have ended."""


def begins_with(longer: Sequence[Any], known: Sequence[Any]) -> bool:
    """Return whether ``longer`` begins with the items of ``known``, compared by identity (``is``).

    If it does, results that were computed from ``known`` can be extended instead of computed again.
    """
    return len(longer) >= len(known) and all(map(operator.is_, longer, known))

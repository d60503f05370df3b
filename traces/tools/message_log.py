"""Reads sessions (user messages, and tool calls with results) from message logs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from vinelm.errors import DatasetError, WorkflowError
from vinelm.io.file_kinds import unread
from vinelm.io.reading import json_objects, read_text
from vinelm.tools.call import ToolEvent, ToolSession, canonical_key, is_answered, text_of, value_of
from vinelm.traces.tools.span_log import is_span_log, span_sessions

_SESSION_KEYS = ("session", "request_id", "id")
_TASK_KEYS = ("task", "task_id")


def read_sessions(path: Path) -> list[ToolSession]:
    """Return the sessions of a log: JSON lines, or one JSON list, of objects with ``messages``, ``traj`` or ``events``.

    Messages are OpenAI's or LangChain's: roles "user", "assistant" with ``tool_calls``, and "tool". Events are
    ``{"kind": "user", "text"}`` and ``{"kind": "call", "tool", "args", "result"}``, where ``ok``, ``started_s`` and ``ended_s``
    may be added; other kinds are skipped. ``task`` or ``task_id`` names the group. For OpenTelemetry spans see
    :func:`~vinelm.traces.tools.span_log.span_sessions`.

    Raises:
        DatasetError: the file cannot be read, or a line has none of these formats. The message names the line.
    """
    try:
        text = read_text(path)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({unread(path, error)})") from None
    except UnicodeDecodeError:
        raise DatasetError(f"{path}: not a text in UTF-8: give a store, or a log of messages in JSON lines") from None
    if is_span_log(text):
        return span_sessions(text, path)
    if text.lstrip().startswith("["):
        try:
            rows = list(enumerate(json.loads(text), start=1))
        except ValueError as error:
            raise DatasetError(f"{path}: not valid JSON: {error}") from None
    else:
        rows = list(json_objects(text.splitlines(), path))
    if not rows:
        raise DatasetError(f"{path}: no session in it: give JSON lines with messages")
    found, names = [], Counter[str]()
    for number, row in rows:
        # A session without a name is named by its line of this log: a store replaces a session by another one of the same name.
        session = _session(row, f"{path.name} {number}", f"{path}:{number}")
        names[session.name] += 1
        again = names[session.name]
        found.append(session if again == 1 else _renamed(session, f"{session.name} ({again})"))
    return found


def _renamed(session: ToolSession, name: str) -> ToolSession:
    events = [replace(event, request_id=name) if isinstance(event, ToolEvent) else event for event in session.events]
    return ToolSession(name, session.group, events)


def _session(row: Any, unnamed: str, where: str) -> ToolSession:
    known = row if isinstance(row, dict) else {}
    listed, items = next(((key, known[key]) for key in ("messages", "traj", "events") if key in known), ("", None))
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise DatasetError(f"{where}: no list of messages: a session has messages, traj or events")
    name = next((str(row[key]) for key in _SESSION_KEYS if key in row), unnamed)
    group = next((str(row[key]) for key in _TASK_KEYS if key in row), name)
    parts = _events(items, where) if listed == "events" else _messages(items, where)
    events: list[str | ToolEvent] = []
    for part in parts:
        if isinstance(part, str):
            events.append(part)
            continue
        try:
            key = canonical_key(part["tool"], part["arguments"])
        except WorkflowError as error:
            raise DatasetError(f"{where}: {error}") from None
        events.append(ToolEvent(request_id=name, seq=len(events), key=key, **part))
    return ToolSession(name, group, events)


def _events(events: list[dict[str, Any]], where: str) -> Iterator[str | dict[str, Any]]:
    for event in events:
        if event.get("kind") == "user":
            yield str(event.get("text", ""))
        elif event.get("kind") == "call":
            arguments = event.get("args", {})
            if not isinstance(event.get("tool"), str) or not isinstance(arguments, dict):
                raise DatasetError(f"{where}: a call needs tool, a text, and args, an object")
            times = {}
            for name in ("started_s", "ended_s"):
                value = event.get(name, 0.0)
                if not isinstance(value, (int, float)):
                    raise DatasetError(f"{where}: {name} is {value!r}: give seconds")
                times[name] = float(value)
            is_ok = bool(event.get("ok", True))
            yield {"tool": event["tool"], "arguments": arguments, "result": event.get("result"), "is_ok": is_ok, **times}


def _messages(messages: list[dict[str, Any]], where: str) -> Iterator[str | dict[str, Any]]:
    """Yield the texts of the user, and the tool calls as dictionaries, in order.

    A call is yielded when its answer comes; a call without an answer is left out. Errors begin with ``where`` (``FILE:LINE``).
    """
    asked: dict[str, tuple[str, dict[str, Any]]] = {}
    for message in messages:
        role = message.get("role", message.get("type"))
        if role in ("user", "human"):
            yield text_of(message.get("content"))
        elif role in ("assistant", "ai"):
            for call in message.get("tool_calls") or ():
                asked[str(call.get("id"))] = _call(call, where)
        elif role == "tool" and str(message.get("tool_call_id")) in asked:
            tool, arguments = asked.pop(str(message["tool_call_id"]))
            content = text_of(message.get("content"))
            is_ok = is_answered(message.get("status"), content)
            yield {"tool": tool, "arguments": arguments, "result": value_of(content), "is_ok": is_ok}


def _call(call: Mapping[str, Any], where: str) -> tuple[str, dict[str, Any]]:
    function = call.get("function", call)
    arguments = function.get("arguments", function.get("args", {}))
    if isinstance(arguments, str):
        arguments = value_of(arguments) if arguments.strip() else {}
    if not isinstance(function.get("name"), str) or not isinstance(arguments, dict):
        raise DatasetError(f"{where}: a tool call needs a name, and arguments in JSON")
    return function["name"], arguments

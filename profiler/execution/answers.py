"""Finds where a final state has the right answer (the label), to help if the workflow reads answers from a wrong place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from itertools import islice
from typing import Any, NamedTuple

from vinelm.requests.workflow import Request, Workflow

_DEEPEST, _MOST = 8, 5000
_SHOWN, _CHARS = 4, 80


class BesideLabel(NamedTuple):
    """A request's labels next to its final state.

    Attributes:
        shown: a line with the labels, and with the place in the final state that holds the value of the first one; if no place
            holds it, with the end of the state.
        answer_at: Python code that reads this place from ``state``, if its key is the label's name. Otherwise empty: the place
            may be another text of the model, such as its reasoning.
    """

    shown: str
    answer_at: str = ""


def beside_label(workflow: Workflow, request: Request, values: Mapping[str, Any]) -> BesideLabel:
    """Return a request's labels next to its final state.

    Args:
        workflow: declares which keys of a dataset row are labels.
        request: the request that was run.
        values: the final state.
    """
    labels = {name: request.data[name] for name in workflow.labels if name in request.data}
    given = [text for _, text in islice(_leaves(workflow.graph_input(request), "", 0), _MOST)]
    found = [(path, text) for path, text in islice(_leaves(values, "", 0), _MOST) if path and text not in given]
    name = next(iter(labels), "")
    wanted = _plain(labels[name]) if labels else None
    places = [path for path, text in found if _plain(text) == wanted]
    # If there are several, prefer the label's own name, and a conversation last, since it repeats other keys.
    place = min(places, key=lambda path: (name not in path, path.startswith("messages")), default=None)
    named = ", ".join(f"{name} {_short(label)}" for name, label in labels.items()) or "none"
    said = f"request {request.id!r} has the label {named}"
    if place is not None:
        is_sure = re.findall(r"\w+", place)[-1:] == [name] and "json.loads(" not in place
        is_sure = is_sure and (not place.startswith("messages") or place.startswith("messages[-1]"))
        key, rest = re.fullmatch(r"([^.\[]+)(.*)", place, re.DOTALL).groups() if is_sure else ("", "")  # type: ignore[union-attr]
        code = f"state[{key!r}]{rest}" if is_sure else ""
        line = f"{said}, and the final state has that in {place}: is that the answer?"
        return BesideLabel(line, code if '"' in code else code.replace("'", '"'))
    last = dict(reversed(found[-_MOST:]))  # the end of a conversation says more than its beginning
    shown = ", ".join(f"{path} = {_short(text)}" for path, text in list(last.items())[:_SHOWN]) or "nothing new"
    return BesideLabel(f"{said}, and the final state ends with {shown}")


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers in a value, each as (Python code that reads it, text); JSON texts are parsed.

    ``path`` is the code that reads ``value`` itself. ``depth`` is the number of levels above ``value``; values deeper than the
    limit are left out.
    """
    if depth > _DEEPEST or value is None:
        return
    if isinstance(value, str) and isinstance(inner := _json_of(value), dict | list):
        yield from _leaves(inner, f"json.loads({path})", depth + 1)
    if isinstance(value, str | int | float):
        yield path, str(value)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, f"{path}[{str(key)!r}]" if path else str(key), depth + 1)
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _leaves(one, f"{path}[{number - len(value)}]", depth + 1)
    elif isinstance(getattr(value, "content", None), str | list):  # a message: its text, and the calls that it asks for
        yield from _leaves(value.content, f"{path}.content", depth + 1)
        for number, call in enumerate(getattr(value, "tool_calls", None) or ()):
            yield from _leaves(call.get("args"), f"{path}.tool_calls[{number}]['args']", depth + 1)
    elif is_dataclass(value) or hasattr(type(value), "model_fields"):
        for name, one in list(vars(value).items()):
            yield from _leaves(one, f"{path}.{name}", depth + 1)


def _json_of(text: str) -> Any:
    try:
        return json.loads(text) if text.lstrip()[:1] in ("{", "[") else None
    except (ValueError, RecursionError):
        return None


def _plain(value: Any) -> str:
    return " ".join(str(value).split()).casefold()


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return repr(text if len(text) <= _CHARS else f"{text[:_CHARS]}...")

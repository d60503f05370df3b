"""Generates data that fits a JSON schema, for a scripted model's tool calls and structured answers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_FORMATS = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "PT1S",
    "email": "someone@example.org",
    "uri": "https://example.org/",
    "url": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.org",
    "json-string": "{}",
    "binary": "",
    "regex": "a",
}
_UNBOUND = {"type", "title", "description"}
_DEEPEST = 6
"""How many levels of a recursive schema are filled."""


def fill(schema: Mapping[str, Any], text: str = "text", *, yes: bool = True) -> Any:
    """Return data that fits the schema. Equal arguments give equal data.

    Strings that the schema does not constrain become ``text``, and booleans become ``yes``. Ignores requirements that
    the JSON schema does not contain, such as those that a validator checks in code.
    """
    return _Filler(schema, text, yes=yes).value(schema, 0)


class _Filler:
    def __init__(self, root: Mapping[str, Any], text: str, *, yes: bool) -> None:
        self._root = root
        self._yes = yes
        self._text = text

    def value(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, Mapping):
            return self._text
        schema = self._resolved(schema)
        for key in ("const", "default"):
            if key in schema and schema[key] is not None:
                return schema[key]
        for key in ("enum", "examples"):
            if schema.get(key):
                return schema[key][0]
        options = schema.get("anyOf") or schema.get("oneOf")
        if options:
            return self._one_of(schema, options, depth)
        kind = _kind(schema)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return _number(schema, is_whole=kind == "integer")
        if kind == "string":
            return self._string(schema)
        return {"boolean": self._yes, "null": None}.get(kind, self._text)

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the schema with its reference (``$ref``) followed and the parts of ``allOf`` merged."""
        for _ in range(_DEEPEST):
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                break
            target: Any = self._root
            for step in reference.removeprefix("#/").split("/"):
                target = target.get(step, {}) if isinstance(target, Mapping) else {}
            schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        merged: dict[str, Any] = dict(schema)
        for part in merged.pop("allOf", ()):
            found = self._resolved(part)
            properties = {**merged.get("properties", {}), **found.get("properties", {})}
            required = [*merged.get("required", ()), *found.get("required", ())]
            merged = {**found, **merged} | ({"properties": properties, "required": required} if properties else {})
        return merged

    def _one_of(self, schema: Mapping[str, Any], options: Sequence[Any], depth: int) -> Any:
        """Return data for the first of the alternative schemas ``options`` that is not null; None if all are null.

        Deep inside a recursive schema, return None if one of the alternatives is null.
        """
        found = [self._resolved(option) for option in options if isinstance(option, Mapping)]
        plain = [option for option in found if _kind(option) != "null" and (option or len(found) == 1)]
        is_deep = depth >= _DEEPEST and len(plain) < len(found)
        if is_deep or not plain:
            return None
        shared = {key: value for key, value in schema.items() if key in ("properties", "required", "type")}
        return self.value({**shared, **plain[0]}, depth)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        names = [name for name in properties if name in required or depth < _DEEPEST]
        filled = {name: self._property(name, properties[name], depth + 1) for name in names}
        others = schema.get("additionalProperties")
        for number in range(len(filled), int(schema.get("minProperties", 0))):
            filled[f"key{number}"] = self.value(others if isinstance(others, Mapping) else {}, depth + 1)
        return filled

    def _property(self, name: str, schema: Any, depth: int) -> Any:
        """Return the value of a property. An integer called an index or id gets 0, because generated lists have one item."""
        is_index = name.casefold().endswith(("id", "idx", "index"))
        return (
            0
            if is_index and isinstance(schema, Mapping) and schema.keys() <= _UNBOUND and schema.get("type") == "integer"
            else self.value(schema, depth)
        )

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        filled = [self.value(item, depth + 1) for item in schema.get("prefixItems", ())]
        items = schema.get("items")
        least = int(schema.get("minItems", 0))
        wanted = max(least, 1 if isinstance(items, Mapping) and not filled and depth < _DEEPEST else 0)
        wanted = min(wanted, int(schema.get("maxItems", wanted)))
        while len(filled) < wanted:
            filled.append(self._item(items, len(filled), depth, is_unique=bool(schema.get("uniqueItems"))))
        return filled

    def _item(self, items: Any, number: int, depth: int, *, is_unique: bool) -> Any:
        options = self._resolved(items).get("enum") if isinstance(items, Mapping) else None
        if is_unique and options:
            return options[number % len(options)]
        value = self.value(items if isinstance(items, Mapping) else {}, depth + 1)
        if not is_unique or number == 0 or isinstance(value, bool):
            return value
        return value + number if isinstance(value, (int, float)) else f"{value} {number}" if isinstance(value, str) else value

    def _string(self, schema: Mapping[str, Any]) -> str:
        pattern = schema.get("pattern")
        if pattern is not None:
            return _matching(pattern, int(schema.get("minLength", 0)))
        text = _FORMATS.get(schema.get("format", ""), self._text)
        least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
        text = text if len(text) >= least else text + "x" * (least - len(text))
        return text if most is None else text[: int(most)]


def _kind(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind is None:
        kind = "object" if "properties" in schema else "array" if "items" in schema or "prefixItems" in schema else "any"
    return str(kind)


def _number(schema: Mapping[str, Any], *, is_whole: bool) -> float | int:
    """Return a number that the schema allows: 1 if possible, otherwise 0 if possible, otherwise a number at or near a limit of
    the schema.
    """
    step = schema.get("multipleOf", 1 if is_whole else None)
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)
    lowest, highest = max(low, above), min(high, below)
    inside = [1.0, 0.0, lowest, highest]
    if math.isfinite(lowest) and math.isfinite(highest):
        inside.append((lowest + highest) / 2)
    gap = step or 1
    inside += [lowest + gap, highest - gap]
    for number in inside:
        if not math.isfinite(number):
            continue
        rounded = math.ceil(number / step) * step if step else number
        if low <= rounded <= high and above < rounded < below:
            return int(rounded) if is_whole or rounded == int(rounded) else rounded
    return int(lowest) if math.isfinite(lowest) else 1


def _matching(pattern: str, least: int) -> str:
    """Return a text of at least ``least`` characters that the pattern matches; only "x" if the pattern is too complex."""
    try:
        text = "".join(_pieces(re._parser.parse(pattern)))  # type: ignore[attr-defined]
    except (re.error, KeyError, ValueError, IndexError, StopIteration, RuntimeError):
        return "x" * max(least, 1)
    while len(text) < least and re.search(pattern, text + text[-1:] or "x"):
        text += text[-1:] or "x"
    return text


def _pieces(parsed: Any) -> Iterator[str]:
    """Yield a short text for each element of a parsed regular expression. Joined together, the texts match the expression.

    A character set gives its first character, and a repeat its minimum number of copies, but at least one.
    """
    for kind, value in parsed:
        name = str(kind)
        if name == "LITERAL":
            yield chr(value)
        elif name in {"ANY", "NOT_LITERAL"}:
            yield "x" if value != ord("x") else "y"
        elif name == "IN":
            yield _of_set(value)
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, inside = value
            for _ in range(max(int(low), 1 if high else 0)):
                yield from _pieces(inside)
        elif name == "SUBPATTERN":
            yield from _pieces(value[-1])
        elif name == "BRANCH":
            yield from _pieces(value[1][0])
        elif name == "CATEGORY":
            yield _CATEGORIES[str(value)]


_CATEGORIES = {
    "CATEGORY_DIGIT": "1",
    "CATEGORY_WORD": "a",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_SPACE": "a",
    "CATEGORY_NOT_DIGIT": "a",
    "CATEGORY_NOT_WORD": "-",
}
_CLASSES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_NOT_WORD": r"\W",
}


def _of_set(members: Sequence[Any]) -> str:
    """Return a character that a character set of a regular expression matches. For a negated set, return the first plain
    character that the set does not exclude.
    """
    kinds = [str(kind) for kind, _ in members]
    if "NEGATE" in kinds:
        return next(one for one in "xa1 -_.~" if not any(_takes_in(str(kind), value, one) for kind, value in members))
    kind, value = kinds[0], members[0][1]
    if kind == "RANGE":
        return chr(value[0])
    return chr(value) if kind == "LITERAL" else _CATEGORIES[str(value)]


def _takes_in(kind: str, value: Any, one: str) -> bool:
    if kind == "LITERAL":
        return bool(ord(one) == value)
    if kind == "RANGE":
        return bool(value[0] <= ord(one) <= value[1])
    return kind == "CATEGORY" and re.match(_CLASSES[str(value)], one) is not None

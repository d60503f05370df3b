"""Structured output: the schema in OpenAI's own form, and an answer's reading in whichever form it comes."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableLambda, RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.utils.json import parse_json_markdown
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel

from vinelm.errors import ConfigError

METHODS = ("json_schema", "function_calling", "json_mode")
"""What ``with_structured_output(method=)`` takes."""

TAKES_FORMAT = frozenset({"openai", "azure", "anthropic"})
"""Providers of which a call may ask for JSON of a schema by the option ``response_format``, in OpenAI's form."""


@dataclass(frozen=True, slots=True)
class Structured:
    """An output schema, and the other arguments of ``with_structured_output``."""

    schema: Any
    options: Mapping[str, Any]

    def parsed(self, message: AIMessage) -> Any:
        """The schema's instance (a dict for schemas that are no pydantic class), from wherever a model puts it: a tool call,
        the text as JSON, or an object that its client has parsed. :class:`OutputParserException` where there is none.
        """
        found = message.additional_kwargs.get("parsed")
        if found is None:
            found = self._arguments(message)
        schema: Any = self.schema
        if not (isinstance(schema, type) and is_basemodel_subclass(schema)):
            return found
        kind: Any = schema
        try:
            return found if isinstance(found, schema) else kind.model_validate(found)
        except ValueError as error:
            raise OutputParserException(f"the answer does not fit {kind.__name__}: {error}") from error

    def _arguments(self, message: AIMessage) -> Any:
        name = "" if self.schema is None else schema_name(self.schema)
        for call in message.tool_calls:
            if call["name"] == name:
                return call["args"]
        try:
            return parse_json_markdown(message.text)
        except ValueError as error:
            raise OutputParserException(f"the answer is neither a call of {name} nor JSON") from error

    def chain(self, bound: Runnable[Any, Any], *, include_raw: bool) -> Runnable[Any, Any]:
        """Return a runnable that asks ``bound`` and gives what :meth:`parsed` reads; with ``include_raw`` a dict of both."""
        parser = RunnableLambda(self.parsed, name="parse")
        if not include_raw:
            return bound | parser
        parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parser, parsing_error=lambda _: None)
        unparsed = RunnablePassthrough.assign(parsed=lambda _: None)
        return RunnableMap(raw=bound) | parsed.with_fallbacks([unparsed], exception_key="parsing_error")


def schema_name(schema: Any) -> str:
    """Return the name by which a provider is told of a schema."""
    if isinstance(schema, Mapping):
        stated = schema.get("json_schema", schema)
        if isinstance(stated, Mapping) and "schema" in stated and "name" in stated:
            return str(stated["name"])
    return str(convert_to_openai_tool(schema)["function"]["name"])


def response_format(schema: Any, method: str, strict: bool | None) -> dict[str, Any]:
    """Return OpenAI's ``response_format``, as ``ChatOpenAI.with_structured_output`` sends it.

    Args:
        schema: a pydantic class, a TypedDict, a JSON schema with a title, or the format itself. None for "json_mode".
        method: "json_schema" or "json_mode".
        strict: whether the answer must match exactly; by default for pydantic classes.

    Raises:
        ConfigError: there is no schema.
    """
    if method == "json_mode":
        return {"type": "json_object"}
    if schema is None:
        raise ConfigError("with_structured_output needs a schema, except with method='json_mode'")
    if isinstance(schema, Mapping) and schema.get("type") == "json_schema" and "json_schema" in schema:
        return dict(schema)
    if isinstance(schema, Mapping) and "name" in schema and "schema" in schema:
        return {"type": "json_schema", "json_schema": dict(schema)}
    if isinstance(schema, type) and issubclass(schema, BaseModel) and strict is not False:
        plain = strict_schema(schema.model_json_schema())
        return {"type": "json_schema", "json_schema": {"name": schema.__name__, "schema": plain, "strict": True}}
    if strict is None:
        strict = bool(isinstance(schema, Mapping) and schema.get("strict"))
    function = dict(convert_to_openai_tool(schema, strict=strict)["function"])
    function["schema"] = function.pop("parameters", {"type": "object", "properties": {}})
    return {"type": "json_schema", "json_schema": function}


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema in the form that OpenAI takes as strict: objects are closed, and all their keys required.

    Defaults are left out, which the API refuses, and what stands beside a ``$ref`` is joined with what it refers to.
    """
    whole = deepcopy(dict(schema))
    return _strict(whole, whole)


def _strict(part: dict[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    part = {key: value for key, value in part.items() if key != "default"}
    reference = part.get("$ref")
    if isinstance(reference, str) and len(part) > 1:
        found: Any = whole
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
        del part["$ref"]
        return _strict({**found, **part}, whole)
    if part.get("type") == "object":
        part.setdefault("additionalProperties", False)
    for key in ("properties", "$defs", "definitions"):
        if isinstance(part.get(key), Mapping):
            part[key] = {name: _strict(inner, whole) for name, inner in part[key].items()}
    if "properties" in part:
        part["required"] = list(part["properties"])
    if isinstance(part.get("items"), Mapping):
        part["items"] = _strict(part["items"], whole)
    for key in ("anyOf", "allOf"):
        if isinstance(part.get(key), list):
            part[key] = [_strict(inner, whole) for inner in part[key]]
    if len(part.get("allOf", ())) == 1:
        part.update(part.pop("allOf")[0])
    return part

"""Structured output: keeps an output schema until the model is chosen, and parses the model's answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableLambda, RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.utils.json import parse_json_markdown
from langchain_core.utils.pydantic import is_basemodel_subclass


@dataclass(frozen=True, slots=True)
class Structured:
    """An output schema, and the other arguments of ``with_structured_output``."""

    schema: Any
    options: Mapping[str, Any]

    def parsed(self, message: AIMessage) -> Any:
        """Return the instance of the schema that the model's answer ``message`` contains: a pydantic object, or a dict for any
        other schema.

        The instance is read from an object that the model's client has parsed, from a tool call, or from the text as JSON.

        Raises:
            OutputParserException: the answer contains no instance, or one that does not fit the schema.
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
        """Return a runnable that calls ``bound`` and returns the answer parsed by :meth:`parsed`.

        With ``include_raw`` it returns a dict with the keys ``raw`` (the model's answer), ``parsed`` and ``parsing_error``.
        """
        parser = RunnableLambda(self.parsed, name="parse")
        if not include_raw:
            return bound | parser
        parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parser, parsing_error=lambda _: None)
        unparsed = RunnablePassthrough.assign(parsed=lambda _: None)
        return RunnableMap(raw=bound) | parsed.with_fallbacks([unparsed], exception_key="parsing_error")


def schema_name(schema: Any) -> str:
    """Return the name under which a schema is sent to the provider."""
    if isinstance(schema, Mapping):
        stated = schema.get("json_schema", schema)
        if isinstance(stated, Mapping) and "schema" in stated and "name" in stated:
            return str(stated["name"])
    return str(convert_to_openai_tool(schema)["function"]["name"])

"""Structured output: a schema that waits for its model, and an answer's reading in whichever form it comes."""

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

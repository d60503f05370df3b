"""Tools and output schemas, kept as the user gave them until the model is known that they are for.

Every provider has its own form of a tool, of a tool choice, of structured output. So nothing is converted when it is bound:
the chosen model's own ``bind_tools`` or ``with_structured_output`` is asked at the moment of the call.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableBinding, RunnableSequence
from langchain_core.utils.function_calling import convert_to_openai_tool

from vinelm.backends.base import BoundChatModel
from vinelm.backends.remote.call_options import PARALLEL
from vinelm.backends.structured_output import Structured
from vinelm.errors import WorkflowError

STRUCTURED = "vinelm_structured"
"""Key of a call's options that holds a :class:`Structured`."""
TRACING_ONLY = "ls_structured_output_format"
"""Key by which LangChain tells tracers of a schema; no provider knows it."""


class BoundTools(list[Any]):
    """The tools in OpenAI's form, as ``ChatOpenAI`` binds them: tracers and libraries (``create_react_agent``, supervisors)
    read names and schemas there.

    Attributes:
        given: the tools as given, for the chosen model's own ``bind_tools``.
        options: the other arguments of ``bind_tools``.
    """

    def __init__(self, tools: Sequence[Any], options: Mapping[str, Any]) -> None:
        super().__init__(_read_form(tool, options.get("strict")) for tool in tools)
        self.given = tuple(tools)
        self.options = dict(options)


def aimed(model: BaseChatModel, options: Mapping[str, Any]) -> tuple[BaseChatModel, dict[str, Any]]:
    """The chat model to call and the options to call it with: tools and schema in that model's own form."""
    asked = dict(options)
    target = model
    structured: Structured | None = asked.pop(STRUCTURED, None)
    if structured is not None:
        bound = model.with_structured_output(structured.schema, **structured.options)
        target, own = _unwrapped(bound, "with_structured_output")
        asked = {**own, **asked}
    tools = asked.get("tools")
    if isinstance(tools, BoundTools):
        del asked["tools"]
        target, own = _unwrapped(_with_tools(target, tools), "bind_tools")
        asked = {**own, **asked}
    asked.pop(TRACING_ONLY, None)
    return target, asked


def _with_tools(model: BaseChatModel, tools: BoundTools) -> Runnable[Any, Any]:
    if isinstance(model, BoundChatModel):  # our own take OpenAI's form: nothing is converted twice
        return model.bind_tools(list(tools), **tools.options)
    options = dict(tools.options)
    # Sent by libraries that read it off our signature; a provider without such a parameter would refuse the call.
    if PARALLEL in options and PARALLEL not in inspect.signature(model.bind_tools).parameters:
        del options[PARALLEL]
    return model.bind_tools(list(tools.given), **options)


def _read_form(tool: Any, strict: bool | None) -> Any:
    """The tool in OpenAI's form; as given where it has none, such as a provider's own tool: its ``bind_tools`` decides."""
    try:
        return convert_to_openai_tool(tool, strict=strict)
    except (TypeError, ValueError):
        return tool


def _unwrapped(bound: Any, method: str) -> tuple[BaseChatModel, dict[str, Any]]:
    """The chat model inside a binding, or at the head of a chain that parses its answer; and what is bound to it."""
    if isinstance(bound, RunnableSequence):
        bound = bound.first
    options: dict[str, Any] = {}
    while isinstance(bound, RunnableBinding):
        options = {**bound.kwargs, **options}
        bound = bound.bound
    if not isinstance(bound, BaseChatModel):
        raise WorkflowError(f"{method} of the chosen model gave a {type(bound).__name__}: VineLM can only call chat models")
    return bound, options


def bind_lazily(model: BaseChatModel, tools: Sequence[Any], options: dict[str, Any]) -> Runnable[Any, Any]:
    """Return ``model`` with tools that are converted for the chosen model at the moment of the call."""
    tracing = {TRACING_ONLY: options.pop(TRACING_ONLY)} if TRACING_ONLY in options else {}
    return model.bind(tools=BoundTools(tools, options), **tracing)


def structured_chain(model: BaseChatModel, schema: Any, *, include_raw: bool, options: dict[str, Any]) -> Runnable[Any, Any]:
    """Return a runnable that gives instances of ``schema``, in whichever form the chosen model answers."""
    structured = Structured(schema, options)
    return structured.chain(model.bind(**{STRUCTURED: structured}), include_raw=include_raw)


def whole_chunk(result: ChatResult) -> ChatGenerationChunk:
    """Return the answer of a model that does not stream as a single chunk."""
    generation = result.generations[0]
    message = cast("AIMessage", generation.message)
    chunk = AIMessageChunk(
        content=message.content,
        additional_kwargs=message.additional_kwargs,
        response_metadata={**(result.llm_output or {}), **message.response_metadata},
        id=message.id,
        tool_calls=message.tool_calls,
        invalid_tool_calls=message.invalid_tool_calls,
        usage_metadata=message.usage_metadata,
        chunk_position="last",
    )
    return ChatGenerationChunk(message=chunk, generation_info=generation.generation_info)

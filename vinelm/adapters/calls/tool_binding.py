"""Keeps tools and output schemas as the application gave them, until the model that will use them is chosen.

Every provider has its own format of tools, tool choices and structured output. So binding converts nothing: each call uses the
chosen model's ``bind_tools`` or ``with_structured_output``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableBinding, RunnableSequence
from langchain_core.utils.function_calling import convert_to_openai_tool

from vinelm.adapters.calls.structured import Structured
from vinelm.errors import UNSUPPORTED_CALL, WorkflowError

PARALLEL = "parallel_tool_calls"
"""OpenAI's option that allows or forbids several tool calls in one answer; libraries look for it in every ``bind_tools``."""
STRUCTURED = "vinelm_structured"
"""Key of a call's options that holds a :class:`Structured`."""
OPENAI_BODY = "vinelm_openai_body"
"""Key of a call's options that holds parameters of OpenAI's chat completions, for whichever model is chosen."""
OWN_MODEL = "vinelm_own_model"
"""Key of a call's options that holds the application's own chat model and its settings, as an ``OwnModel``."""
TRACING_ONLY = "ls_structured_output_format"
"""Key by which LangChain tells tracers of a schema; no provider knows it."""


class BoundTools(list[Any]):
    """A list of tools in OpenAI's format, as ``ChatOpenAI`` binds them. Tracers and libraries (``create_react_agent``,
    supervisors) read the tools' names and schemas from this list.

    Attributes:
        given: the tools as given, for the chosen model's own ``bind_tools``.
        options: the other arguments of ``bind_tools``.
    """

    def __init__(self, tools: Sequence[Any], options: Mapping[str, Any]) -> None:
        super().__init__(_read_form(tool, options.get("strict")) for tool in tools)
        self.given = tuple(tools)
        self.options = dict(options)


def aimed(model: BaseChatModel, options: Mapping[str, Any]) -> tuple[BaseChatModel, dict[str, Any]]:
    """Return the chat model to call for the chosen ``model``, and the options of the call in that model's format.

    Tools and output schemas in ``options`` are converted by the model's own ``bind_tools`` and ``with_structured_output``. So
    the returned chat model may be another object than ``model``, for example a copy with the application's settings.
    """
    asked = dict(options)
    target = model
    if not hasattr(model, "_attempt"):  # else it only passes on what is meant for the model that it chooses
        own, body = asked.pop(OWN_MODEL, None), asked.pop(OPENAI_BODY, None)
        if own is not None and hasattr(model, "as_owned"):
            model = target = model.as_owned(own)
        if body is not None:
            asked = {**_in_own_words(model, body), **asked}
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
    return model.bind_tools(list(tools.given), **taken(model.bind_tools, tools.options))


def _in_own_words(model: BaseChatModel, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters ``body`` of an OpenAI chat completion, converted to the options of the chosen model.

    Raises :class:`WorkflowError` if the model lacks a parameter.
    """
    inner = getattr(getattr(model, "binding", None), "inner", None)
    if inner is None:
        return dict(body)  # a model of another backend, which knows what to do with them
    chat: BaseChatModel = inner.given
    if any(base.__module__.startswith("langchain_openai.") for base in type(chat).__mro__):
        return dict(body)
    found: dict[str, Any] = {}
    for name, value in body.items():
        if name == "response_format":
            schema = value.get("json_schema", {}).get("schema") if isinstance(value, Mapping) else None
            if isinstance(schema, Mapping):
                titled = {"title": str(value["json_schema"].get("name", "answer")), **schema}
                found[STRUCTURED] = Structured(titled, {})
                continue
        elif name in _SHARED and (name in type(chat).model_fields or _SHARED[name] in type(chat).model_fields):
            found[name if name in type(chat).model_fields else _SHARED[name]] = value
            continue
        kind = type(chat).__name__
        raise WorkflowError(
            f"{kind} has no parameter {name!r} of OpenAI's: leave it out, or keep this stage to OpenAI's models",
            code=UNSUPPORTED_CALL,
        )
    return found


_SHARED: Mapping[str, str] = MappingProxyType({"temperature": "temperature", "top_p": "top_p", "seed": "seed"})
"""Parameters that most packages have, by OpenAI's name and theirs."""


def taken(bind_tools: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``options`` without ``parallel_tool_calls`` if ``bind_tools`` has no such parameter, otherwise unchanged.

    Libraries pass this option because our own signature lists it, but a provider without the parameter would refuse the call.
    """
    known = inspect.signature(bind_tools).parameters
    return {name: one for name, one in options.items() if name in known or name != PARALLEL}


def _read_form(tool: Any, strict: bool | None) -> Any:
    """Return ``tool`` in OpenAI's format; a tool that cannot be converted (a provider's built-in tool) is returned unchanged.

    ``strict`` states whether arguments must match the schema exactly; None leaves this unstated.
    """
    try:
        return convert_to_openai_tool(tool, strict=strict)
    except (TypeError, ValueError):
        return tool


def _unwrapped(bound: Any, method: str) -> tuple[BaseChatModel, dict[str, Any]]:
    """Return the chat model inside a binding or at the start of a parsing chain, and the arguments bound to the model.

    ``method`` is the name of the method that returned ``bound``, for the error message.

    Raises:
        WorkflowError: ``bound`` contains no chat model.
    """
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
    """Return ``model`` bound to tools that are converted at each call, to the format of the model chosen for that call."""
    tracing = {TRACING_ONLY: options.pop(TRACING_ONLY)} if TRACING_ONLY in options else {}
    return model.bind(tools=BoundTools(tools, options), **tracing)


def structured_chain(model: BaseChatModel, schema: Any, *, include_raw: bool, options: dict[str, Any]) -> Runnable[Any, Any]:
    """Return a runnable that parses the answer of the chosen model, in whatever form it comes, into an instance of ``schema``.

    ``options`` are the other arguments of ``with_structured_output``. With ``include_raw`` the runnable returns a dict that
    also has the raw answer.
    """
    structured = Structured(schema, options)
    return structured.chain(model.bind(**{STRUCTURED: structured}), include_raw=include_raw)

"""One recorded LLM call, in the form that all readers of traces return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCall:
    """One LLM call of an application, as recorded in its trace. Missing values are None or empty.

    Messages, tools and the answer have the form of OpenAI's chat completions, which LangChain reads, too.

    Attributes:
        request: The name of the application's run; all calls of one run have the same request.
        conversation: The session or thread that the request is a part of; empty if the trace names none.
        call: The name of the call within the file.
        step: The LangGraph node, span or generation that made the call; empty if the trace names none.
        model: The model, as the provider or the client names it.
        provider: The provider, as the trace names it.
        messages: The prompt: ``role``, ``content``, ``tool_calls``, ``tool_call_id``.
        answer: The assistant's message: ``content``, ``tool_calls``; None if the call failed or was not recorded.
        tools: Declarations of tools that the model could call.
        response_format: The requested form of structured output.
        settings: Temperature, limits and the like, as sent.
        started_at: Seconds since 1970.
        seconds: Seconds from sending the call to the complete answer.
        tokens_in: Number of prompt tokens, including cached tokens.
        tokens_out: Number of tokens of the answer, including reasoning.
        cached_tokens: Prompt tokens that were read from a cache.
        cost_usd: The recorded cost, in dollars.
        error: The error with which the call failed.
        stands_for: Number of calls that this call represents if only a part was recorded: 1 / the sampling rate; 0
            excludes the call.
        where: File and line of the call, for messages.
    """

    request: str
    call: str
    conversation: str = ""
    step: str = ""
    model: str = ""
    provider: str = ""
    messages: Sequence[Mapping[str, Any]] = ()
    answer: Mapping[str, Any] | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    response_format: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    started_at: float | None = None
    seconds: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    error: str | None = None
    stands_for: float = 1
    where: str = ""

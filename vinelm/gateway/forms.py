"""OpenAI's two formats of a call, Chat Completions and Responses: the parts of their bodies that the gateway needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from vinelm.backends.remote.provider import CHAT, RESPONSES
from vinelm.gateway.answer import ChatAnswer, ResponsesAnswer
from vinelm.replay.formats.chat import format_of, messages_of

_STORED = ("previous_response_id", "conversation", "prompt")
_TYPES: Mapping[Any, str] = {"developer": "system", "user": "human", "assistant": "ai"}
"""LangChain's names for the roles of messages that differ from OpenAI's, so that equal prompts begin alike whoever sends them.
"""


class SaidMessage(NamedTuple):
    """A message of a prompt. It has those fields of LangChain's messages that are needed to calculate a call's maximum cost
    and to choose its server.
    """

    type: str
    content: str | list[Any]
    text: str

    @classmethod
    def of(cls, role: str, content: Any) -> SaidMessage:
        """Convert one message of a request's body, given by its role and content."""
        kind = _TYPES.get(role, role)
        if isinstance(content, list):
            parts = [part for part in content if isinstance(part, dict | str)]
            texts = [part if isinstance(part, str) else part.get("text") for part in parts]
            return cls(kind, parts, "".join(text for text in texts if isinstance(text, str)))
        said = content if isinstance(content, str) else ""
        return cls(kind, said, said)


class Form(ABC):
    """One format of a call.

    Attributes:
        path: the URL path of calls in this format, after ``/v1/``, both at the gateway and at a provider.
        limits: the names of the parameters that limit an answer's length.
        answer: the class that parses an answer.
    """

    path: str
    limits: tuple[str, ...]
    answer: type[ChatAnswer]

    @abstractmethod
    def wrong(self, body: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return the name of a parameter that makes a body invalid, and the reason; None if the body is valid."""

    @abstractmethod
    def said(self, body: Mapping[str, Any]) -> list[SaidMessage]:
        """Return the messages of a body, from which the call's maximum cost is calculated."""

    @abstractmethod
    def messages(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a body's messages in the format of Chat Completions, to record them and to identify the step."""

    @abstractmethod
    def response_format(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer format that the body requires, written as in Chat Completions; None for plain text."""

    def adds_usage(self, asked: Mapping[str, Any]) -> bool:
        """Return whether the gateway must ask the provider to include token usage in the stream, because the client's
        body ``asked`` does not.
        """
        return False

    def error_event(self, error: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON of the event that ends a stream with an error."""
        return {"error": error}


class ChatForm(Form):
    """The format of OpenAI's Chat Completions API."""

    path, limits, answer = CHAT, ("max_tokens", "max_completion_tokens"), ChatAnswer

    def wrong(self, body: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return the name of an invalid parameter and the reason; None if the body is valid."""
        if not _is_objects(body.get("messages")):
            return "messages", "messages must be a list of objects, and not empty"
        return None

    def said(self, body: Mapping[str, Any]) -> list[SaidMessage]:
        """Return the messages of a body, from which the call's maximum cost is calculated; see :meth:`Form.said`."""
        return [SaidMessage.of(str(one.get("role")), one.get("content")) for one in body["messages"]]

    def messages(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the body's messages, which are those of chat completions already; see :meth:`Form.messages`."""
        found: list[dict[str, Any]] = body["messages"]
        return found

    def response_format(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer format that the body requires; None for plain text."""
        return format_of(body)

    def adds_usage(self, asked: Mapping[str, Any]) -> bool:
        """Return whether the gateway must ask for token usage: True if the client's body asks for a stream, but not for
        its usage.
        """
        options = asked.get("stream_options")
        return bool(asked.get("stream")) and not (isinstance(options, Mapping) and options.get("include_usage"))


class ResponsesForm(Form):
    """The format of the Responses API, restricted to calls that contain their whole input. Input that is stored at the
    provider could be neither priced nor recorded.
    """

    path, limits, answer = RESPONSES, ("max_output_tokens",), ResponsesAnswer

    def wrong(self, body: Mapping[str, Any]) -> tuple[str, str] | None:
        """Return the name of an invalid parameter and the reason; None if the body is valid."""
        given, above = body.get("input"), body.get("instructions")
        if not (isinstance(given, str) and given) and not _is_objects(given):
            return "input", "input must be a text or a list of objects, and not empty"
        if above is not None and not isinstance(above, str):
            return "instructions", "instructions must be a text"
        for name in (*_STORED, "background"):
            if body.get(name):
                return name, f"the gateway takes no {name}: send the whole input with each call, and wait for its answer"
        if isinstance(given, list) and any(one.get("type") == "item_reference" for one in given):
            return "input", "the gateway takes no item_reference: send the item itself"
        return None

    def said(self, body: Mapping[str, Any]) -> list[SaidMessage]:
        """Return the messages of a body, from which the call's maximum cost is calculated; see :meth:`Form.said`."""
        given, above = body["input"], body.get("instructions")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        found = [
            SaidMessage.of(str(one.get("role") or one.get("type")), one.get("content") or one.get("output")) for one in items
        ]
        return [SaidMessage.of("system", above), *found] if above else found

    def messages(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Convert the body's input to messages of chat completions; see :meth:`Form.messages`."""
        given, above = body["input"], body.get("instructions")
        system = [{"role": "system", "content": above}] if above else []
        if isinstance(given, str):
            return [*system, {"role": "user", "content": given}]
        return [*system, *messages_of([one for one in given if one.get("type") != "reasoning"])]

    def response_format(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer format that the body requires, written as in Chat Completions; None for plain text."""
        found = format_of(body)
        if found is None or found.get("type") != "json_schema":
            return found
        return {"type": "json_schema", "json_schema": {name: one for name, one in found.items() if name != "type"}}

    def error_event(self, error: Mapping[str, Any]) -> dict[str, Any]:
        """Return the JSON of the event that ends a stream with an error. The error is under the key ``error``, from
        which OpenAI's SDKs raise it, although the format itself has the error's fields at the top level.
        """
        return {**error, "type": "error", "error": error}


CHAT_FORM, RESPONSES_FORM = ChatForm(), ResponsesForm()


def _is_objects(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(isinstance(one, dict) for one in given)

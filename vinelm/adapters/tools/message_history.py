"""What a conversation in a graph's state shows of tools: the history that calls are guessed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from vinelm.errors import WorkflowError
from vinelm.tools.call import ToolEvent, canonical_key, is_answered, text_of, value_of


def messages_in(state: Mapping[str, Any]) -> Sequence[BaseMessage] | None:
    """Return the conversation in a state: ``messages``, else the first list of messages; None if there is none."""
    for value in (state.get("messages"), *state.values()):
        if isinstance(value, list) and value and all(isinstance(one, BaseMessage) for one in value):
            return value
    return None


class UserWords:
    """Finds what the user has said since a run last looked at its conversation.

    A run begins behind what earlier turns have said: behind the last answer of the model.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: int | None = None

    def new_in(self, messages: Sequence[BaseMessage]) -> list[str]:
        """Return the texts of the user's messages that are new, in order."""
        said = [at for at, message in enumerate(messages) if isinstance(message, HumanMessage)]
        if self._known is None:
            answered = max((at for at, message in enumerate(messages) if isinstance(message, AIMessage)), default=-1)
            self._known = sum(at < answered for at in said)
        new, self._known = said[self._known :], len(said)
        return [messages[at].text for at in new]


def history_of(messages: Sequence[BaseMessage]) -> list[str | ToolEvent]:
    """Return the user's messages and the calls that were answered, earlier turns included."""
    found: list[str | ToolEvent] = []
    asked: dict[str | None, tuple[str, Mapping[str, Any]]] = {}
    for message in messages:
        if isinstance(message, HumanMessage):
            found.append(message.text)
        elif isinstance(message, AIMessage):
            asked.update({call["id"]: (call["name"], call["args"]) for call in message.tool_calls})
        elif isinstance(message, ToolMessage) and message.tool_call_id in asked:
            tool, arguments = asked[message.tool_call_id]
            with suppress(WorkflowError):  # arguments that are no JSON: no guess can come from them
                key = canonical_key(tool, arguments)
                content = text_of(message.content)
                found.append(
                    ToolEvent(
                        request_id="",
                        seq=len(found),
                        tool=tool,
                        key=key,
                        is_ok=is_answered(message.status, content),
                        arguments=arguments,
                        result=value_of(content),
                    )
                )
    return found

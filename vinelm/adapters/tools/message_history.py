"""Reads the history of tool calls from a conversation in a graph's state, to predict calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from vinelm.errors import WorkflowError
from vinelm.tools.call import History, ToolEvent, begins_with, canonical_key, is_answered, text_of, value_of


def messages_in(state: Mapping[str, Any]) -> Sequence[BaseMessage] | None:
    """Return the conversation in a state: the value of the key ``messages``, or else the first value that is a list of
    messages; None if there is none.
    """
    for value in (state.get("messages"), *state.values()):
        if isinstance(value, list) and value and all(isinstance(one, BaseMessage) for one in value):
            return value
    return None


class UserWords:
    """Finds the user messages that were added to a run's conversation since the last call of :meth:`new_in`.

    In the first call, messages before the model's last answer do not count, since they belong to earlier turns.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: int | None = None

    def new_in(self, messages: Sequence[BaseMessage]) -> list[str]:
        """Return the texts of the user messages that were added since the last call of this method, in order."""
        said = [at for at, message in enumerate(messages) if isinstance(message, HumanMessage)]
        if self._known is None:
            answered = max((at for at, message in enumerate(messages) if isinstance(message, AIMessage)), default=-1)
            self._known = sum(at < answered for at in said)
        new, self._known = said[self._known :], len(said)
        return [messages[at].text for at in new]


class Conversation:
    """The history of a conversation, including earlier turns, updated as messages arrive. Not thread-safe."""

    __slots__ = ("_asked", "_found", "_messages")

    def __init__(self) -> None:
        self._messages: list[BaseMessage] = []
        self._asked: dict[str | None, tuple[str, Mapping[str, Any]]] = {}
        self._found: list[str | ToolEvent] = []

    def history(self, messages: Sequence[BaseMessage]) -> History:
        """Return the user's messages and the answered tool calls. Only messages added since the last call of this method are
        read.

        Events that an earlier call returned are returned again, not copied. A conversation that does not extend the
        previous conversation is read from its start.
        """
        if not begins_with(messages, self._messages):
            self.__init__()  # type: ignore[misc]
        for message in messages[len(self._messages) :]:
            self._messages.append(message)
            self._take_in(message)
        return self._found

    def _take_in(self, message: BaseMessage) -> None:
        if isinstance(message, HumanMessage):
            self._found.append(message.text)
        elif isinstance(message, AIMessage):
            self._asked.update({call["id"]: (call["name"], call["args"]) for call in message.tool_calls})
        elif isinstance(message, ToolMessage) and message.tool_call_id in self._asked:
            tool, arguments = self._asked[message.tool_call_id]
            content = text_of(message.content)
            with suppress(WorkflowError):  # arguments that are no JSON: no guess can come from them
                self._found.append(
                    ToolEvent(
                        request_id="",
                        seq=len(self._found),
                        tool=tool,
                        key=canonical_key(tool, arguments),
                        is_ok=is_answered(message.status, content),
                        arguments=arguments,
                        result=value_of(content),
                    )
                )

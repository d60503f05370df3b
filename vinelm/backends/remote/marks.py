"""Marks prompts for the provider's cache, on LangChain's messages and on bound tools.

Anthropic: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
Bedrock: https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.prompt_text import canonical, message_text
from vinelm.backends.remote.meter import ModelRequest

_OWN_MARKS = ("cache_control", "cachePoint")


def prompt_parts(request: ModelRequest) -> list[str]:
    """Return the text of each tool and of each message, in the order in which a cache reads them: tools, system, conversation.

    Empty if the prompt already contains cache marks of the application, so that it stays unchanged.
    """
    prompt = request.prompt
    if any(mark in prompt for mark in _OWN_MARKS):
        return []
    tools = [f"tool\n{canonical(tool)}" for tool in request.options.get("tools") or ()]
    return tools + [f"{message.type}\n{message_text(message)}" for _, message in _in_order(request.messages)]


def _in_order(messages: Sequence[BaseMessage]) -> Iterator[tuple[int, BaseMessage]]:
    for is_system in (True, False):
        yield from ((place, one) for place, one in enumerate(messages) if (one.type == "system") is is_system)


class Marks(ABC):
    """Marks the parts of a prompt that one provider should cache."""

    def placed(self, request: ModelRequest, marks: Collection[int]) -> tuple[list[BaseMessage], Mapping[str, Any]]:
        """Return the request's messages and options with cache marks at the given parts; parts that cannot be marked are left
        as they are.

        ``marks`` has the indices of these parts in the list of :func:`prompt_parts`. Each is the last part of a prefix that
        the provider should cache.
        """
        tools, messages = list(request.options.get("tools") or ()), list(request.messages)
        places = [place for place, _ in _in_order(messages)]
        for mark in sorted(marks, reverse=True):  # from the end, since a mark may be a separate element
            if mark < len(tools):
                tools = self.after_tool(tools, mark)
            elif mark - len(tools) < len(places):
                place = places[mark - len(request.options.get("tools") or ())]
                messages[place] = self._after(messages[place])
        options = dict(request.options)
        if tools:
            options["tools"] = tools
        return messages, options

    @abstractmethod
    def after_tool(self, tools: list[Any], place: int) -> list[Any]:
        """Return the tools with a cache mark on the tool at the index ``place``."""

    @abstractmethod
    def after_block(self, blocks: list[Any]) -> list[Any]:
        """Return a message's content blocks with the provider's cache mark on the last block."""

    def _after(self, message: BaseMessage) -> BaseMessage:
        content = message.content
        blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        if not blocks or blocks[-1].get("type") in ("thinking", "redacted_thinking", "reasoning", "reasoning_content"):
            return message
        if blocks[-1].get("type") == "text" and not blocks[-1].get("text"):
            return message
        return message.model_copy(update={"content": self.after_block(blocks)})


class ControlMarks(Marks):
    """Anthropic's cache marks. A mark is a field of the marked block."""

    def after_tool(self, tools: list[Any], place: int) -> list[Any]:
        """Return the tools with a cache mark on the tool at the index ``place``."""
        return [{**tool, "cache_control": {"type": "ephemeral"}} if at == place else tool for at, tool in enumerate(tools)]

    def after_block(self, blocks: list[Any]) -> list[Any]:
        """Return a message's content blocks, of which the last also has the field that marks it for the provider's cache."""
        return [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]


class PointMarks(Marks):
    """Marks prompts for Bedrock's cache: a mark is a separate element after the marked tool or content block."""

    def after_tool(self, tools: list[Any], place: int) -> list[Any]:
        """Return the tools with a cache mark, as a separate element, after the tool at the index ``place``."""
        return [*tools[: place + 1], {"cachePoint": {"type": "default"}}, *tools[place + 1 :]]

    def after_block(self, blocks: list[Any]) -> list[Any]:
        """Return a message's content blocks followed by the provider's cache mark, a separate block."""
        return [*blocks, {"cachePoint": {"type": "default"}}]

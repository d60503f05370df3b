"""The prompts that a scripted run of a few requests sends, with each message named as its author knows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.turns import prompt_parts
from vinelm.prompts.layout import PromptLayout, PromptPart, SeenPrompt, layout_of
from vinelm.requests.protocols import CallContext

_LEAST_CHARS = 3  # of a state's value that a message is named by: shorter ones are in any text


class SeenPrompts:
    """Collects prompts in memory. Threads of one run may share it."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[str, Sequence[BaseMessage], Sequence[Any]]]] = {}
        self._states: dict[str, Mapping[str, Any]] = {}

    def begin(self, request_id: str, state: Mapping[str, Any]) -> None:
        """Begin the run of a request with this state; what an earlier try has sent is forgotten."""
        self._seen[request_id], self._states[request_id] = [], state

    def end(self, request_id: str, state: Mapping[str, Any]) -> None:
        """Note the state at the end, whose keys name messages."""
        self._states[request_id] = {**self._states[request_id], **state}

    def seeing(self, call: CallContext) -> CallContext:
        """Return the call's context with its prompts collected here."""
        return replace(call, on_prompt=partial(self._see, call))

    def layout(self) -> PromptLayout:
        """Return what the prompts have in common."""
        return layout_of(
            [
                SeenPrompt(stage, request_id, tuple(_parts(messages, tools, self._states[request_id])))
                for request_id, calls in self._seen.items()
                for stage, messages, tools in calls
            ]
        )

    def _see(self, call: CallContext, messages: Sequence[BaseMessage], tools: Sequence[Any]) -> None:
        if call.request is not None:
            self._seen.setdefault(call.request.id, []).append((call.stage, list(messages), tools))


def _parts(messages: Sequence[BaseMessage], tools: Sequence[Any], state: Mapping[str, Any]) -> Iterator[PromptPart]:
    for number, text in enumerate(prompt_parts([], tools), 1):
        yield PromptPart(f"tool {number}", text, is_movable=False)
    taken: set[str] = set()
    is_opening = True  # behind the model's first turn the order is that of the conversation
    for number, message in enumerate(sorted(messages, key=lambda one: one.type != "system"), 1):
        is_opening = is_opening and message.type in ("system", "human")
        for text in prompt_parts([message]):
            name = message.name or _key_of(text, state)
            name = f"{message.type} message {number}" if name is None or name in taken else name
            taken.add(name)
            yield PromptPart(name, text, is_movable=is_opening and message.type == "human")


def _key_of(text: str, state: Mapping[str, Any]) -> str | None:
    """The key of the longest value of the state that is in the text."""
    found = {key: len(value) for key, value in state.items() if isinstance(value, str) and value in text}
    best = max(found, key=lambda key: found[key], default=None)
    return best if best is not None and found[best] >= _LEAST_CHARS else None

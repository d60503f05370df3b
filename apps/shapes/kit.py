"""What the shapes share: simulated models that read the prompt, and the description of a shape.

Whether an invocation is right is drawn by :class:`~vinelm.backends.offline.simulated.SimulatedBackend` from the presets, as for
every simulated workflow; what a right or a wrong model then says follows from the stage and from the prompt, so that an earlier
mistake has the consequences that it has in the application. No figure from these models was measured on a real one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.tool import ToolCall

from vinelm import Catalog, Request, Workflow
from vinelm.backends import OfflineChatModel, simulated_catalog
from vinelm.backends.offline.chat_model import request_of
from vinelm.backends.offline.simulated import SimulatedBackend
from vinelm.requests.protocols import CallContext
from vinelm.rows.observation import Usage

MODELS = ("sim-gemma-27b", "sim-gpt-oss-120b", "sim-sonnet")
TYPICAL_ANSWER = 200
"""Characters of an answer, which decide its tokens and so its price and latency."""
Skills = Mapping[str, float]


def catalog(models: Sequence[str] = MODELS) -> Catalog:
    """Three simulated models: a cheap one, one in the middle, a dear one."""
    return simulated_catalog().subset(models)


@dataclass(frozen=True)
class Use:
    """A model's answer that calls a tool."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Prompt:
    """What a simulated model sees of one call; ``rng`` is a function of the call."""

    stage: str
    request: Request
    messages: Sequence[BaseMessage]
    tools: tuple[str, ...] = ()
    rng: random.Random = field(default_factory=random.Random)

    @property
    def row(self) -> Mapping[str, Any]:
        """The request's row, labels included."""
        return self.request.data

    @property
    def text(self) -> str:
        """All messages."""
        return "\n".join(message.text for message in self.messages)

    @property
    def last(self) -> BaseMessage:
        """The last message."""
        return self.messages[-1]

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls since the last human message."""
        made: list[ToolCall] = []
        for message in self.messages:
            if isinstance(message, HumanMessage):
                made = []
            elif isinstance(message, AIMessage):
                made.extend(message.tool_calls)
        return made

    def off(self, number: float) -> float:
        """A number near the given one."""
        return number + self.rng.choice((-10, -2, -1, 1, 2, 10))


Reply = str | Mapping[str, Any] | Use
"""A text, the fields of a structured answer, or a tool call."""


@dataclass(frozen=True)
class Shape:
    """One application shape.

    Args:
        workflow: what is profiled; its template may be None.
        answers: by stage, what a model says that is right (True) or wrong (False) about a prompt.
        skills: by stage, the skills demanded, on top of those of the request; negative where the stage is easy.
        demands: further skills that follow from the prompt, such as a hint that makes a task easier.
        subject: what of the prompt is a task of its own where several calls share a place in the path.
        thread: the conversation of a request; None where each request is one of its own.
        turn: the input of a turn on a thread, where it differs from the profiled one.
        unsupported: why the shape cannot be profiled, in one line; None if it can.
    """

    workflow: Workflow
    answers: Mapping[str, Callable[[Prompt, bool], Reply]]
    skills: Mapping[str, Skills] = field(default_factory=dict)
    demands: Callable[[Prompt], Skills] = lambda prompt: {}
    subject: Callable[[Prompt], str] = lambda prompt: ""
    thread: Callable[[Request], str] | None = None
    turn: Callable[[Request], Mapping[str, Any]] | None = None
    unsupported: str | None = None


class _Marker:
    """A writer that says only whether the answer is right; the shape writes the text."""

    kinds: Sequence[str] = ("syntax_error", "wrong_aggregate")

    def skills(self, request: Request) -> Skills:
        return request.data["skills"]

    def right(self, request: Request, rng: random.Random) -> str:
        return "right".ljust(TYPICAL_ANSWER)

    def wrong(self, request: Request, kind: str, rng: random.Random) -> str:
        return "wrong".ljust(TYPICAL_ANSWER)


class ShapeBackend:
    """Serves the simulated models of one shape."""

    is_simulated = True
    is_virtual_time = True

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        self.shape = shape
        self._seed = seed
        self._outcomes = SimulatedBackend(_Marker(), seed=seed)

    def chat_model(self, model: Any, call: CallContext) -> OfflineChatModel:
        """See :meth:`vinelm.requests.protocols.Backend.chat_model`."""
        return _PromptedModel.bound(self, model, call)

    def prompt(self, call: CallContext, messages: Sequence[BaseMessage], tools: tuple[str, ...] = ()) -> Prompt:
        """The prompt of a call."""
        request = request_of(call, "simulated")
        rng = random.Random("\n".join([str(self._seed), request.id, call.stage, *call.prefix, *map(_text, messages)]))
        return Prompt(call.stage, request, messages, tools, rng)

    def outcome(self, model: Any, call: CallContext, messages: Sequence[BaseMessage]) -> tuple[str, Usage]:
        """``"right"`` or ``"wrong"``, padded to a typical answer, and the usage."""
        prompt = self.prompt(call, messages)
        skills: dict[str, float] = dict(prompt.row.get("skills", {}))
        for more in (self.shape.skills.get(call.stage, {}), self.shape.demands(prompt)):
            for name, share in more.items():
                skills[name] = skills.get(name, 0.0) + share
        task = Request(f"{prompt.request.id}/{call.stage}/{self.shape.subject(prompt)}", {"skills": skills})
        chars = sum(len(_text(message)) for message in messages)
        return self._outcomes.answer(model, replace(call, request=task), chars)


class _PromptedModel(OfflineChatModel):
    """A simulated model whose answers depend on the prompt and the bound tools."""

    def _answer(self, messages: Sequence[BaseMessage]) -> tuple[str, Usage, Any]:
        bound = self.binding
        text, usage = bound.source.outcome(bound.model, bound.call, messages)
        guard = bound.call.guard
        return text, usage, None if guard is None else guard.authorize(usage.cost_usd)

    def _said(self, text: str, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> tuple[str, list[ToolCall]]:
        source, call = self.binding.source, self.binding.call
        tools = tuple(tool["function"]["name"] for tool in options.get("tools") or ())
        prompt = source.prompt(call, messages, tools)
        reply = source.shape.answers[call.stage](prompt, text.startswith("right"))
        if isinstance(reply, str):
            return reply, []
        use = reply if isinstance(reply, Use) else Use(tools[0], reply)
        made = sum(len(message.tool_calls) for message in messages if isinstance(message, AIMessage))
        return "", [ToolCall(name=use.name, args=dict(use.args), id=f"call-{made}", type="tool_call")]


def _text(message: BaseMessage) -> str:
    return message.text


def numbers_after(text: str, word: str) -> list[int]:
    """The whole numbers behind a word, as simulated models read them off a prompt."""
    found = []
    for piece in text.split(word)[1:]:
        digits = piece.strip(" :=").split()[0].strip(".,") if piece.strip(" :=") else ""
        if digits.lstrip("-").isdigit():
            found.append(int(digits))
    return found

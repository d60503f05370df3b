"""Models of the attacked applications: they answer at once, and ask what a backend asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from vinelm import AnnotatedTrie, Catalog, Loop, Stage, Template
from vinelm.catalog import Model, Price
from vinelm.errors import CallError
from vinelm.requests.protocols import CallContext
from vinelm.rows.observation import Usage
from vinelm.trie.trie import Trie

NAMES = ("good", "fair", "poor")
UPPER_USD, COST_USD = 0.01, 0.001
TURNS = 3
"""Answers of an agent that is given tools: calls of a tool, and the last without one."""


class Stub(BaseChatModel):
    """Answers with its name, for a tenth of a cent; asks the guard first. A model that is down fails.

    With tools it calls the first of them until it has answered ``TURNS`` times; with a schema its answer is JSON.
    """

    name_: str
    call: Any
    backend: Any

    @property
    def _llm_type(self) -> str:
        return "stub"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """With tools."""
        return self.bind(tools=list(tools))

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Any:
        """With a schema."""
        return self.bind(schema=schema)

    def _spend(self) -> None:
        """What a backend does for a call: it asks the guard, waits for rate limits, and reports."""
        call: CallContext = self.call
        permit = None if call.guard is None else call.guard.authorize(UPPER_USD)
        float(call.priority)
        if call.on_gate is not None:
            call.on_gate(True)
            call.on_gate(False)
        self.backend.calls += 1
        self.backend.unguarded += permit is None
        usage = Usage(model=self.name_, cost_usd=COST_USD, latency_s=0.01)
        if permit is not None:
            permit.settle(usage)
        call.on_usage(usage)
        if self.name_ in self.backend.down:
            raise CallError(f"{self.name_} is down", kind="server")

    def _said(self, messages: Any, kwargs: Any) -> dict[str, Any]:
        if "schema" in kwargs:
            return {"content": json.dumps({"text": self.name_})}
        turn = sum(message.type == "tool" for message in messages)
        if kwargs.get("tools") and turn < TURNS - 1:
            return {"content": "", "tool_calls": [{"name": "add", "args": {"a": 1, "b": turn}, "id": f"call-{turn}"}]}
        return {"content": self.name_}

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        self._spend()
        return ChatResult(generations=[ChatGeneration(message=AIMessage(**self._said(messages, kwargs)))])

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        self._spend()
        said = self._said(messages, kwargs)
        calls = [
            {"name": one["name"], "args": json.dumps(one["args"]), "id": one["id"], "index": 0}
            for one in said.get("tool_calls", ())
        ]
        yield ChatGenerationChunk(message=AIMessageChunk(content=said["content"], tool_call_chunks=calls))


class StubBackend:
    """Counts the calls, and those that no guard was asked for; ``down`` names the models that fail."""

    is_simulated, is_virtual_time = True, False

    def __init__(self, down: frozenset[str] = frozenset()) -> None:
        self.down = down
        self.calls = self.unguarded = 0

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """Return the chat model."""
        return Stub(name_=model.name, call=call, backend=self)


def annotated_trie(*steps: Stage | Loop) -> AnnotatedTrie:
    """Three models of the provider "stub"; each further answer adds less."""
    price = Price(input=1.0, output=1.0, source="made up", as_of="2026-01-01")
    catalog = Catalog(
        [Model(name=name, provider="stub", model_id=name, price=price, engine=name, max_tokens=8) for name in NAMES]
    )
    template = Template(steps).bind(NAMES)
    trie = Trie.from_template(template)
    zeros = np.zeros(len(trie))
    quality = np.array([0.0, *(0.3 - 0.1 * trie.model[node] for node in range(1, len(trie)))]) * (trie.depth > 0)
    right = quality / np.maximum(trie.depth, 1)
    return AnnotatedTrie(trie, template, catalog, right, zeros, zeros, zeros, zeros, zeros, zeros)


class Watcher:
    """An observer that is whole."""

    def decided(self, decided: Any) -> None:
        """Take it."""

    def began(self, stage: str, prefix: tuple[str, ...], model: Any) -> None:
        """Take it."""

    def ended(self, token: Any, invocation: Any) -> None:
        """Take it."""

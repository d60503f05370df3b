"""Cache marks in a body of Anthropic's Messages API: a prefix is kept up to each marked block.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

MARK: Mapping[str, Any] = {"type": "ephemeral"}
_UNMARKED = ("thinking", "redacted_thinking")
"""Blocks that take no mark."""


def prompt_parts(body: Mapping[str, Any]) -> list[str]:
    """Return the canonical text of each block, in the order in which a cache reads them; empty if the caller has marked any."""
    rest = json.dumps([body.get(key) for key in ("tool_choice", "thinking")])  # a change of these forgets the conversation
    parts: list[str] = []
    for role, block in _blocks(body):
        if "cache_control" in block or "cache_control" in body:
            return []
        before = ""
        if role not in ("tools", "system"):
            before, rest = rest, ""
        parts.append(f"{before}{role}\n{json.dumps(block, ensure_ascii=False)}")
    return parts


def marked(body: Mapping[str, Any], marks: Collection[int]) -> Mapping[str, Any]:
    """Return a copy with a mark at these blocks of :func:`prompt_parts`, except at those that take none."""
    numbers = iter(range(sum(1 for _ in _blocks(body))))

    def copied(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            {**block, "cache_control": dict(MARK)} if number in marks and block.get("type") not in _UNMARKED else block
            for block, number in zip(blocks, numbers, strict=False)
        ]

    made = {**body, **{key: copied(body[key]) for key in ("tools", "system") if key in body}}
    made["messages"] = [{**turn, "content": copied(turn["content"])} for turn in body["messages"]]
    return made


def _blocks(body: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for key in ("tools", "system"):
        for block in body.get(key, ()):
            yield key, block
    for turn in body["messages"]:
        for block in turn["content"]:
            yield turn["role"], block

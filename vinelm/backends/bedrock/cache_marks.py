"""Cache marks in the arguments of Bedrock's Converse: a prefix is kept up to each ``cachePoint``.

https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

MARK: Mapping[str, Any] = {"cachePoint": {"type": "default"}}


def prompt_parts(body: Mapping[str, Any]) -> list[str]:
    """Return the canonical text of each block, in the order in which a cache reads them; empty if the caller has marked any."""
    parts: list[str] = []
    for role, block in _blocks(body):
        if "cachePoint" in block:
            return []
        parts.append(f"{role}\n{json.dumps(block, ensure_ascii=False, default=lambda data: base64.b64encode(data).decode())}")
    return parts


def marked(body: Mapping[str, Any], marks: Collection[int]) -> Mapping[str, Any]:
    """Return a copy with a mark after these blocks of :func:`prompt_parts`."""
    numbers = iter(range(sum(1 for _ in _blocks(body))))

    def copied(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        pairs = zip(blocks, numbers, strict=False)
        return [piece for block, number in pairs for piece in ([block, dict(MARK)] if number in marks else [block])]

    made = dict(body)
    if "toolConfig" in body:
        made["toolConfig"] = {**body["toolConfig"], "tools": copied(body["toolConfig"]["tools"])}
    if "system" in body:
        made["system"] = copied(body["system"])
    made["messages"] = [{**turn, "content": copied(turn["content"])} for turn in body["messages"]]
    return made


def _blocks(body: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for block in body.get("toolConfig", {}).get("tools", ()):
        yield "tools", block
    for block in body.get("system", ()):
        yield "system", block
    for turn in body["messages"]:
        for block in turn["content"]:
            yield turn["role"], block

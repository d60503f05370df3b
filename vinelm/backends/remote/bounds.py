"""Upper bounds on the tokens and the cost of one attempt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.base import Counts
from vinelm.catalog import Price

TEMPLATE_TOKENS = 1024
"""Tokens that a server's chat template may add to the prompt: a default system prompt, instructions for tools."""
ATTACHMENT_TOKENS = 16384
"""Assumed tokens of an image, sound or file behind a link; an attachment that is sent along is bounded by its bytes."""
MOST_TIMES_IN, MOST_TIMES_OUT = 100, 10
"""Counts above the bound by these factors are not believed. Servers add to a prompt (their own tools, pages that they read),
but keep to ``max_tokens``."""
MOST_OUT = 1_000_000
"""Tokens of an answer without a limit: more than any model writes."""


@dataclass(frozen=True, slots=True)
class AttemptBound:
    """The maximum number of tokens of one attempt. A prompt has at most one token per byte.

    Args:
        tokens_in: maximum number of tokens of the prompt, including tokens that the server may add.
        tokens_out: maximum number of tokens of the answer, hidden reasoning included.
        writes_cache: whether the prompt asks to be written to a prompt cache, which may cost more than reading it.
        asks_for_an_hour: whether the prompt asks to be kept in the cache for an hour.
        hears: whether the prompt contains audio.
        speaks: whether the answer may contain audio.
        is_limited: whether the request limits the length of the answer; otherwise ``tokens_out`` is an assumption.
    """

    tokens_in: int
    tokens_out: int
    writes_cache: bool = False
    asks_for_an_hour: bool = False
    hears: bool = False
    speaks: bool = False
    is_limited: bool = True

    @classmethod
    def of(cls, prompt: str, *, max_tokens: int, links: int = 0, **asked: bool) -> AttemptBound:
        """Return the bound for a prompt with ``links`` links to attachments and an answer of at most ``max_tokens`` tokens.

        ``asked`` sets further fields of the bound by name, such as ``writes_cache`` and ``hears``.
        """
        tokens_in = len(prompt.encode("utf-8", "surrogatepass")) + TEMPLATE_TOKENS + ATTACHMENT_TOKENS * links
        return cls(tokens_in, max_tokens, **asked)

    def usd(self, price: Price) -> float:
        """Return the maximum cost of the attempt in dollars."""
        asks = {"writes_cache": self.writes_cache, "asks_for_an_hour": self.asks_for_an_hour}
        return price.most_usd(self.tokens_in, self.tokens_out, **asks, hears=self.hears, speaks=self.speaks)

    def believes(self, counts: Counts) -> bool:
        """Return whether a server's token counts are plausible, compared with the upper bounds."""
        most_out = max(MOST_TIMES_OUT * self.tokens_out, 0 if self.is_limited else MOST_OUT)
        return 0 < counts.tokens_in <= MOST_TIMES_IN * self.tokens_in and counts.tokens_out <= most_out


def links_in(messages: Sequence[BaseMessage]) -> int:
    """Return the number of attachments in a prompt that are stored elsewhere (links, file ids), so that their length is
    unknown.
    """
    return sum(_is_link(part) for message in messages if isinstance(message.content, list) for part in message.content)


def has_sound(messages: Sequence[BaseMessage]) -> bool:
    """Return whether a prompt contains audio, or video, which may include audio."""
    parts = [part for message in messages if isinstance(message.content, list) for part in message.content]
    return any(isinstance(part, dict) and _SOUND.search(_kind_of(part)) is not None for part in parts)


_SOUND = re.compile(r"audio|video")


def _kind_of(part: dict[str, Any]) -> str:
    inner = [value for value in part.values() if isinstance(value, dict)]
    stated = [one.get(key) for one in (part, *inner) for key in ("type", "mime_type", "media_type", "format")]
    heads = [str(value)[:40] for one in (part, *inner) for value in one.values() if str(value)[:5] == "data:"]
    return " ".join([*map(str, stated), *heads])


def _is_link(part: Any) -> bool:
    if not isinstance(part, dict) or part.get("type") in ("text", "tool_use", "thinking", "reasoning"):
        return False
    url: Any = part.get("url") or part.get("image_url") or part.get("source") or part
    url = url.get("url", url) if isinstance(url, dict) else url
    is_inline = isinstance(url, str) and url.startswith("data:")
    return not is_inline and (isinstance(url, str) or any(key in str(part) for key in ("file_id", "file_uri", "'url'")))

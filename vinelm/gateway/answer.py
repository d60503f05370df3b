"""Parses a model's answer in one of OpenAI's formats, whole or in chunks, to count its tokens and to record it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from vinelm.backends.base import Counts
from vinelm.backends.remote.meter import RawPiece, SeenAnswer
from vinelm.backends.remote.usage import counts_of
from vinelm.replay.formats.chat import answer_of

_BLANK = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_NO_USAGE = re.compile(rb',\s*"usage"\s*:\s*null')
"""Quotes are escaped inside of JSON texts, so this matches a field only."""
_THOUGHTS = ("reasoning_content", "reasoning")


class ChatAnswer:
    """The part of a model's answer that has arrived so far, in the format of Chat Completions.

    Attributes:
        usage: the token usage as last stated; None if it was never stated.
        model: the name of the model, as the server states it.
        may_end: whether the answer is complete if the server ends the stream now.
        tells_failure: whether the answer itself states that it has failed.
    """

    def __init__(self) -> None:
        self.usage: Mapping[str, Any] | None = None
        self.model = ""
        self.may_end, self.tells_failure = True, False
        self._texts: list[str] = []
        self._calls: dict[Any, dict[str, Any]] = {}

    @property
    def message(self) -> dict[str, Any] | None:
        """The part of the assistant's message that has arrived so far; None if it has neither text nor a tool call.

        If the model returns several choices, this is the first of them.
        """
        text, calls = "".join(self._texts), [dict(call) for call in self._calls.values()]
        if not (text or calls):
            return None
        return {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}

    def read(self, plain: Mapping[str, Any], seen: SeenAnswer) -> bool:
        """Parse the JSON of an answer or a chunk, add it to ``seen``, and return whether it contains text or tool calls
        of the model.
        """
        seen.has_begun = True
        chars, has_calls, reason = 0, False, None
        choices = plain.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, Mapping):
                reason = choice.get("finish_reason") or reason
                said = choice.get("delta") or choice.get("message")
                if isinstance(said, Mapping):
                    written, calls = self._said(said, seen, keep=not choice.get("index"))
                    chars, has_calls = chars + written, has_calls or calls
        seen.chars += chars
        seen.has_content |= has_calls
        usage = plain.get("usage")
        if isinstance(usage, Mapping):
            self.usage, seen.counts, seen.counts_are_final = usage, stated_counts(usage), True
        elif chars or has_calls:
            seen.counts_are_final = False  # what came after a count is not in it
        self.model = str(plain.get("model") or self.model)
        told = {name: one for name in ("id", "model", "service_tier") if isinstance(one := plain.get(name), str)}
        seen.state({**told, "finish_reason": reason} if isinstance(reason, str) else told)
        return bool(chars or has_calls)

    def _said(self, said: Mapping[str, Any], seen: SeenAnswer, *, keep: bool) -> tuple[int, bool]:
        """Parse the message ``said``, or a chunk of one, and add it to ``seen``. Return its number of characters, and
        whether it calls tools.

        If ``keep`` is true, its text and calls are also added to :attr:`message`.
        """
        chars, has_calls, text, refusal = 0, False, said.get("content"), said.get("refusal")
        if isinstance(text, str) and text:
            chars += len(text)
            seen.has_content = seen.has_content or bool(text.strip())
            if keep:
                self._texts.append(text)
        if isinstance(refusal, str) and refusal:
            chars += len(refusal)
            seen.is_refused = True
        chars += sum(len(thought) for name in _THOUGHTS if isinstance(thought := said.get(name), str))
        seen.has_content |= bool(said.get("audio"))
        calls = said.get("tool_calls") or ([said] if said.get("function_call") else ())
        for place, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, Mapping):
                has_calls = True
                chars += self._call(call, place, keep=keep)
        return chars, has_calls

    def _call(self, call: Mapping[str, Any], place: int, *, keep: bool) -> int:
        """Parse a tool call, or a chunk of one, and return the number of characters of its arguments. If ``keep`` is
        true, add it to :attr:`message`.

        ``place`` is the index of the call in its message, used if the call itself has no index.
        """
        inner = call.get("function") or call.get("function_call")
        inner = inner if isinstance(inner, Mapping) else {}
        name, arguments = (one if isinstance(one := inner.get(key), str) else "" for key in ("name", "arguments"))
        if keep:
            function = {"name": "", "arguments": ""}
            known = self._calls.setdefault(call.get("index", place), {"id": "", "type": "function", "function": function})
            known["id"] = call.get("id") or known["id"]
            known["function"]["name"] += name
            known["function"]["arguments"] += arguments
        return len(arguments)


class ResponsesAnswer(ChatAnswer):
    """The part of a model's answer that has arrived so far, in the format of the Responses API. The last event of a
    stream contains the whole answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.may_end = False
        self._output: Any = None

    @property
    def message(self) -> dict[str, Any] | None:
        """The answer as an assistant's message of Chat Completions; None if the answer is not complete, or has neither
        text nor a call.
        """
        items = self._output if isinstance(self._output, list) else []
        said = [one for one in items if isinstance(one, Mapping) and one.get("type") in ("message", "function_call")]
        return answer_of(said) if said else None

    def read(self, plain: Mapping[str, Any], seen: SeenAnswer) -> bool:
        """Parse the JSON of an answer or an event, add it to ``seen``, and return whether it contains text or tool
        calls of the model.
        """
        seen.has_begun = True
        kind, delta = str(plain.get("type", "")), plain.get("delta")
        if kind == "error":
            self.may_end = self.tells_failure = True
            seen.state({"finish_reason": "failed"})
            return False
        response = plain if plain.get("object") == "response" else plain.get("response")
        chars = self._piece(kind, delta, seen) if isinstance(delta, str) and "audio" not in kind else 0
        if isinstance(response, Mapping):
            chars += self._response(response, seen)
        is_call = kind == "response.output_item.added" and _is_call(plain.get("item"))
        seen.has_content |= is_call
        seen.chars += chars
        return bool(chars or is_call)

    def _piece(self, kind: str, text: str, seen: SeenAnswer) -> int:
        seen.is_refused |= bool(text) and "refusal" in kind
        seen.has_content |= bool(text.strip()) and kind == "response.output_text.delta"
        return len(text)

    def _response(self, response: Mapping[str, Any], seen: SeenAnswer) -> int:
        """Add the fields of ``response`` to ``seen`` and, if the response has ended, its output.

        Return the number of characters of the output that have not arrived in earlier events.
        """
        self.model = str(response.get("model") or self.model)
        told = {name: one for name in ("id", "model", "service_tier") if isinstance(one := response.get(name), str)}
        status = response.get("status")
        if status not in ("completed", "incomplete", "failed", "cancelled"):
            seen.state(told)
            return 0
        self.may_end, self.tells_failure = True, status in ("failed", "cancelled")
        seen.state({**told, "status": status, "incomplete_details": response.get("incomplete_details")})
        usage = response.get("usage")
        if isinstance(usage, Mapping):
            self.usage, seen.counts, seen.counts_are_final = usage, stated_counts(usage), True
        self._output, chars = response.get("output"), 0
        for item in self._output if isinstance(self._output, list) else ():
            if _is_call(item):
                seen.has_content = True
                chars += len(str(item.get("arguments") or item.get("input") or ""))
            elif isinstance(item, Mapping):
                content = item.get("content")
                for part in content if isinstance(content, list) else ():
                    chars += self._part(part, seen)
        return 0 if seen.chars else chars  # otherwise they arrived piece by piece

    def _part(self, part: Any, seen: SeenAnswer) -> int:
        if not isinstance(part, Mapping):
            return 0
        text, refusal = (one if isinstance(one := part.get(name), str) else "" for name in ("text", "refusal"))
        seen.has_content |= part.get("type") == "output_text" and bool(text.strip())
        seen.is_refused |= bool(refusal)
        return len(text) + len(refusal)


def _is_call(item: Any) -> bool:
    return isinstance(item, Mapping) and str(item.get("type", "")).endswith("_call")


def stated_counts(usage: Mapping[str, Any]) -> Counts | None:
    """Return the token counts of an OpenAI usage object, in either format; None if invalid."""
    read, written = ("input", "output") if "input_tokens" in usage else ("prompt", "completion")
    into, out = (found if isinstance(found := usage.get(f"{name}_tokens_details"), Mapping) else {} for name in (read, written))
    return counts_of(
        {
            "input_tokens": usage.get(f"{read}_tokens"),
            "output_tokens": usage.get(f"{written}_tokens"),
            "total_tokens": usage.get("total_tokens"),
            "input_token_details": {
                "cache_read": into.get("cached_tokens"),
                "cache_creation": into.get("cache_write_tokens"),
                "audio": into.get("audio_tokens"),
            },
            "output_token_details": {"reasoning": out.get("reasoning_tokens"), "audio": out.get("audio_tokens")},
        }
    )


class AnswerPiece(RawPiece):
    """Some bytes of a model's answer, with their parsed content.

    Attributes:
        data: the bytes that the client gets.

    Args:
        plains: the parsed JSON of the whole answer, or of each event in these bytes.
        answer: the answer so far, to which :meth:`show` adds the content of these bytes.
        is_end: whether the answer ends here, with or without a finish reason.
    """

    __slots__ = ("_answer", "_is_end", "_plains", "data")

    def __init__(self, data: bytes, plains: list[Mapping[str, Any]], answer: ChatAnswer, *, is_end: bool) -> None:
        self.data, self._plains, self._answer, self._is_end = data, plains, answer, is_end

    def show(self, seen: SeenAnswer) -> bool:
        """Add the content of these bytes to ``seen``, and return whether it includes text or tool calls of the model."""
        is_output = False
        for plain in self._plains:
            is_output |= self._answer.read(plain, seen)
        if self._is_end and seen.reason is None and seen.has_begun:
            seen.state({"finish_reason": "done"})
        return is_output


class EventReader:
    """Cuts a stream of bytes into whole server-sent events.

    Args:
        hides_usage: whether to remove the usage from the client's stream, because only the gateway asked for it.
    """

    def __init__(self, *, hides_usage: bool) -> None:
        self._hides_usage = hides_usage
        self._rest, self._searched = bytearray(), 0

    def feed(self, data: bytes) -> list[tuple[bytes, Any]]:
        """Add bytes of the stream. Return the events that these bytes complete, as pairs (bytes for the client, parsed JSON
        or None).
        """
        rest, begin = self._rest, 0
        rest += data
        events = []
        # A long event arrives in many pieces: the part that was searched is not searched again, apart from a line end that was
        # cut.
        for end in _BLANK.finditer(rest, max(self._searched - 3, 0)):
            events.append(bytes(rest[begin : end.end()]))
            begin = end.end()
        del rest[:begin]
        self._searched = len(rest)
        return [self._event(event) for event in events]

    def end(self) -> list[tuple[bytes, Any]]:
        """Return, as :meth:`feed` does, the last event of a stream that has ended without a blank line; empty if there
        is none.
        """
        rest, self._rest, self._searched = bytes(self._rest), bytearray(), 0
        return [self._event(rest)] if rest else []

    def _event(self, event: bytes) -> tuple[bytes, Any]:
        # Nearly always a single line.
        lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
        try:
            plain = json.loads(b"\n".join(lines))
        except (ValueError, RecursionError):  # the end of the stream, or a comment that keeps it alive
            return event, None
        if self._hides_usage and isinstance(plain, dict) and "usage" in plain:
            if plain["usage"] is None:
                return _NO_USAGE.sub(b"", event), plain
            if not plain.get("choices"):
                return b"", plain
            shown = {name: one for name, one in plain.items() if name != "usage"}
            return f"data: {json.dumps(shown)}\n\n".encode(), plain
        return event, plain

"""Reads requests and answers from recorded traces, for a profile that does not pay again for recorded calls."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, convert_to_messages

from vinelm.backends.remote.equal_calls import recorded_digest, recorded_text
from vinelm.catalog import Catalog, Model
from vinelm.errors import ConfigError
from vinelm.replay.bill import dollars_of
from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.reading import Redact, read_calls
from vinelm.replay.kept import number_of

PROMPT = "prompt"
"""The column of a request's input if the trace does not have it: the last user message of its first call."""
MOST_TRACED = 2000
"""How many whole requests are kept, drawn at random."""


def is_entry_of(entry: Model, recorded: str) -> bool:
    """Return whether a catalog entry is the model that a trace calls ``recorded``.

    In the trace, the model's name may have a provider before it and a date after it.
    """
    named, own = recorded.rpartition("/")[2], entry.model_id.rpartition(":")[2].rpartition("/")[2]
    return named in (entry.name, own) or (named.startswith(f"{own}-") and named[len(own) + 1 :].replace("-", "").isdigit())


@dataclass
class Traces:
    """Requests with their recorded calls; implements :class:`~vinelm.backends.remote.equal_calls.RecordedCalls`.

    Attributes:
        calls: The answered calls of each request, in the order of the trace, keyed by the request's name.
        inputs: The application's inputs, keyed by the request's name; only for requests whose inputs are in the trace.
        hits: Number of calls of a profile run that were answered from the recorded calls.
    """

    calls: dict[str, list[LoggedCall]] = field(default_factory=dict)
    inputs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    hits: int = 0

    @classmethod
    def read(
        cls,
        paths: Sequence[str | Path] | str | Path,
        *,
        format: str | None = None,
        redact: Redact | None = None,
        requests: int = MOST_TRACED,
        seed: int = 0,
    ) -> Traces:
        """Read the calls of traces in one pass. If the traces have more than ``requests`` requests, a random sample of this
        size is kept, drawn with ``seed``. The other arguments are those of :func:`~vinelm.replay.read_calls`.

        Raises:
            ConfigError: A path does not exist, nothing in a file can be read, there is no call at all, or ``redact`` fails.
        """
        found, drawn = cls(), list[tuple[int, str]]()

        def is_kept(request: str) -> bool:
            if request in found.calls:
                return True
            place = number_of(f"{seed}\0{request}")
            if len(drawn) >= requests and place >= -drawn[0][0]:
                return False
            heappush(drawn, (-place, request))
            found.calls[request] = []
            if len(drawn) > requests:
                gone = heappop(drawn)[1]
                del found.calls[gone]
                found.inputs.pop(gone, None)
            return True

        def given(request: str, inputs: Any) -> None:
            if isinstance(inputs, Mapping) and inputs and is_kept(request):
                found.inputs[request] = inputs

        for call in read_calls(paths, format=format, redact=redact, on_inputs=given):
            if call.answer and call.error is None and call.messages and is_kept(call.request):
                found.calls[call.request].append(call)
        found.calls = {request: calls for request, calls in found.calls.items() if calls}
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Return a dataset row for each request, with the request's id and the keys of its input.

        If the trace has no inputs, the input is the last user message, under the key :data:`PROMPT`.

        Raises:
            ConfigError: No request has an input.
        """
        told = {request: inputs for request, inputs in self.inputs.items() if request in self.calls}
        if not told:
            told = {request: {PROMPT: text} for request, calls in self.calls.items() if (text := _asked(calls))}
        if not told:
            raise ConfigError("no request of the traces has an input: neither its outermost run nor a message of a user")
        return [{**inputs, "id": request} for request, inputs in told.items()]

    def write_rows(self, path: Path) -> None:
        """Write :meth:`rows` as JSON lines, to a file that only its owner can read.

        Raises:
            ConfigError: A file of this name with other content exists.
        """
        text = "".join(f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in self.rows())
        if path.exists():
            if path.read_text(encoding="utf-8") == text:
                return
            raise ConfigError(f"{path} is there already: the traces' requests go there, so move it, or give it as the dataset")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)

    def answers(self, catalog: Catalog) -> Iterator[tuple[str, str]]:
        """Yield (digest, text) for each recorded call of a model in the catalog.

        The digest identifies the prompt and the model; the text contains the recorded answer and its cost. A prompt that the
        model answered in different ways is left out.
        """
        found: dict[str, dict[str, str]] = {}
        for call in (one for calls in self.calls.values() for one in calls):
            entries = [entry for entry in catalog.entries if is_entry_of(entry, call.model)]
            turns = _messages(call) if entries else None
            if turns is None:
                continue
            prompt, answer = turns
            tokens = {"tokens_in": call.tokens_in, "tokens_out": call.tokens_out, "tokens_cached": call.cached_tokens}
            said = json.dumps([str(answer.text), [(one["name"], one["args"]) for one in answer.tool_calls]])
            for entry in entries:
                if (usd := _dollars(call, entry)) is not None:
                    text = recorded_text(answer, entry.name, usd, call.seconds, **tokens)
                    found.setdefault(recorded_digest(entry.name, prompt), {}).setdefault(said, text)
        return ((digest, next(iter(texts.values()))) for digest, texts in found.items() if len(texts) == 1)

    @property
    def line(self) -> str:
        """Return a summary of the recorded calls in one line."""
        if self.hits:
            return f"{self.hits:,} calls were found in the traces: the recorded answers count, and cost nothing"
        return "no call was found in the traces: they have other prompts, or none of these models; each call was paid"


def _dollars(call: LoggedCall, entry: Model) -> float | None:
    """Return the cost of a call in dollars: as recorded in the trace, otherwise at the entry's price; None if both are
    unknown.
    """
    if call.cost_usd is not None or call.tokens_in is None or call.tokens_out is None:
        return dollars_of(call)
    return entry.price.cost_usd(call.tokens_in, call.tokens_out, call.cached_tokens or 0)


def _asked(calls: Iterable[LoggedCall]) -> str:
    """Return the last user message in the prompt of the earliest of the calls; empty without a user message."""
    first = min(calls, key=lambda call: call.started_at or 0.0)
    for message in reversed(first.messages):
        if message.get("role") in ("user", "human"):
            return str(convert_to_messages([{**message, "content": message.get("content") or ""}])[0].text)
    return ""


def _messages(call: LoggedCall) -> tuple[Sequence[Any], AIMessage] | None:
    """Return the prompt and answer as LangChain messages; None if they cannot be converted."""
    given = [{**one, "content": one.get("content") or ""} for one in (*call.messages, call.answer or {})]
    try:
        *prompt, answer = convert_to_messages(given)
    except (ValueError, TypeError, KeyError, NotImplementedError):
        return None
    return (prompt, answer) if isinstance(answer, AIMessage) and not answer.invalid_tool_calls else None

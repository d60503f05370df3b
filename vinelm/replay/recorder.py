"""``VineRecorder``: records the LLM calls of a LangChain or LangGraph application that has no traces."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from vinelm.catalog.secrets import redacted
from vinelm.replay.formats.chat import answer_of, format_of, messages_of, settings_of, step_name, tools_of, usage_of
from vinelm.replay.formats.own import MARK, REQUEST_MARK
from vinelm.replay.formats.values import conversation_of, first, mapping

_MOST_RUNS = 100_000
"""How many runs are remembered with their request: a run whose end is never reported is forgotten after this many others."""


class CallFile:
    """A file with a line of JSON for each LLM call, which ``vinelm replay`` reads.

    A line is appended with one write, so that threads and processes may share the file. Only its owner may read it (mode
    600). A failure to write is reported once in the log of ``vinelm``.

    Args:
        path: The file, created at the first call. Its folder has to exist.
        who: The recorder's name in log messages.
    """

    def __init__(self, path: Path, who: str) -> None:
        self.path, self._who = path, who
        self._has_failed = False

    def write(self, call: Mapping[str, Any]) -> None:
        """Append a call; write failures never raise."""
        self.append({MARK: 1, **call})

    def append(self, line: Mapping[str, Any]) -> None:
        """Append a line; write failures never raise."""
        try:
            self._append(json.dumps(line, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n")
        except (OSError, TypeError, ValueError, RecursionError) as error:
            if not self._has_failed:
                self._has_failed = True
                why = error.strerror if isinstance(error, OSError) else type(error).__name__
                logging.getLogger("vinelm").warning(
                    "%s cannot write to %s (%s): calls are missing in it", self._who, self.path, why
                )

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            if os.write(descriptor, line) < len(line):  # the disk is full: the next record begins a new line
                os.write(descriptor, b"\n")
                raise OSError(None, "a line was cut")
        finally:
            os.close(descriptor)


class VineRecorder(BaseCallbackHandler):
    """Writes each LLM call of an application as a line of JSON, which ``vinelm replay`` reads.

    Pass it as a callback where the application is called: ``graph.invoke(x, config={"callbacks":
    [VineRecorder("calls.jsonl")]})``, or ``ainvoke``, ``stream``, ``batch``. All calls of one ``invoke`` are one request,
    and the LangGraph node is the step.

    A line has the prompt, the tools, the settings, the answer, tokens, seconds and errors. Before the first call of a
    request there is a line with the application's inputs, with which ``vinelm try --traces`` runs the application again. A
    line is appended with one write, so that threads and processes may share the file, which only its owner may read (mode
    600). Nothing is sent anywhere. The application never fails because of the recorder: a failure to write is reported once
    in the log of ``vinelm``.

    Args:
        path: The file, created at the first call. Its folder has to exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = CallFile(self.path, "VineRecorder")
        self._requests: dict[UUID, UUID] = {}
        self._begun: dict[UUID, tuple[float, float, dict[str, Any]]] = {}
        self._given: dict[UUID, Mapping[str, Any]] = {}  # inputs of outermost runs without a call so far

    # -- which request a call belongs to: the outermost run above it ----------------------------------------------------

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        """Remember the request that a run belongs to."""
        if len(self._requests) >= _MOST_RUNS:
            self._requests.pop(next(iter(self._requests)), None)
        self._requests[run_id] = self._request(run_id, parent_run_id)
        if parent_run_id is None and isinstance(inputs, Mapping):
            if len(self._given) >= _MOST_RUNS:
                self._given.pop(next(iter(self._given)), None)
            self._given[run_id] = inputs

    def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: UUID, parent_run_id: UUID | None = None, **_: Any
    ) -> None:
        """Remember the request that a tool belongs to, since the tool may call models."""
        self.on_chain_start(serialized, input_str, run_id=run_id, parent_run_id=parent_run_id)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **_: Any) -> None:
        """Forget the request of a run that has ended."""
        self._requests.pop(run_id, None)
        self._given.pop(run_id, None)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Forget the request of a run that has ended."""
        self._requests.pop(run_id, None)
        self._given.pop(run_id, None)

    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        """Forget which request a tool call belongs to, since the call has ended."""
        self._requests.pop(run_id, None)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Forget which request a tool call belongs to, since the call has ended."""
        self._requests.pop(run_id, None)

    def _request(self, run_id: UUID, parent_run_id: UUID | None) -> UUID:
        return run_id if parent_run_id is None else self._requests.get(parent_run_id, parent_run_id)

    # -- the calls --------------------------------------------------------------------------------------------------------

    def on_chat_model_start(
        self,
        serialized: Any,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the prompt of a chat model until its call ends."""
        prompt = [message.model_dump() for message in messages[0]] if messages else []
        self._begin(prompt, run_id, parent_run_id, metadata or {}, kwargs)

    def on_llm_start(
        self,
        serialized: Any,
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep the prompt of a completion model until its call ends."""
        self._begin(prompts[0] if prompts else "", run_id, parent_run_id, metadata or {}, kwargs)

    def _begin(
        self, prompt: Any, run_id: UUID, parent: UUID | None, metadata: Mapping[str, Any], kwargs: Mapping[str, Any]
    ) -> None:
        request = self._request(run_id, parent)
        if (given := self._given.pop(request, None)) is not None:
            self._file.append({REQUEST_MARK: 1, "request": str(request), "inputs": _plain(given)})
        asked = mapping(kwargs.get("invocation_params"))
        form = asked.get("response_format")
        if isinstance(form, type):  # a pydantic model, which the provider's client translates
            asked = {**asked, "response_format": {"type": "json_schema", "json_schema": {"name": form.__name__}}}
        self._begun[run_id] = (
            time.time(),
            time.monotonic(),
            {
                "request": str(request),
                "call": str(run_id),
                "conversation": conversation_of(metadata),
                "step": step_name(metadata.get("langgraph_node"), kwargs.get("name")),
                "model": str(first(metadata.get("ls_model_name"), asked.get("model"), asked.get("model_name")) or ""),
                "provider": str(metadata.get("ls_provider") or ""),
                "messages": messages_of(prompt),
                "tools": tools_of(asked.get("tools")),
                "response_format": format_of(asked),
                "settings": settings_of(asked),
            },
        )

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Write the call to the file, with its answer."""
        generation = next((one for several in response.generations for one in several), None)
        message = getattr(generation, "message", None)
        said = getattr(generation, "text", None) if message is None else message.model_dump()
        usage = usage_of(first(getattr(message, "usage_metadata", None), mapping(response.llm_output).get("token_usage")))
        named = mapping(getattr(message, "response_metadata", None)).get("model_name")
        self._end(
            run_id,
            named,
            answer=answer_of(said),
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            cached_tokens=usage.cached,
        )

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Write the call to the file, with its error."""
        self._end(run_id, None, error=redacted(f"{type(error).__name__}: {error}")[:500])

    def _end(self, run_id: UUID, model: Any, **found: Any) -> None:
        begun = self._begun.pop(run_id, None)
        if begun is None:
            return
        started_at, began_s, call = begun
        seconds = time.monotonic() - began_s
        call["model"] = call["model"] or str(model or "")
        self._file.write({**call, "started_at": started_at, "seconds": seconds, **found})


def _plain(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a request, in which LangChain messages are converted to the form of recorded prompts."""

    def plain(value: Any) -> Any:
        some = value if isinstance(value, list) else [value]
        if not some or not all(isinstance(one, BaseMessage) for one in some):
            return value
        return messages_of([one.model_dump() for one in some])

    return {str(key): plain(value) for key, value in inputs.items()}

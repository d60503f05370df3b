"""Simulated traces of a small support application, in each form that ``vinelm replay`` reads. No model is asked.

    python scripts/simulated_traces.py --form langfuse --calls 600 docs/examples/simulated-trace.jsonl.gz

Texts, tokens and seconds are drawn with a seed; dollars follow from list prices of the day on which the script was written. The
five steps are typical: a label, a check of documents as JSON, a tool call, an answer, and a summary whose call has no name.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import random
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

BEGAN_S = datetime(2026, 9, 1, 6, tzinfo=UTC).timestamp()
DAYS = 28.0
_WORDS = ("order", "parcel", "invoice", "refund", "address", "delay", "courier", "depot", "label", "weight", "claim", "late")
_TOPICS = ("delay", "refund", "address", "invoice", "other")


class Made(NamedTuple):
    """One simulated call."""

    trace: str
    span: str
    step: str
    library_name: str
    model: str
    system: str
    user: str
    content: str | None
    tool: dict[str, Any] | None
    tools: list[dict[str, Any]]
    response_format: dict[str, Any] | None
    temperature: float
    at_s: float
    seconds: float
    tokens_in: int
    tokens_out: int
    cached: int
    cost_usd: float
    error: str | None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The prompt."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]

    @property
    def answer(self) -> dict[str, Any]:
        """The assistant's message."""
        calls = None
        if self.tool is not None:
            function = {"name": self.tool["name"], "arguments": json.dumps(self.tool["args"])}
            calls = [{"id": f"call_{self.span}", "type": "function", "function": function}]
        return {"role": "assistant", "content": self.content, **({"tool_calls": calls} if calls else {})}


LOOK_UP = {
    "type": "function",
    "function": {
        "name": "look_up_parcel",
        "description": "State and place of a parcel.",
        "parameters": {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]},
    },
}
GRADE = {"type": "json_schema", "json_schema": {"name": "Grade", "schema": {"type": "object"}}}


class Step(NamedTuple):
    """A step: its name, or "", the beginning of its prompts, and what a call has on the mean."""

    name: str
    system: str
    model: str
    per_request: float
    tokens_in: int
    tokens_out: int
    seconds: float


SORT = "You sort messages to a parcel service. Answer with one word: delay, refund, address, invoice or other."
JUDGE = "You judge whether a document helps to answer the question. Answer as JSON."
TOOLS = "You are the support agent of a parcel service. Use tools to look parcels up."
ANSWER = "You answer customers of a parcel service, politely and in at most eight sentences."
SUMMARY = "Summarise the conversation for the next agent, in at most three sentences."
STEPS = (
    Step("classify", SORT, "gpt-4o", 1.0, 420, 3, 0.6),
    Step("grade_documents", JUDGE, "gpt-4o", 3.0, 1500, 14, 0.8),
    Step("plan_tools", TOOLS, "gpt-4o", 0.7, 900, 25, 1.2),
    Step("answer", ANSWER, "gpt-4o", 1.0, 2600, 190, 4.5),
    Step("", SUMMARY, "gpt-4o-mini", 0.3, 1900, 80, 2.1),
)
_PRICES = {"gpt-4o": (2.5, 1.25, 10.0), "gpt-4o-mini": (0.15, 0.075, 0.6)}


def made(calls: int, *, seed: int = 0, words: int = 60) -> Iterator[Made]:
    """Yield so many calls, whole requests one after the other in time; ``words`` is the length of a user's message."""
    rng = random.Random(seed)
    left, at_s, step_s = calls, BEGAN_S, DAYS * 86_400 / max(calls / 6, 1)
    while left > 0:
        trace = uuid.UUID(int=rng.getrandbits(128)).hex
        at_s += rng.expovariate(1.0) * step_s
        began_s = at_s
        for step in STEPS:
            times = int(step.per_request) + (rng.random() < step.per_request % 1)
            for _ in range(min(times, left)):
                left -= 1
                call = _call(rng, trace, step, began_s, words)
                began_s += call.seconds
                yield call


def _call(rng: random.Random, trace: str, step: Step, at_s: float, words: int) -> Made:
    user = " ".join(rng.choices(_WORDS, k=words))
    content: str | None = " ".join(rng.choices(_WORDS, k=max(step.tokens_out // 2, 1)))
    tool, tools, form = None, [], None
    if step.name == "classify":
        content = rng.choice(_TOPICS)
    elif step.name == "grade_documents":
        content, form = json.dumps({"helps": rng.random() < 0.6}), GRADE
    elif step.name == "plan_tools":
        tools = [LOOK_UP]
        content, tool = None, {"name": "look_up_parcel", "args": {"number": f"P{rng.randrange(10**6):06}"}}
    error = "RateLimitError: 429" if rng.random() < 0.004 else None
    tokens_in = round(step.tokens_in * rng.uniform(0.8, 1.2))
    tokens_out = 0 if error else max(round(step.tokens_out * rng.uniform(0.7, 1.3)), 1)
    cached = 1024 if tokens_in > 1100 and rng.random() < 0.3 and not error else 0
    fresh, read, written = _PRICES[step.model]
    return Made(
        trace=trace,
        span=f"{rng.getrandbits(64):016x}",
        step=step.name,
        library_name="ChatOpenAI",
        model=step.model,
        system=step.system,
        user=user,
        content=None if error else content,
        tool=None if error else tool,
        tools=tools,
        response_format=form,
        temperature=0.2,
        at_s=at_s,
        seconds=step.seconds * rng.lognormvariate(0.0, 0.4),
        tokens_in=0 if error else tokens_in,
        tokens_out=tokens_out,
        cached=cached,
        cost_usd=0.0 if error else ((tokens_in - cached) * fresh + cached * read + tokens_out * written) / 1e6,
        error=error,
    )


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def langfuse(call: Made) -> dict[str, Any]:
    """An observation of Langfuse's API v2, as its callback handler for LangChain makes them."""
    usage = {"input": call.tokens_in - call.cached, "output": call.tokens_out, "input_cached_tokens": call.cached}
    return {
        "id": call.span,
        "traceId": call.trace,
        "startTime": _iso(call.at_s),
        "endTime": _iso(call.at_s + call.seconds),
        "projectId": "simulated",
        "parentObservationId": None,
        "type": "GENERATION",
        "name": call.library_name,
        "level": "ERROR" if call.error else "DEFAULT",
        "statusMessage": call.error or "",
        "environment": "default",
        "input": json.dumps({"messages": call.messages, **({"tools": call.tools} if call.tools else {})}),
        "output": None if call.error else json.dumps(call.answer),
        "metadata": {"langgraph_node": call.step, "ls_provider": "openai"} if call.step else {"ls_provider": "openai"},
        "providedModelName": call.model,
        "modelParameters": {
            "temperature": call.temperature,
            **({"response_format": call.response_format} if call.response_format else {}),
        },
        "usageDetails": {**usage, "total": sum(usage.values())},
        "costDetails": {"total": call.cost_usd},
        "totalCost": call.cost_usd,
        "latency": call.seconds,
        "traceName": "support",
    }


def langsmith(call: Made) -> dict[str, Any]:
    """A run of LangSmith, as LangChain traces it."""

    def message(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": fields}

    said: dict[str, Any] = {"content": call.content or "", "type": "ai", "tool_calls": []}
    if call.tool is not None:
        said["tool_calls"] = [{**call.tool, "id": f"call_{call.span}", "type": "tool_call"}]
    said["usage_metadata"] = {
        "input_tokens": call.tokens_in,
        "output_tokens": call.tokens_out,
        "input_token_details": {"cache_read": call.cached},
    }
    outputs = {"generations": [[{"text": call.content or "", "message": message("AIMessage", said)}]], "llm_output": {}}
    params = {"model": call.model, "temperature": call.temperature, **({"tools": call.tools} if call.tools else {})}
    return {
        "id": str(uuid.UUID(hex=call.trace[:16] + call.span)),
        "trace_id": str(uuid.UUID(hex=call.trace)),
        "name": call.library_name,
        "run_type": "llm",
        "start_time": _iso(call.at_s)[:-1],
        "end_time": _iso(call.at_s + call.seconds)[:-1],
        "status": "error" if call.error else "success",
        "error": call.error,
        "inputs": {
            "messages": [
                [
                    message("SystemMessage", {"content": call.system, "type": "system"}),
                    message("HumanMessage", {"content": call.user, "type": "human"}),
                ]
            ]
        },
        "outputs": None if call.error else outputs,
        "extra": {
            "invocation_params": {**params, **({"response_format": call.response_format} if call.response_format else {})},
            "metadata": {
                "ls_provider": "openai",
                "ls_model_name": call.model,
                **({"langgraph_node": call.step} if call.step else {}),
            },
        },
        "prompt_tokens": call.tokens_in,
        "completion_tokens": call.tokens_out,
        "total_cost": str(call.cost_usd),
    }


def _span(call: Made, attributes: dict[str, Any], name: str) -> dict[str, Any]:
    def value(of: Any) -> dict[str, Any]:
        if isinstance(of, list):
            return {"arrayValue": {"values": [value(one) for one in of]}}
        kind = "intValue" if isinstance(of, int) else "doubleValue" if isinstance(of, float) else "stringValue"
        return {kind: str(of) if kind == "intValue" else of}

    span = {
        "traceId": call.trace,
        "spanId": call.span,
        "name": name,
        "kind": 3,
        "startTimeUnixNano": str(int(call.at_s * 1e9)),
        "endTimeUnixNano": str(int((call.at_s + call.seconds) * 1e9)),
        "attributes": [{"key": key, "value": value(one)} for key, one in attributes.items()],
        "status": {"code": 2, "message": call.error} if call.error else {},
    }
    scope = {"scope": {"name": "simulated"}, "spans": [span]}
    service = {"attributes": [{"key": "service.name", "value": {"stringValue": "support"}}]}
    return {"resourceSpans": [{"resource": service, "scopeSpans": [scope]}]}


def otel(call: Made) -> dict[str, Any]:
    """A document of OTLP with one span, by OpenTelemetry's conventions for generative AI."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": call.content}] if call.content else []
    if call.tool is not None:
        parts.append(
            {"type": "tool_call", "id": f"call_{call.span}", "name": call.tool["name"], "arguments": call.tool["args"]}
        )
    found = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": call.model,
        "gen_ai.request.temperature": call.temperature,
        "gen_ai.usage.input_tokens": call.tokens_in,
        "gen_ai.usage.output_tokens": call.tokens_out,
        "gen_ai.usage.cache_read.input_tokens": call.cached,
        "gen_ai.system_instructions": json.dumps([{"type": "text", "content": call.system}]),
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": call.user}]}]),
    }
    if not call.error:
        found["gen_ai.output.messages"] = json.dumps([{"role": "assistant", "parts": parts, "finish_reason": "stop"}])
    if call.tools:
        flat = [{"type": "function", **one["function"]} for one in call.tools]
        found["gen_ai.tool.definitions"] = json.dumps(flat)
    if call.response_format:
        found["gen_ai.output.type"] = "json"
    if call.step:
        found["gen_ai.agent.name"] = call.step
    return _span(call, found, f"chat {call.model}")


def openinference(call: Made) -> dict[str, Any]:
    """A document of OTLP with one span of OpenInference."""
    params = {"model": call.model, "temperature": call.temperature}
    found: dict[str, Any] = {
        "openinference.span.kind": "LLM",
        "llm.model_name": call.model,
        "llm.provider": "openai",
        "llm.invocation_parameters": json.dumps(
            {**params, **({"response_format": call.response_format} if call.response_format else {})}
        ),
        "llm.token_count.prompt": call.tokens_in,
        "llm.token_count.completion": call.tokens_out,
        "llm.token_count.prompt_details.cache_read": call.cached,
        "llm.cost.total": call.cost_usd,
        "metadata": json.dumps({"langgraph_node": call.step} if call.step else {}),
    }
    for place, message in enumerate(call.messages):
        found[f"llm.input_messages.{place}.message.role"] = message["role"]
        found[f"llm.input_messages.{place}.message.content"] = message["content"]
    for place, tool in enumerate(call.tools):
        found[f"llm.tools.{place}.tool.json_schema"] = json.dumps(tool)
    if not call.error:
        found["llm.output_messages.0.message.role"] = "assistant"
        if call.content:
            found["llm.output_messages.0.message.content"] = call.content
        if call.tool is not None:
            begin = "llm.output_messages.0.message.tool_calls.0.tool_call"
            found[f"{begin}.id"] = f"call_{call.span}"
            found[f"{begin}.function.name"] = call.tool["name"]
            found[f"{begin}.function.arguments"] = json.dumps(call.tool["args"])
    return _span(call, found, call.library_name)


def _bodies(call: Made) -> tuple[dict[str, Any], dict[str, Any]]:
    asked = {"model": call.model, "messages": call.messages, "temperature": call.temperature}
    asked |= {"tools": call.tools} if call.tools else {}
    asked |= {"response_format": call.response_format} if call.response_format else {}
    details = {
        "prompt_tokens": call.tokens_in,
        "completion_tokens": call.tokens_out,
        "prompt_tokens_details": {"cached_tokens": call.cached},
    }
    choice = {"index": 0, "finish_reason": "stop", "message": call.answer}
    return asked, {
        "id": f"chatcmpl-{call.span}", "object": "chat.completion", "created": int(call.at_s), "model": call.model,
        "choices": [choice], "usage": details,
    }  # fmt: skip


def openai(call: Made) -> dict[str, Any]:
    """Request and response of OpenAI's chat completions, as an application may log them."""
    asked, answered = _bodies(call)
    found: dict[str, Any] = {"id": call.span, "trace_id": call.trace, "timestamp": _iso(call.at_s), "duration_s": call.seconds}
    found |= {"step": call.step} if call.step else {}
    return {**found, "request": asked, **({"error": {"message": call.error}} if call.error else {"response": answered})}


def litellm(call: Made) -> dict[str, Any]:
    """LiteLLM's standard logging payload."""
    asked, answered = _bodies(call)
    return {
        "id": f"chatcmpl-{call.span}",
        "trace_id": call.trace,
        "call_type": "acompletion",
        "status": "failure" if call.error else "success",
        "response_cost": call.cost_usd,
        "prompt_tokens": call.tokens_in,
        "completion_tokens": call.tokens_out,
        "total_tokens": call.tokens_in + call.tokens_out,
        "startTime": call.at_s,
        "endTime": call.at_s + call.seconds,
        "model": call.model,
        "custom_llm_provider": "openai",
        "metadata": {"requester_metadata": {"step": call.step} if call.step else {}, "usage_object": answered["usage"]},
        "cache_hit": None,
        "request_tags": ["User-Agent: python"],
        "messages": call.messages,
        "response": None if call.error else answered,
        "error_str": call.error,
        "model_parameters": {key: asked[key] for key in asked if key not in ("model", "messages")},
    }


FORMS: dict[str, Callable[[Made], dict[str, Any]]] = {
    form.__name__: form for form in (langfuse, langsmith, otel, openinference, openai, litellm)
}


def write(path: Path, form: str, calls: Iterator[Made]) -> None:
    """Write a trace: JSON lines, an array, CSV or Parquet by the suffix; packed where it ends in ``.gz``."""
    rows = map(FORMS[form], calls)
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    if kind == "parquet":
        import pyarrow
        from pyarrow import parquet

        some = pyarrow.Table.from_pylist([_cells(row) for row in islice(rows, 1000)])
        with parquet.ParquetWriter(path, some.schema) as writer:
            while some.num_rows:
                writer.write_table(some)
                some = pyarrow.Table.from_pylist([_cells(row) for row in islice(rows, 1000)], schema=writer.schema)
        return
    with path.open("wb") as raw:
        packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) if path.suffix == ".gz" else raw
        with io.TextIOWrapper(packed, "utf-8", newline="") as file:
            if kind == "csv":
                table = None
                for row in rows:
                    table = table or csv.DictWriter(file, list(row))
                    if file.tell() == 0:
                        table.writeheader()
                    table.writerow(_cells(row))
            elif kind == "json":
                for place, row in enumerate(rows):
                    file.write(("[\n" if place == 0 else ",\n") + json.dumps(row))
                file.write("\n]\n")
            else:
                file.writelines(json.dumps(row) + "\n" for row in rows)


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    return {key: json.dumps(one) if isinstance(one, dict | list) else one for key, one in row.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--form", choices=FORMS, default="langfuse")
    parser.add_argument("--calls", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    write(options.path, options.form, made(options.calls, seed=options.seed))


if __name__ == "__main__":
    main()

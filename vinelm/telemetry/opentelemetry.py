"""OpenTelemetry spans and metrics, by the semantic conventions for generative AI of version 1.41.0.

https://github.com/open-telemetry/semantic-conventions/blob/v1.41.0/docs/gen-ai/README.md, the last version before they moved to
another repository.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables.config import var_child_runnable_config

from vinelm.catalog import Model
from vinelm.extras import required_extra
from vinelm.requests.protocols import Invocation
from vinelm.telemetry.events import DecisionEvent, current_request
from vinelm.telemetry.message_content import attributes, is_asked_for
from vinelm.tools.call import ToolEvent

with required_extra("otel", "the observer OpenTelemetry"):
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode, TracerProvider

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
"""The version of the conventions that spans and metrics follow."""
TOKEN_BOUNDS = tuple(4**n for n in range(14))
"""Bounds of the histogram of tokens, as the conventions give them: 1 to 67,108,864."""
SECOND_BOUNDS = tuple(round(0.01 * 2**n, 2) for n in range(14))
"""Bounds of histograms of seconds, as the conventions give them: 0.01 to 81.92."""
SERVERS: Mapping[str, str] = {
    "anthropic": "api.anthropic.com",
    "gemini": "generativelanguage.googleapis.com",
    "openai": "api.openai.com",
}
"""Address of a provider's servers if the catalog has none."""

PROVIDERS: Mapping[str, str] = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "vertex": "gcp.vertex_ai",
}
"""Providers whose name in the conventions differs from ours."""
_EXPLAINED = (
    "accuracy",
    "path_cost_usd",
    "path_latency_s",
    "remaining_cost_usd",
    "remaining_latency_s",
    "is_feasible",
    "binding",
)
"""Fields of a decision's plan that become attributes of its span."""


class RequestSpan:
    """The OpenTelemetry span of one request, with the cost and number of its invocations so far. Thread-safe."""

    def __init__(self, span: Span, outer: SpanContext, began_ns: int) -> None:
        self.span, self.outer = span, outer
        self._lock = Lock()
        self._ended_ns = began_ns
        self._cost_usd, self._invocations = 0.0, 0

    def is_inside(self, current: SpanContext) -> bool:
        """Return whether ``current`` is still the span that was current when the request began.

        If it is not, another library has opened a span since.
        """
        return current.span_id == self.outer.span_id

    def add(self, invocation: Invocation | None) -> None:
        """Count an invocation that has just ended, with its cost; None stands for an interrupted invocation, which is not
        counted.
        """
        with self._lock:
            self._ended_ns = max(self._ended_ns, time.time_ns())
            if invocation is not None:
                self._cost_usd += invocation.cost_usd
                self._invocations += 1

    def end(self) -> None:
        """End the span; its end time is when the request's last invocation ended."""
        with self._lock:
            self.span.set_attributes({"vinelm.cost_usd": self._cost_usd, "vinelm.invocations": self._invocations})
            self.span.end(self._ended_ns)


@dataclass(slots=True)
class CallSpan:
    """The span of an invocation, and the attributes that the invocation's metrics repeat."""

    span: Span
    attributes: dict[str, Any]
    request: RequestSpan | None


class OpenTelemetry:
    """An observer that records OpenTelemetry spans for requests, decisions, invocations and calls of declared tools, and
    client metrics.

    Span names: ``invoke_workflow`` for a request, ``vinelm.decide STAGE`` (or ``vinelm.end``) for a decision, and the
    client span ``chat MODEL_ID`` for an invocation. The request's span is a child of the span that is current when the
    request begins, and the parent of the other spans. If another instrumentation makes a span for each node, the node's span
    is their parent instead. The metrics are ``gen_ai.client.token.usage``, ``gen_ai.client.operation.duration`` and
    ``gen_ai.client.operation.time_to_first_chunk``, with one value per call. It uses OpenTelemetry's API only. Without an
    SDK nothing is recorded, at almost no cost.

    No span has an API key. Prompts and answers are only recorded if content is captured: then an invocation's span has the
    prompt and answer of its last call. Metrics never contain prompts or answers.

    Args:
        provider: the tracer provider; by default the global one.
        capture_content: whether spans hold prompts and answers; None takes the current value of
            ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``.
        meter_provider: the meter provider; by default the global one.
    """

    def __init__(
        self,
        provider: TracerProvider | None = None,
        *,
        capture_content: bool | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        from vinelm.version import __version__

        self.captures_content = is_asked_for() if capture_content is None else capture_content
        self._tracer = trace.get_tracer("vinelm", __version__, provider, schema_url=SCHEMA_URL)
        meter = metrics.get_meter("vinelm", __version__, meter_provider, schema_url=SCHEMA_URL)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=TOKEN_BOUNDS,
        )
        self._durations, self._first_chunks = (
            meter.create_histogram(name, "s", words, explicit_bucket_boundaries_advisory=SECOND_BOUNDS)
            for name, words in (
                ("gen_ai.client.operation.duration", "Duration of a model's call."),
                ("gen_ai.client.operation.time_to_first_chunk", "Time to the first chunk of a streamed answer."),
            )
        )

    def request_began(self) -> RequestSpan:
        """Open the span of a request when its first stage begins."""
        outer = trace.get_current_span().get_span_context()
        found = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.conversation.id": _conversation()}
        began_ns = time.time_ns()
        span = self._tracer.start_span("invoke_workflow", attributes=_attributes(found), start_time=began_ns)
        return RequestSpan(span, outer, began_ns)

    def request_ended(self, token: RequestSpan) -> None:
        """Close the span of a request whose run is over."""
        token.end()

    def _request(self) -> tuple[RequestSpan | None, Context | None]:
        """Return (the current request's span, an OpenTelemetry context in which this span is the parent).

        Both are None outside of a request. If another library's span is current, the context is None, so that the other
        span is the parent.
        """
        request: RequestSpan | None = current_request(self)
        if request is None or not request.is_inside(trace.get_current_span().get_span_context()):
            return request, None
        return request, trace.set_span_in_context(request.span)

    def decided(self, decided: DecisionEvent) -> None:
        """Record a span for a decision that ends now."""
        end_ns = time.time_ns()
        name = "vinelm.end" if decided.kind == "end" else f"vinelm.decide {decided.stage}"
        _, context = self._request()
        span = self._tracer.start_span(
            name,
            context,
            start_time=end_ns - int(decided.seconds * 1e9),
            attributes=_attributes(_decision(decided)),
        )
        span.end(end_ns)

    def began(self, stage: str, prefix: tuple[str, ...], model: Model) -> CallSpan:
        """Open a span for the invocation."""
        common = _attributes(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": PROVIDERS.get(model.provider, model.provider),
                "gen_ai.request.model": model.model_id,
                **_server(model),
            }
        )
        more = {
            "gen_ai.request.max_tokens": model.max_tokens,
            "gen_ai.conversation.id": _conversation(),
            "vinelm.stage": stage,
            "vinelm.model": model.name,
            "vinelm.engine": model.engine,
            "vinelm.prefix": list(prefix),
            "vinelm.invocation": len(prefix),
        }
        request, context = self._request()
        span = self._tracer.start_span(
            f"chat {model.model_id}", context, kind=SpanKind.CLIENT, attributes=common | _attributes(more)
        )
        return CallSpan(span, common, request)

    def exchanged(self, token: CallSpan, messages: Sequence[BaseMessage], answer: AIMessage | None) -> None:
        """Add prompt and answer to the invocation's span; called only if content is captured."""
        if token.span.is_recording():
            token.span.set_attributes(attributes(messages, answer))

    def ended(self, token: CallSpan, invocation: Invocation | None) -> None:
        """Close the span of an invocation with its usage, and record the metrics of its calls."""
        span = token.span
        if invocation is None:
            span.set_attribute("vinelm.interrupted", True)
        else:
            span.set_attributes(_attributes(_usage(invocation)))
            if invocation.failure is not None:
                span.set_status(Status(StatusCode.ERROR, invocation.failure))
            self._measure(token, invocation)
        span.end()
        if token.request is not None:
            token.request.add(invocation)

    def _measure(self, token: CallSpan, invocation: Invocation) -> None:
        """Record the metrics of each call of an invocation: tokens and seconds. Unknown counts, and seconds of batch calls,
        are left out.
        """
        context = trace.set_span_in_context(token.span)  # for exemplars
        for usage in invocation.usages:
            found = token.attributes | _attributes({"gen_ai.response.model": usage.response_model})
            for kind, count in (("input", usage.tokens_in), ("output", usage.tokens_out)):
                if count is not None:
                    self._tokens.record(count, found | {"gen_ai.token.type": kind}, context)
            timed = found | _attributes({"error.type": usage.failure})
            if not math.isnan(usage.latency_s):
                self._durations.record(usage.latency_s, timed, context)
            if usage.ttft_s is not None:
                self._first_chunks.record(usage.ttft_s, timed, context)

    def tool_ended(self, event: ToolEvent, ago_s: float) -> None:
        """Record a span ``execute_tool NAME`` for a declared tool's call that ended ``ago_s`` seconds ago, marked if it was
        prefetched.

        The span has a digest of the arguments, never the arguments or the result.
        """
        end_ns = time.time_ns() - int(ago_s * 1e9)
        found: dict[str, str | bool | float] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.tool,
            "vinelm.tool.arguments_digest": event.key,
            "vinelm.tool.kind": event.kind,
            "vinelm.tool.is_speculative": event.kind != "authoritative",
            "vinelm.tool.is_used": event.is_used,
            "vinelm.cost_usd": event.cost_usd,
        }
        start_ns = end_ns - int((event.ended_s - event.started_s) * 1e9)
        span = self._tracer.start_span(f"execute_tool {event.tool}", start_time=start_ns, attributes=found)
        if not event.is_ok:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_ns)


def _decision(decided: DecisionEvent) -> dict[str, Any]:
    explained = decided.explanation
    plan = explained.get("decision") or {}
    found = {
        "vinelm.stage": decided.stage or explained.get("stage"),
        "vinelm.prefix": list(decided.prefix),
        "vinelm.model": decided.model,
        "vinelm.goes_on": decided.goes_on,
        "vinelm.note": explained.get("note") or None,
        "vinelm.elapsed_s": explained.get("elapsed_s"),
        "vinelm.spent_usd": explained.get("spent_usd"),
        "vinelm.plan": plan.get("plan"),
        "vinelm.reason": plan.get("reason"),
    }
    return found | {f"vinelm.plan.{name}": plan.get(name) for name in _EXPLAINED}


def _usage(invocation: Invocation) -> dict[str, Any]:
    usages = invocation.usages
    last = usages[-1] if usages else None
    return {
        "gen_ai.usage.input_tokens": _sum(usage.tokens_in for usage in usages),
        "gen_ai.usage.output_tokens": _sum(usage.tokens_out for usage in usages),
        "gen_ai.usage.cache_read.input_tokens": _sum(usage.tokens_cached for usage in usages),
        "gen_ai.response.finish_reasons": [last.finish_reason] if last and last.finish_reason else None,
        "gen_ai.response.model": last.response_model if last else None,
        "gen_ai.response.id": last.provider_request_id if last else None,
        "gen_ai.response.time_to_first_chunk": usages[0].ttft_s if usages else None,
        "error.type": invocation.failure,
        "vinelm.cost_usd": invocation.cost_usd,
        "vinelm.latency_s": invocation.latency_s,
        "vinelm.calls": len(usages),
        "vinelm.retries": sum(usage.retries for usage in usages),
        "vinelm.price_id": last.price_id if last else None,
    }


def _conversation() -> str | None:
    """Return LangGraph's ``thread_id``, the id of the conversation that the running node belongs to; None if there is none."""
    thread = ((var_child_runnable_config.get() or {}).get("configurable") or {}).get("thread_id")
    return None if thread is None else str(thread)


def _server(model: Model) -> dict[str, Any]:
    """Return host and port of the called server, without path and credentials; empty if unknown."""
    try:
        address = urlsplit(model.api_base or "")
        host, port = address.hostname, address.port
    except ValueError:
        return {}
    if host is None:
        return {"server.address": SERVERS.get(model.provider)}
    return {"server.address": host, "server.port": port}


def _sum(counts: Any) -> int | None:
    known = list(counts)
    return None if not known or None in known else sum(known)


def _attributes(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes without those whose value is None."""
    return {name: value for name, value in found.items() if value is not None}

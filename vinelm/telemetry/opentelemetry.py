"""OpenTelemetry spans, by the conventions for generative AI.

https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage

from vinelm.catalog import Model
from vinelm.extras import required_extra
from vinelm.requests.protocols import Invocation
from vinelm.telemetry.events import DecisionEvent
from vinelm.telemetry.message_content import attributes, is_asked_for
from vinelm.tools.call import ToolEvent

with required_extra("otel", "the observer OpenTelemetry"):
    from opentelemetry import trace
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

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


class OpenTelemetry:
    """An observer that makes one span per decision and one per invocation, children of the span that is current then.

    A decision is ``vinelm.decide STAGE`` (or ``vinelm.end``), an invocation ``chat MODEL_ID``, a client span. Uses the API
    only: without an SDK it costs next to nothing.

    No span holds a key, and none a prompt or an answer unless content is captured: then an invocation's span has those of its
    last call.

    Args:
        provider: by default the global one.
        capture_content: None takes the present value of ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``.
    """

    def __init__(self, provider: TracerProvider | None = None, *, capture_content: bool | None = None) -> None:
        from vinelm.version import __version__

        self.captures_content = is_asked_for() if capture_content is None else capture_content
        self._tracer = trace.get_tracer("vinelm", __version__, provider)

    def decided(self, decided: DecisionEvent) -> None:
        """A span that ends now and began as long ago as the decision took."""
        import time

        end_ns = time.time_ns()
        name = "vinelm.end" if decided.kind == "end" else f"vinelm.decide {decided.stage}"
        span = self._tracer.start_span(
            name, start_time=end_ns - int(decided.seconds * 1e9), attributes=_attributes(_decision(decided))
        )
        span.end(end_ns)

    def began(self, stage: str, prefix: tuple[str, ...], model: Model) -> Span:
        """Open the invocation's span."""
        return self._tracer.start_span(
            f"chat {model.model_id}",
            kind=SpanKind.CLIENT,
            attributes=_attributes(
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": PROVIDERS.get(model.provider, model.provider),
                    "gen_ai.request.model": model.model_id,
                    "gen_ai.request.max_tokens": model.max_tokens,
                    "vinelm.stage": stage,
                    "vinelm.model": model.name,
                    "vinelm.engine": model.engine,
                    "vinelm.prefix": list(prefix),
                    "vinelm.invocation": len(prefix),
                }
            ),
        )

    def exchanged(self, token: Span, messages: Sequence[BaseMessage], answer: AIMessage | None) -> None:
        """Put prompt and answer onto the invocation's span; called only where content is captured."""
        if token.is_recording():
            token.set_attributes(attributes(messages, answer))

    def ended(self, token: Span, invocation: Invocation | None) -> None:
        """Close it, with what was used."""
        if invocation is None:
            token.set_attribute("vinelm.interrupted", True)
        else:
            token.set_attributes(_attributes(_usage(invocation)))
            if invocation.failure is not None:
                token.set_status(Status(StatusCode.ERROR, invocation.failure))
        token.end()

    def tool_ended(self, event: ToolEvent, ago_s: float) -> None:
        """A span ``execute_tool NAME`` for a declared tool's call, marked where it was started before it was asked for.

        It has the digest of the arguments, never the arguments or the result.
        """
        import time

        end_ns = time.time_ns() - int(ago_s * 1e9)
        found: dict[str, Any] = {
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
        "gen_ai.response.id": last.provider_request_id if last else None,
        "gen_ai.response.time_to_first_chunk": usages[0].ttft_s if usages else None,
        "error.type": invocation.failure,
        "vinelm.cost_usd": invocation.cost_usd,
        "vinelm.latency_s": invocation.latency_s,
        "vinelm.calls": len(usages),
        "vinelm.retries": sum(usage.retries for usage in usages),
        "vinelm.price_id": last.price_id if last else None,
    }


def _sum(counts: Any) -> int | None:
    known = list(counts)
    return None if not known or None in known else sum(known)


def _attributes(found: Mapping[str, Any]) -> dict[str, Any]:
    """Only what is known: the conventions have no null."""
    return {name: value for name, value in found.items() if value is not None}

"""Spans and metrics of nodes, agents and chat models: what they say, and what they never say."""

import asyncio
import gc
import json

import numpy as np
import pytest
from kit.apps.chat import ScriptedBackend, calls_then, chat_control, follow
from kit.apps.echo import App, EchoBackend, control, forced
from kit.catalogs import make_catalog
from kit.templates import make_template
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("prometheus_client")
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from vinelm import AnnotatedTrie, Objective, Request, VineChatModel, VineLM, VineMiddleware
from vinelm.errors import CallError
from vinelm.telemetry import OpenTelemetry, Prometheus
from vinelm.trie.trie import Trie

CANARY = "sk-canary-4711"
PROMPT_CANARY = "the prompt's own secret"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return OpenTelemetry(provider)


@pytest.fixture
def registry():
    return CollectorRegistry()


def spans_of(exporter):
    return [(span.name, dict(span.attributes)) for span in exporter.get_finished_spans()]


def planned(backend):
    """A VineLM over a made-up trie that likes long paths."""
    catalog, template = make_catalog(3), make_template(3, 3)
    trie = Trie.from_template(template)
    success = np.where(trie.depth > 0, 0.2 + 0.1 * trie.depth + 0.05 * trie.model, 0.0)
    some, zeros = np.where(trie.depth > 0, 0.1, 0.0), np.zeros(len(trie))
    annotated = AnnotatedTrie(trie, template, catalog, success, some, success * some, some / 100, zeros, some, zeros)
    return VineLM(catalog, {"test": backend}, trie=annotated)


def test_a_span_per_decision_and_invocation(tracing, exporter):
    vine = planned(ScriptedBackend(lambda *_: AIMessage("x")))
    vine.observe(tracing)
    app = App(turns=9).build(vine).compile()
    app.invoke({"q": "?"}, context=vine.context(Objective(maximize="accuracy", max_latency_s=60)))
    found = spans_of(exporter)
    assert [name for name, _ in found] == [
        "vinelm.decide generate",
        "chat test-2",
        "vinelm.end",
        "vinelm.decide repair",
        "chat test-2",
        "vinelm.end",
        "vinelm.decide repair",
        "chat test-2",
        "vinelm.end",
    ]
    assert found[0][1]["vinelm.plan"] == ("m2", "m2", "m2")
    assert found[0][1]["vinelm.plan.accuracy"] == pytest.approx(0.6, abs=0.1)
    assert found[0][1]["vinelm.reason"]
    assert found[-1][1]["vinelm.goes_on"] is False
    chat = found[4][1]
    assert {key: value for key, value in chat.items() if key.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "test",
        "gen_ai.request.model": "test-2",
        "gen_ai.request.max_tokens": 1024,
        "gen_ai.usage.input_tokens": 8,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 2,
    }
    assert (chat["vinelm.prefix"], chat["vinelm.cost_usd"], chat["vinelm.latency_s"]) == (("m2", "m2"), 0.01, 1.0)


def test_spans_are_children_of_the_current_one(tracing, exporter):
    vine = control()
    vine.observe(tracing)
    provider = TracerProvider()
    with provider.get_tracer("app").start_as_current_span("request") as parent:
        App().build(vine).compile().invoke({"q": "?"})
    gc.collect()  # a run is over when nothing of it is left
    spans = exporter.get_finished_spans()
    (request,) = (span for span in spans if span.name == "invoke_workflow")
    assert request.parent.span_id == parent.get_span_context().span_id
    assert {span.parent.span_id for span in spans if span is not request} == {request.context.span_id}


def test_a_failed_call_is_an_error_span_without_the_error_s_text(tracing, exporter, registry):
    vine = control(EchoBackend(fail={"m1": ValueError(f"{CANARY} {PROMPT_CANARY}")}))
    vine.observe(tracing)
    vine.observe(Prometheus(registry))
    with pytest.raises(ValueError, match="canary"):
        App().build(vine).compile().invoke({"q": "?"}, context=vine.context(policy=forced(vine, ["m1"])))
    [span] = [span for span in exporter.get_finished_spans() if span.name == "chat test-1"]
    assert (span.attributes["error.type"], span.status.status_code.name) == ("tool", "ERROR")
    assert CANARY not in span.to_json()
    assert 'vinelm_invocations_total{model="m1",outcome="tool",stage="generate"} 1.0' in generate_latest(registry).decode()


def test_counters_and_histograms(registry):
    vine = control(ScriptedBackend(lambda *_: AIMessage("x")))
    vine.observe(Prometheus(registry))
    app = App(turns=2).build(vine).compile()

    async def main():
        await asyncio.gather(*(app.ainvoke({"q": "?"}) for _ in range(20)))

    asyncio.run(main())
    values = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if "bucket" not in sample.name and "created" not in sample.name
    }
    where = [("model", "m0"), ("stage", "repair")]
    assert values["vinelm_invocations_total", ("model", "m0"), ("outcome", "ok"), ("stage", "repair")] == 20
    assert values["vinelm_cost_usd_total", *where] == pytest.approx(0.2)
    assert values["vinelm_invocation_seconds_sum", *where] == pytest.approx(20.0)
    assert values["vinelm_tokens_total", ("kind", "cached"), *where] == 40
    assert values["vinelm_decision_seconds_count", ("kind", "model")] == 40
    assert values["vinelm_decisions_total", ("model", ""), ("outcome", "end"), ("stage", "")] == 20
    assert {value for (name, *_), value in values.items() if name == "vinelm_in_flight"} == {0.0}


def test_agents_and_chat_models_are_seen_too(tracing, exporter):
    pytest.importorskip("langchain")
    from langchain.agents import create_agent

    def add(a: int, b: int) -> int:
        """The sum."""
        return a + b

    backend = ScriptedBackend(calls_then("done", ("add", {"a": 1, "b": 1})))
    vine = chat_control(backend)
    vine.observe(tracing)
    agent = create_agent(VineChatModel(vine=vine, stage="model"), [add], middleware=[VineMiddleware(vine)])
    agent.invoke({"messages": [HumanMessage(PROMPT_CANARY)]})
    with vine.request(policy=follow(vine, "m1")):
        list(VineChatModel(vine=vine, stage="generate").stream(PROMPT_CANARY))
    names = [name for name, _ in spans_of(exporter) if name != "invoke_workflow"]
    assert names == ["vinelm.decide model", "chat test-0"] * 2 + [
        "vinelm.decide generate",
        "chat test-1",
    ]


def test_no_key_and_no_prompt_anywhere(tracing, exporter, registry):
    """Keys in the catalog's environment, prompts, answers, labels: none of them reaches a span, a metric or a trace."""
    backend = ScriptedBackend(lambda *_: AIMessage(CANARY), fail={})
    vine = planned(backend)
    vine.observe(tracing)
    vine.observe(Prometheus(registry))
    app = App(turns=9).build(vine).compile()
    request = Request("q1", {"gold": CANARY})
    session = vine.session(Objective(maximize="accuracy", max_latency_s=60), request=request)
    app.invoke({"q": PROMPT_CANARY}, context=vine.context(policy=session, request=request))
    backend.fail.update({model: CallError(f"{model}: server: it said no", kind="server") for model in vine.catalog})
    with pytest.raises(CallError):
        app.invoke({"q": PROMPT_CANARY}, context=vine.context(Objective(maximize="accuracy"), request=request))
    said = [span.to_json() for span in exporter.get_finished_spans()]
    said += [generate_latest(registry).decode(), json.dumps(session.trace())]
    assert len(said) > 10
    assert all(CANARY not in text and PROMPT_CANARY not in text for text in said)


def test_an_interrupted_stage_is_no_failure(tracing, exporter, registry):
    vine = control()
    vine.observe(tracing)
    vine.observe(Prometheus(registry))
    app = App(inside=lambda *_: interrupt("sure?")).build(vine).compile(checkpointer=InMemorySaver())
    app.invoke({"q": "?"}, {"configurable": {"thread_id": "t"}})
    [span] = [span for span in exporter.get_finished_spans() if span.name.startswith("chat")]
    assert span.attributes["vinelm.interrupted"] is True
    assert span.status.status_code.name == "UNSET"
    assert "vinelm_invocations_total{" not in generate_latest(registry).decode()


def test_an_observer_that_fails_costs_nothing(registry):
    class Broken:
        def decided(self, decided):
            raise RuntimeError

        def began(self, stage, prefix, model):
            raise RuntimeError

        def ended(self, token, invocation):
            raise RuntimeError

    vine = control()
    vine.observe(Broken())
    vine.observe(Prometheus(registry))
    assert App(turns=1).build(vine).compile().invoke({"q": "?"})["a"] == "m0;"
    assert "vinelm_invocations_total{" in generate_latest(registry).decode()


def test_the_trace_is_plain_json_and_explains_itself():
    vine = planned(ScriptedBackend(lambda *_: AIMessage("x")))
    session = vine.session(Objective(maximize="accuracy", max_latency_s=60))
    App(turns=9).build(vine).compile().invoke({"q": "?"}, context=vine.context(policy=session))
    trace = session.trace()
    assert json.loads(json.dumps(trace)) == trace
    assert [step["kind"] for step in trace] == ["model", "end"] * 3
    assert all(step["decision"]["reason"] for step in trace if "decision" in step)

"""What the semantic conventions ask for beyond a span a call: the request, the conversation, the server, the metrics."""

import gc
import threading

import pytest
from kit.apps.echo import App, Echo, control
from kit.catalogs import make_catalog
from langgraph.checkpoint.memory import InMemorySaver

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from vinelm.rows.observation import Usage
from vinelm.telemetry import OpenTelemetry
from vinelm.telemetry.events import ObservedRequest
from vinelm.telemetry.opentelemetry import SCHEMA_URL, SECOND_BOUNDS, TOKEN_BOUNDS, _server

DURATION, TOKENS = "gen_ai.client.operation.duration", "gen_ai.client.token.usage"
FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"


class Answers(Echo):
    """States what a provider's answer states."""

    def _spend(self):
        if self.fail is not None:
            self.call.on_usage(Usage(model=self.name_, cost_usd=0.0, latency_s=0.5, failure="timeout"))
            raise self.fail
        self.call.on_usage(
            Usage(
                model=self.name_,
                cost_usd=0.01,
                latency_s=1.5,
                ttft_s=0.25,
                tokens_in=7,
                tokens_out=3,
                response_model=f"{self.name_}-2026-11-01",
            )
        )


class Provider:
    is_simulated = True
    is_virtual_time = False

    def __init__(self, fail=None):
        self.fail = fail or {}

    def chat_model(self, model, call):
        return Answers(name_=model.name, call=call, fail=self.fail.get(model.name))


@pytest.fixture
def seen():
    """The observer, its spans and its metrics."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return OpenTelemetry(provider, meter_provider=MeterProvider([reader])), exporter, reader


def run(observer, provider=None, *, config=None, **made):
    vine = control(provider or Provider())
    vine.observe(observer)
    App(**made).build(vine).compile(checkpointer=InMemorySaver() if config else None).invoke({"q": "?"}, config)
    del vine
    gc.collect()  # a run is over when nothing of it is left


def spans(exporter, name):
    return [span for span in exporter.get_finished_spans() if span.name.startswith(name)]


def metrics(reader):
    found = reader.get_metrics_data()
    scopes = [scope for resource in found.resource_metrics for scope in resource.scope_metrics]
    return {metric.name: metric for scope in scopes for metric in scope.metrics}, scopes


def test_one_span_of_the_request_holds_all_of_it(seen):
    observer, exporter, _ = seen
    run(observer, turns=2)
    (request,) = spans(exporter, "invoke_workflow")
    chats, decisions = spans(exporter, "chat "), spans(exporter, "vinelm.")
    assert len(chats) > 1
    assert {span.parent.span_id for span in (*chats, *decisions)} == {request.context.span_id}
    assert {span.context.trace_id for span in exporter.get_finished_spans()} == {request.context.trace_id}
    assert request.parent is None
    assert request.attributes["gen_ai.operation.name"] == "invoke_workflow"
    assert request.attributes["vinelm.invocations"] == len(chats)
    assert request.attributes["vinelm.cost_usd"] == pytest.approx(0.01 * len(chats))
    assert request.start_time <= min(span.start_time for span in chats)
    assert request.end_time >= max(span.end_time for span in chats) - 50_000_000


def test_two_requests_are_two_traces_also_side_by_side(seen):
    observer, exporter, _ = seen
    vine = control(Provider())
    vine.observe(observer)
    app = App(turns=2).build(vine).compile()
    threads = [threading.Thread(target=app.invoke, args=({"q": "?"},)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del app, threads, thread
    gc.collect()
    requests = spans(exporter, "invoke_workflow")
    assert len({span.context.trace_id for span in requests}) == 4
    for request in requests:
        children = [span for span in spans(exporter, "chat ") if span.parent.span_id == request.context.span_id]
        assert len(children) == request.attributes["vinelm.invocations"] > 0


def test_spans_of_nodes_by_another_instrumentation_stay_the_parents(seen):
    observer, exporter, _ = seen
    tracer = TracerProvider().get_tracer("another")
    model, request = make_catalog(1)["m0"], ObservedRequest((observer,))
    with tracer.start_as_current_span("node") as node, request.current():
        observer.ended(observer.began("write", ("m0",), model), None)
    with request.current():
        observer.ended(observer.began("write", ("m0",), model), None)
    request.ended()
    (inside, plain), (whole,) = spans(exporter, "chat "), spans(exporter, "invoke_workflow")
    assert inside.parent.span_id == node.get_span_context().span_id
    assert plain.parent.span_id == whole.context.span_id


def test_the_conversation_is_the_thread(seen):
    observer, exporter, _ = seen
    run(observer, config={"configurable": {"thread_id": "thread-7"}}, turns=1)
    for name in ("chat ", "invoke_workflow"):
        assert {span.attributes["gen_ai.conversation.id"] for span in spans(exporter, name)} == {"thread-7"}


def test_without_a_thread_there_is_no_conversation(seen):
    observer, exporter, _ = seen
    run(observer, turns=1)
    assert all("gen_ai.conversation.id" not in span.attributes for span in exporter.get_finished_spans())


def test_the_model_that_answered_is_named_beside_the_one_that_was_asked(seen):
    observer, exporter, _ = seen
    run(observer, turns=1)
    for span in spans(exporter, "chat "):
        name = span.attributes["vinelm.model"]
        assert span.attributes["gen_ai.response.model"] == f"{name}-2026-11-01"
        assert span.attributes["gen_ai.request.model"] == f"test-{name[1:]}"


@pytest.mark.parametrize(
    ("fields", "server"),
    [
        ({"api_base": "https://user:sk-secret@gpu-1.example:30000/v1?key=sk-secret"}, ("gpu-1.example", 30000)),
        ({"api_base": "https://llm.example/v1"}, ("llm.example", None)),
        ({"api_base": "http://[::1"}, (None, None)),
        ({"provider": "openai"}, ("api.openai.com", None)),
        ({}, (None, None)),
    ],
)
def test_the_server_is_a_host_and_a_port_and_nothing_else(fields, server):
    found = _server(make_catalog(1)["m0"].model_copy(update=fields))
    assert (found.get("server.address"), found.get("server.port")) == server
    assert "sk-secret" not in str(found)


def test_each_call_is_a_value_of_the_client_metrics(seen):
    observer, exporter, reader = seen
    run(observer, turns=2)
    found, scopes = metrics(reader)
    assert set(found) == {DURATION, TOKENS, FIRST_CHUNK}
    calls = len(spans(exporter, "chat "))
    points = list(found[TOKENS].data.data_points)
    assert sum(point.count for point in points) == 2 * calls
    sums = {kind: sum(p.sum for p in points if p.attributes["gen_ai.token.type"] == kind) for kind in ("input", "output")}
    assert sums == {"input": 7 * calls, "output": 3 * calls}
    assert tuple(points[0].explicit_bounds) == tuple(map(float, TOKEN_BOUNDS))
    (timed, *_) = found[DURATION].data.data_points
    assert tuple(timed.explicit_bounds) == SECOND_BOUNDS
    assert sum(point.sum for point in found[DURATION].data.data_points) == pytest.approx(1.5 * calls)
    assert sum(point.sum for point in found[FIRST_CHUNK].data.data_points) == pytest.approx(0.25 * calls)
    assert found[DURATION].unit == "s"
    assert found[TOKENS].unit == "{token}"
    wanted = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.response.model"}
    assert set(timed.attributes) == wanted
    assert {scope.scope.schema_url for scope in scopes} == {SCHEMA_URL}


def test_a_failed_call_counts_its_seconds_under_its_kind_and_no_tokens(seen):
    observer, _, reader = seen
    with pytest.raises(ValueError, match="no"):
        run(observer, Provider({f"m{i}": ValueError("no") for i in range(3)}), turns=1)
    found, _ = metrics(reader)
    assert TOKENS not in found
    assert {point.attributes["error.type"] for point in found[DURATION].data.data_points} == {"timeout"}


def test_spans_name_the_version_of_the_conventions(seen):
    observer, exporter, _ = seen
    run(observer, turns=1)
    assert {span.instrumentation_scope.schema_url for span in exporter.get_finished_spans()} == {SCHEMA_URL}


def test_the_bounds_are_those_of_the_conventions():
    assert (TOKEN_BOUNDS[0], TOKEN_BOUNDS[-1], SECOND_BOUNDS[0], SECOND_BOUNDS[-1]) == (1, 67_108_864, 0.01, 81.92)

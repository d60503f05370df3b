"""Servers that echo the key of a request wherever a short text belongs: it is in no file, trace, report or line."""

import json
import operator
from typing import Annotated, Any, TypedDict

import pytest
from kit.wire import anthropic_format, bedrock_format, gemini_format, openai_format
from kit.wire.client import KEY, ONCE, QUICK
from kit.wire.providers import ACCESS_KEY, PROVIDERS, TOKEN
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langgraph.graph import END, START, StateGraph

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from vinelm import VineLM
from vinelm.backends.remote.meter import SeenAnswer
from vinelm.catalog import Catalog
from vinelm.cli.main import main
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Observation, Usage
from vinelm.telemetry import OpenTelemetry
from vinelm.template import Stage, Template
from vinelm.traces import ObservationStore
from vinelm.traces.testing import an_identity

SECRETS = (KEY, ACCESS_KEY, TOKEN)
ECHOED = {"id", "responseId", "toolUseId", "model", "modelVersion", "request_id", "name", "code", "type_of_error"}
FINISHES = {"finish_reason", "stop_reason", "stopReason", "finishReason"}
TOOL = {
    openai_format: {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    anthropic_format: anthropic_format.call("f", {}),
    bedrock_format: {"toolUse": {"toolUseId": "1", "name": "f", "input": {}}},
    gemini_format: {"functionCall": {"id": "1", "name": "f", "args": {}}},
}


class State(TypedDict, total=False):
    question: str
    said: Annotated[list[Any], operator.add]


def answer(state: State, model) -> State:
    return {"said": [model.invoke(state["question"])]}


def build(vine):
    graph = StateGraph(State)
    for stage in ("draft", "answer"):
        graph.add_node(stage, vine.stage(stage, answer))
    graph.add_edge(START, "draft")
    graph.add_edge("draft", "answer")
    graph.add_edge("answer", END)
    return graph


def workflow():
    return Workflow(
        name="echoes",
        template=Template((Stage("draft", ("m",)), Stage("answer", ("m",)))),
        build=build,
        requests=[Request(f"q{i}", {"question": f"number {i}"}) for i in range(6)],
        score=lambda request, state: len(state["said"][-1].text) > 0,
    )


def sent_key(asked):
    """The key that the request carries, as a server sees it."""
    headers = {name.lower(): value for name, value in asked.headers.items()}
    for name in ("x-api-key", "api-key", "x-goog-api-key"):
        if name in headers:
            return headers[name]
    text = headers["authorization"]
    return text.partition("Credential=")[2].partition("/")[0] if "Credential=" in text else text.removeprefix("Bearer ")


def echoed(plain, key, keys):
    if isinstance(plain, dict):
        return {
            name: key if name in keys and isinstance(value, str) else echoed(value, key, keys) for name, value in plain.items()
        }
    return [echoed(value, key, keys) for value in plain] if isinstance(plain, list) else plain


class Echo:
    """The way out of a server, with the key for every id, name and, where ``keys`` has them, finish reason."""

    def __init__(self, out, key, keys):
        self.out, self.key, self.keys = out, key, keys

    async def whole(self, body, status=200, **headers):
        headers = dict.fromkeys(headers, self.key) | {"x_request_id": self.key, "request_id": self.key}
        body = echoed(body, self.key, self.keys)
        if status != 200:
            body = {**body, "error": {"message": self.key, "code": self.key, "type": self.key, "status": self.key}}
        await self.out.whole(body, status, **headers)

    async def chunked(self, content_type="text/event-stream", **headers):
        await self.out.chunked(content_type, x_request_id=self.key, request_id=self.key)

    async def event(self, data):
        await self.out.event(echoed(data, self.key, self.keys))

    async def chunk(self, data):
        if data.startswith(b"event: "):
            head, _, text = data.decode().partition("\ndata: ")
            data = f"{head}\ndata: {json.dumps(echoed(json.loads(text), self.key, self.keys))}\n\n".encode()
        await self.out.chunk(data)

    async def finish(self):
        await self.out.finish()


def replies(words, keys_seen):
    """An answer, one with a tool call, one with an odd finish reason, and a refusal, in turn."""
    plain = words.answering("right")
    tool = words.answering("right", TOOL[words])
    if words is bedrock_format:
        call = bedrock_format.tool_start(1, ACCESS_KEY, ACCESS_KEY)
        tool = words.answering("right", call, bedrock_format.tool_piece(1, "{}"), content=("right", TOOL[words]))

    async def reply(asked, out):
        kind, key = asked.number % 5, sent_key(asked)
        keys_seen.add(key)
        if kind == 4:
            body, _ = words.refusal(500)
            return await Echo(out, key, ECHOED).whole(body, 500)
        odd = FINISHES if kind == 3 else set()
        return await (tool if kind == 1 else plain)(asked, Echo(out, key, ECHOED | odd))

    return reply


@pytest.mark.parametrize(("name", "streams"), [*((name, True) for name in PROVIDERS), ("openai", False), ("gemini", False)])
def test_an_echoed_key_is_in_no_row_no_trace_and_no_output(
    name, streams, transport, kept, credentials, tmp_path, capfd, caplog, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    provider, made, keys = PROVIDERS[name], workflow(), set()
    transport.answers(replies(provider.words, keys))
    client = kept(provider.client(transport, settings={**ONCE, "stream": streams}))
    catalog = Catalog([client.model], {client.model.provider: {**QUICK, **ONCE, "stream": streams}})
    backends = {client.model.provider: client.backend}
    with ObservationStore.create("s.db", store_identity(made, catalog, backends)) as store:
        profile(made, catalog, backends, store, ProfileSettings(sampler="exhaustive"))
        rows = store.observations()
    assert keys
    assert keys <= set(SECRETS)
    assert any(row.failure is None for row in rows)
    exporter, provider_of_spans = InMemorySpanExporter(), TracerProvider()
    provider_of_spans.add_span_processor(SimpleSpanProcessor(exporter))
    vine = VineLM(catalog, backends, template=made.template)
    vine.observe(OpenTelemetry(provider_of_spans, capture_content=True))
    app = build(vine).compile()
    for request in made.requests:
        try:
            app.invoke({"question": request.data["question"]}, context=vine.context())
        except Exception as error:  # the refusals: what the application sees has no key either
            print(f"{type(error).__name__}: {error}")
    trace = "".join(span.to_json() for span in exporter.get_finished_spans())
    assert "gen_ai.output.messages" in trace
    assert main(["export", "s.db", "-o", "rows.csv"]) == 0
    # A report is made of the store, in whose file no key is, whoever answered: one provider's is enough.
    if name == "openai" and main(["estimate", "s.db", "-o", "t.vine", "--max-error", "1"]) == 0:
        assert main(["report", "s.db", "t.vine", "-o", "out"]) == 0
    said = "".join(capfd.readouterr()) + caplog.text + repr(rows) + trace
    for secret in SECRETS:
        assert secret not in said
        assert [path.name for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()] == []


def test_what_is_kept_of_a_piece_holds_no_key(monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    seen = SeenAnswer()
    seen.look(
        ChatGenerationChunk(message=AIMessageChunk("x", response_metadata={"id": KEY, "finish_reason": KEY})),
        {},
        is_whole=False,
    )
    assert (seen.request_id, seen.reason) == ("$MY_KEY", "$MY_KEY")


def test_what_a_backend_of_one_s_own_hands_over_holds_no_key(monkeypatch, tmp_path):
    monkeypatch.setenv("MY_KEY", KEY)
    usage = Usage(model="m", cost_usd=0.0, latency_s=0.0, finish_reason=f"stop-{KEY}", provider_request_id=KEY)
    assert (usage.finish_reason, usage.provider_request_id) == ("stop-$MY_KEY", "$MY_KEY")
    row = Observation(
        request_id="q", prefix=("m0",), stage="generate", success=None, stopped=None, cost_usd=0.0, latency_s=0.0,
        failure="tool", detail=json.dumps({KEY: 1}),
    )  # fmt: skip
    with ObservationStore.create(tmp_path / "s.db", an_identity()) as store:
        store.add(row)
        store.add_many([Observation(**{**{f: getattr(row, f) for f in row.__slots__}, "request_id": "r"})])
        assert [kept.detail for kept in store.observations()] == ['{"$MY_KEY": 1}'] * 2

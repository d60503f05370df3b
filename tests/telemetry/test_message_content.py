"""What models are told and answer is on a span if that was asked for, and nowhere else; keys never are."""

import asyncio
import json
import logging

import numpy as np
import pytest
from kit.apps.echo import App, control, forced
from kit.catalogs import make_catalog
from kit.wire.client import KEY, MODES, QUICK
from kit.wire.providers import AMBIENT, PROVIDERS
from kit.wire.server import WireServer
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("prometheus_client")
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from vinelm import AnnotatedTrie, Catalog, Objective, Stage, Template, VineChatModel, VineLM
from vinelm.backends import OfflineChatModel
from vinelm.errors import CallError
from vinelm.rows.observation import Usage
from vinelm.telemetry import OpenTelemetry, Prometheus
from vinelm.telemetry.message_content import VARIABLE, attributes, is_asked_for
from vinelm.trie.trie import Trie

PROMPT, ANSWER = "the prompt's own secret", "the answer's own secret"
IN, OUT = "gen_ai.input.messages", "gen_ai.output.messages"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in (*AMBIENT, VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MY_KEY", KEY)


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter):
    """A maker of observers whose spans go to ``exporter``."""

    def make(**how):
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        return OpenTelemetry(provider, **how)

    return make


@pytest.fixture(scope="module")
def wire():
    server = WireServer()
    yield server
    server.stop()


class Offline:
    """Our own offline chat models, which answer one text."""

    is_simulated = is_virtual_time = True

    def chat_model(self, model, call):
        return OfflineChatModel.bound(self, model, call)

    def answer(self, model, call, prompt_chars):
        return ANSWER, Usage(model=model.name, cost_usd=0.01, latency_s=1.0, tokens_in=8, tokens_out=3, finish_reason="stop")


def chats(exporter):
    return [dict(span.attributes) for span in exporter.get_finished_spans() if span.name.startswith("chat")]


def served(wire, provider, observer):
    """A VineLM on one provider, and the client whose catalog entry it has."""
    client = provider.client(wire)
    catalog = Catalog([client.model], {client.model.provider: QUICK})
    template = Template((Stage("s", ("m",)),))
    trie = Trie.from_template(template)
    some = np.where(trie.depth > 0, 0.5, 0.0)
    annotated = AnnotatedTrie(trie, template, catalog, some, 0 * some, some, some / 100, some, some, some)
    vine = VineLM(catalog, {client.model.provider: client.backend}, trie=annotated)
    vine.observe(observer)
    return vine, client


async def asked(model, mode):
    if mode == "ainvoke":
        return await model.ainvoke(PROMPT)
    return [piece async for piece in model.astream(PROMPT)]


def ask(model, mode):
    if mode in ("ainvoke", "astream"):
        return asyncio.run(asked(model, mode))
    return model.invoke(PROMPT) if mode == "invoke" else list(model.stream(PROMPT))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["openai", "langchain"])
def test_remote_models_when_asked(wire, spans, exporter, name, mode):
    wire.answers(PROVIDERS[name].words.answering(ANSWER))
    vine, client = served(wire, PROVIDERS[name], spans(capture_content=True))
    ask(VineChatModel(vine=vine, stage="s"), mode)
    (chat,) = chats(exporter)
    assert json.loads(chat[IN]) == [{"role": "user", "parts": [{"type": "text", "content": PROMPT}]}]
    said = [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}], "finish_reason": "stop"}]
    assert json.loads(chat[OUT]) == said
    assert KEY not in json.dumps(chat)
    client.close()


@pytest.mark.parametrize("mode", MODES)
def test_offline_models_when_asked(spans, exporter, mode):
    vine = VineLM(make_catalog(1), {"test": Offline()})
    vine.observe(spans(capture_content=True))
    ask(VineChatModel(vine=vine, stage="s"), mode)
    (chat,) = chats(exporter)
    assert PROMPT in chat[IN]
    assert json.loads(chat[OUT])[0]["parts"] == [{"type": "text", "content": ANSWER}]


def test_wrapped_stages_when_asked(spans, exporter):
    vine = control(Offline())
    vine.observe(spans(capture_content=True))
    App(turns=2).build(vine).compile().invoke({"q": PROMPT}, context=vine.context(policy=forced(vine, ["m0", "m1"])))
    assert [ANSWER in chat[OUT] for chat in chats(exporter)] == [True, True]


@pytest.mark.parametrize("name", ["openai", "langchain"])
def test_off_is_off_everywhere(wire, spans, exporter, caplog, name):
    """Spans, metrics, traces, logs, errors: of calls that succeed and of calls that fail."""
    caplog.set_level(logging.DEBUG, logger="vinelm")
    registry = CollectorRegistry()
    wire.answers(PROVIDERS[name].words.answering(ANSWER))
    vine, client = served(wire, PROVIDERS[name], spans())
    vine.observe(Prometheus(registry))
    model = VineChatModel(vine=vine, stage="s")
    session = vine.session(Objective(maximize="accuracy"))
    with vine.request(policy=session):
        model.invoke(PROMPT)

    async def refuse(asked, out):
        await out.whole({"error": {"message": PROMPT}}, 400)

    wire.answers(refuse)
    with pytest.raises(CallError) as raised:
        model.invoke(PROMPT)
    client.close()
    said = [span.to_json() for span in exporter.get_finished_spans()] + [str(raised.value), caplog.text]
    said += [generate_latest(registry).decode(), json.dumps(session.trace()), json.dumps(vine.catalog.to_dict())]
    assert len(chats(exporter)) == 2
    assert all(secret not in text for text in said for secret in (PROMPT, ANSWER, KEY))


def test_a_failed_call_has_its_prompt_and_no_answer(wire, spans, exporter):
    async def refuse(asked, out):
        await out.whole({"error": {"message": "no"}}, 400)

    wire.answers(refuse)
    vine, client = served(wire, PROVIDERS["openai"], spans(capture_content=True))
    with pytest.raises(CallError):
        VineChatModel(vine=vine, stage="s").invoke(PROMPT)
    (chat,) = chats(exporter)
    assert (PROMPT in chat[IN], OUT in chat) == (True, False)
    client.close()


def test_only_who_asked_is_told(spans):
    class Counting:
        def __init__(self, captures_content):
            self.captures_content, self.heard = captures_content, 0

        def decided(self, decided):
            pass

        began = ended = lambda *_: None

        def exchanged(self, token, messages, answer):
            self.heard += 1

    vine = VineLM(make_catalog(1), {"test": Offline()})
    curious, other = Counting(True), Counting(False)
    for observer in (curious, other, spans()):
        vine.observe(observer)
    VineChatModel(vine=vine, stage="s").invoke(PROMPT)
    assert (curious.heard, other.heard) == (1, 0)


@pytest.mark.parametrize(
    ("value", "is_on"),
    [
        *((value, False) for value in ("", "false", "NO_CONTENT", "EVENT_ONLY", "nonsense")),
        *((value, True) for value in ("true", "SPAN_ONLY", "span_and_event")),
    ],
)
def test_the_conventions_own_switch(monkeypatch, spans, caplog, value, is_on):
    monkeypatch.setenv(VARIABLE, value)
    assert spans().captures_content is is_on is is_asked_for()
    assert spans(capture_content=not is_on).captures_content is not is_on
    assert (VARIABLE in caplog.text) == (value == "nonsense")


def test_half_of_a_surrogate_pair_is_escaped_since_exporters_want_utf8():
    said = attributes([HumanMessage("naïve \ud800")], AIMessage("a\udfffb"))
    for text in said.values():
        text.encode()
    assert json.loads(said[IN])[0]["parts"] == [{"type": "text", "content": "naïve \ud800"}]
    assert "naïve" in said[IN]


def test_the_words_of_the_conventions():
    call = {"name": "add", "args": {"a": 1}, "id": "c1", "type": "tool_call"}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages = [
        SystemMessage("be brief"),
        HumanMessage([{"type": "text", "text": "what?"}, picture]),
        AIMessage("let me see", tool_calls=[call], additional_kwargs={"reasoning_content": "hm"}),
        ToolMessage("2", tool_call_id="c1"),
    ]
    told = json.loads(attributes(messages, None)[IN])
    assert [one["role"] for one in told] == ["system", "user", "assistant", "tool"]
    assert told[1]["parts"] == [{"type": "text", "content": "what?"}, {"type": "image_url"}]
    assert told[2]["parts"] == [
        {"type": "reasoning", "content": "hm"},
        {"type": "text", "content": "let me see"},
        {"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1}},
    ]
    assert told[3]["parts"] == [{"type": "tool_call_response", "id": "c1", "response": "2"}]

"""The SGLang backend against a server that speaks the documented wire format, over a real socket."""

import asyncio
import json
import traceback

import pytest
from kit.wire.client import COST, MODES, ONCE, SHELLS, Client, add, fails
from kit.wire.sglang_format import answering, refusing, trouble
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from vinelm.backends.diagnostics import KnowsContext
from vinelm.backends.sglang.request import chat_template
from vinelm.errors import ConfigError, WorkflowError

CHATML = {"chat_template": "chatml"}


@pytest.fixture
def client(transport, kept):
    def make(**how):
        how.setdefault("options", CHATML)
        return kept(Client(how.pop("api_base", transport.url.removesuffix("/v1")), provider="sglang", **how))

    return make


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_answer_and_usage(transport, client, mode, streams):
    transport.answers(answering("fo", "ur"))
    options = {**CHATML, "temperature": 0.5, "top_k": 4, "priority": 3, "stop": ["\n"]}
    made = client(settings={"stream": streams}, options=options)
    message = made.ask(mode, [SystemMessage("be brief"), HumanMessage("2 + 2?")])
    assert message.text == "four"
    (usage,) = made.usages
    assert (usage.tokens_in, usage.tokens_out, usage.tokens_cached) == (20, 7, 8)
    assert (usage.cost_usd, usage.retries, usage.failure, usage.finish_reason) == (COST, 0, None, "stop")
    assert (usage.provider_request_id, usage.provider_latency_s, usage.tokens_estimated) == ("req_1", 0.25, False)
    is_streamed = streams or "stream" in mode
    assert (usage.ttft_s is not None) == is_streamed
    (asked,) = transport.asked
    assert asked.path == "/generate"
    assert asked.json == {
        "text": "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n",
        "sampling_params": {"temperature": 0.5, "top_k": 4, "stop": ["\n"], "max_new_tokens": 1024},
        "stream": is_streamed,
        "priority": 3,
    }


@pytest.mark.parametrize("mode", ["stream", "astream"])
def test_pieces_come_as_they_are_written(transport, client, mode):
    async def pieces(chat):
        return [piece.text async for piece in chat.astream("?")]

    for options in (CHATML, {**CHATML, "incremental_stream": True}):
        transport.answers(answering("a", "ab", "a", is_incremental="incremental_stream" in options))
        chat = client(options=options).chat()
        texts = [piece.text for piece in chat.stream("?")] if mode == "stream" else asyncio.run(pieces(chat))
        assert [text for text in texts if text] == ["a", "ab", "a"]


@pytest.mark.parametrize("mode", SHELLS)
def test_an_incremental_server_that_was_not_announced_is_noticed(transport, client, mode):
    transport.answers(answering("fo", "ur", is_incremental=True))
    error, _ = fails(client(), mode)
    assert "add options = { incremental_stream = true }" in str(error)
    assert len(transport.asked) == 1


def test_connections_are_used_again(transport, client):
    transport.answers(answering("four"))
    made = client()
    for _ in range(5):
        made.ask("invoke")
    assert (len(transport.asked), transport.connections) == (5, 1)


def abort(message, status):
    return {"type": "abort", "message": message, "status_code": status}


@pytest.mark.parametrize("mode", SHELLS)
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        ("length", "truncated"),
        (abort("Input is longer than the model's context length s3cret", 400), "context_length"),
        (abort("The request queue is full. s3cret", 503), "rate_limit"),
        (abort("s3cret", 400), "malformed"),
        (abort("Aborted s3cret", None), "server"),
    ],
)
def test_finish_reasons_that_are_failures(transport, client, mode, streams, finish, kind):
    transport.answers(answering("fo", finish=finish))
    error, usage = fails(client(settings={**ONCE, "stream": streams}), mode)
    assert (error.kind, usage.retries) == (kind, 0)
    assert kind != "truncated" or usage.cost_usd == COST


@pytest.mark.parametrize("streams", [True, False])
def test_an_empty_answer(transport, client, streams):
    transport.answers(answering(" "))
    error, _ = fails(client(settings={"stream": streams}), "ainvoke")
    assert (error.kind, error.cost_usd) == ("empty", COST)


STATUSES = [
    (400, "The input (9000 tokens) is longer than the model's context length (8192 tokens). s3cret", "context_length"),
    (400, "s3cret", "malformed"),
    (401, "s3cret", "auth"),
    (404, "s3cret", "malformed"),
    (429, "s3cret", "rate_limit"),
    (500, "s3cret", "server"),
    (503, "s3cret", "server"),
]


@pytest.mark.parametrize("mode", SHELLS)
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("case", STATUSES, ids=lambda case: f"{case[0]}-{case[2]}")
def test_kinds_of_refusal(transport, client, mode, streams, case):
    status, message, kind = case
    transport.answers(refusing(status, message=message))
    error, usage = fails(client(settings={**ONCE, "stream": streams}), mode)
    assert (error.kind, usage.cost_usd == 0.0) == (kind, status != 500)  # which may have been worked on


@pytest.mark.parametrize("mode", SHELLS)
@pytest.mark.parametrize(("message", "kind"), [("Input is longer than s3cret", "context_length"), ("s3cret", "server")])
def test_an_error_inside_a_stream(transport, client, mode, message, kind):
    async def reply(asked, out):
        await out.chunked()
        await out.event(trouble(message))
        await out.event("[DONE]")
        await out.finish()

    transport.answers(reply)
    assert fails(client(settings=ONCE), mode)[0].kind == kind


def test_flush_cache(transport, client):
    async def reply(asked, out):
        await out.whole(b"Cache flushed.", 200 if asked.number == 0 else 400, content_type="text/plain")

    transport.answers(reply)
    made = client()
    assert [made.backend.flush_cache(made.model) for _ in range(2)] == [True, False]
    assert {asked.path for asked in transport.asked} == {"/flush_cache"}
    nobody = client(api_base="http://127.0.0.1:9")
    assert nobody.backend.flush_cache(nobody.model) is False


@pytest.mark.parametrize(
    ("info", "tokens"),
    [
        ({"context_length": 8192, "max_req_input_len": 8000}, 8192),
        ({"context_length": None, "max_req_input_len": 4090}, 4090),
        ({}, None),
    ],
)
def test_context(transport, client, info, tokens):
    async def reply(asked, out):
        assert asked.path == "/get_server_info"
        await out.whole(info)

    transport.answers(reply)
    made = client(api_base=transport.url)  # with or without /v1
    assert isinstance(made.backend, KnowsContext)
    assert made.backend.context_tokens(made.model) == tokens


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"options": {}}, "model 'm': /generate takes plain text: add options = { chat_template"),
        ({"options": {**CHATML, "max_new_tokens": 5}}, "option 'max_new_tokens' is set by VineLM: leave it out"),
        ({"api_base": None}, "model 'm': api_base is None: say where the engine is"),
        ({"api_base": "gpu-1:30000"}, "api_base is 'gpu-1:30000'"),
        ({"settings": {"limit": 1}}, r"\[backend.sglang\]: unknown key 'limit'"),
    ],
)
def test_bad_settings(client, fields, message):
    with pytest.raises(ConfigError, match=message):
        client(**fields)


def test_bad_calls(transport, client):
    chat = client(max_tokens=10).chat()
    with pytest.raises(ConfigError, match="max_tokens is the entry's, 10"):
        chat.invoke("?", max_tokens=11)
    with pytest.raises(ConfigError, match='/generate takes no tools: give the entry provider = "openai"'):
        chat.bind_tools([add]).invoke("?")
    with pytest.raises(WorkflowError, match="not text"):
        chat.invoke([HumanMessage([{"type": "image_url", "image_url": {"url": "https://s3cret/"}}])])
    with pytest.raises(ConfigError, match="chat_template 'nowhere': neither one of chatml, llama3 nor a file"):
        client(options={"chat_template": "nowhere"}).ask("invoke")


class TestChatTemplate:
    MESSAGES = ({"role": "user", "content": "hi"}, {"role": "assistant", "content": " ho "}, {"role": "user", "content": "?"})

    def test_built_in(self):
        assert chat_template("llama3").render(self.MESSAGES[:1], {}) == (
            "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
        )

    @pytest.mark.parametrize(("extra", "begins"), [({}, "[hi]"), ({"add_bos_token": False}, "<s>[hi]")])
    def test_of_a_tokenizer(self, tmp_path, extra, begins):
        source = (
            "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% else %}"
            "{{ m.content | tojson }}{{ eos_token }}{% endif %}{% endfor %}{% if thinking %}<think>{% endif %}"
        )
        plain = {"chat_template": source, "bos_token": "<s>", "eos_token": {"content": "</s>"}, **extra}
        path = tmp_path / "tokenizer_config.json"
        path.write_text(json.dumps(plain))
        assert chat_template(str(path)).render(self.MESSAGES, {"thinking": True}) == f'{begins}" ho "</s>[?]<think>'

    def test_a_template_cannot_leave_its_sandbox(self, tmp_path):
        path = tmp_path / "evil.jinja"
        path.write_text("{{ ''.__class__.__mro__[1].__subclasses__() }}")
        with pytest.raises(WorkflowError, match="SecurityError"):
            chat_template(str(path)).render(self.MESSAGES, {})

    def test_a_refusal_quotes_nothing(self, tmp_path):
        path = tmp_path / "strict.jinja"
        path.write_text("{{ raise_exception('bad: ' + messages[0].content) }}")
        with pytest.raises(WorkflowError, match="refuses these messages") as caught:
            chat_template(str(path)).render(({"role": "user", "content": "-".join("word")},), {})
        assert "s3cret" not in "".join(traceback.format_exception(caught.value))

    @pytest.mark.parametrize(
        ("name", "text"), [("x.json", "[]"), ("x.json", '{"a": 1}'), ("x.json", "{"), ("x.jinja", "{% if %}")]
    )
    def test_files_that_are_none(self, tmp_path, name, text):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"chat_template .*x\.") as caught:
            chat_template(str(path))
        assert "\n" not in str(caught.value)


def test_a_conversation(transport, client):
    transport.answers(answering("ok"))
    client().ask("invoke", [HumanMessage([{"type": "text", "text": "a"}]), AIMessage("b"), HumanMessage("c")])
    assert transport.asked[0].json["text"].count("<|im_start|>") == 4

"""LangChain's own chat models as choices: metered, priced, retried like any provider's."""

import asyncio
import logging
import traceback

import pytest
from kit.wire.client import MODES, PRICE, QUICK, Client
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from vinelm.api import VineLM
from vinelm.backends import create_backends
from vinelm.catalog import Catalog
from vinelm.catalog.langchain import entry_of_chat
from vinelm.clock import WallClock
from vinelm.errors import CallError, ConfigError
from vinelm.requests.protocols import CallContext, PricesCalls

SECRET = "s3cret words"
PROMPT = "my-secret-prompt"
USAGE = {
    "input_tokens": 20, "output_tokens": 7, "total_tokens": 27,
    "input_token_details": {"cache_read": 8}, "output_token_details": {"reasoning": 3},
}  # fmt: skip
COST = PRICE.cost_usd(20, 7, 8)
PRICES = {"m": PRICE}


class Whole(BaseChatModel):
    """Answers in one piece; ``script`` has what each call does in turn, the last one again and again."""

    script: list = Field(default_factory=lambda: ["four"])
    asked: list = Field(default_factory=list)
    usage: dict | None = Field(default_factory=lambda: USAGE)
    metadata: dict = Field(default_factory=lambda: {"finish_reason": "stop"})
    max_tokens: int = 100

    @property
    def _llm_type(self):
        return "whole"

    def bind_tools(self, tools, *, tool_choice=None, **kwargs):
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], how=tool_choice or "auto", **kwargs)

    def step(self, messages, stop, options):
        self.asked.append((messages, stop, options))
        said = self.script[min(len(self.asked), len(self.script)) - 1]
        if isinstance(said, Exception):
            raise said
        return said

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        said = self.step(messages, stop, kwargs)
        message = said if isinstance(said, AIMessage) else AIMessage(said)
        message.usage_metadata, message.response_metadata = self.usage, self.metadata
        return ChatResult(generations=[ChatGeneration(message=message)])


class Streaming(Whole):
    """Gives its answer letter by letter, its usage in two parts: as some providers do."""

    stream_usage: bool = True

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        said = self.step(messages, stop, kwargs)
        pieces = said if isinstance(said, list) else list(said)
        first = {"input_tokens": 20, "output_tokens": 0, "total_tokens": 20, "input_token_details": {"cache_read": 8}}
        last = {"input_tokens": 0, "output_tokens": 7, "total_tokens": 7, "output_token_details": {"reasoning": 3}}
        for piece in pieces:
            if isinstance(piece, Exception):
                raise piece
            chunk = piece if isinstance(piece, AIMessageChunk) else AIMessageChunk(piece)
            chunk.usage_metadata, first = (first if self.usage else None), None
            yield ChatGenerationChunk(message=chunk)
        yield ChatGenerationChunk(
            message=AIMessageChunk("", usage_metadata=last if self.usage else None, response_metadata=self.metadata)
        )


class Beside(Streaming):
    """Gives its finish reason beside the message, as langchain-openai does; and that of a whole answer as Anthropic's does."""

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        message = AIMessage(self.step(messages, stop, kwargs), usage_metadata=USAGE)
        return ChatResult(generations=[ChatGeneration(message=message)], llm_output=self.metadata)

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        yield ChatGenerationChunk(message=AIMessageChunk(self.step(messages, stop, kwargs), usage_metadata=USAGE))
        yield ChatGenerationChunk(message=AIMessageChunk(""), generation_info=self.metadata)


class Live(Client):
    """The kit's client, on a ready chat model."""

    def __init__(self, chat, **settings):
        catalog = Catalog.from_chat_models({"m": chat}, prices=PRICES)
        catalog = Catalog(catalog.models, {"langchain": {**QUICK, **settings}}, live=catalog.live)
        self.model = catalog["m"]
        self.backend = create_backends(catalog)["langchain"]
        self.usages = []


@pytest.mark.parametrize("kind", [Whole, Streaming])
@pytest.mark.parametrize("mode", MODES)
def test_answer_and_usage(kind, mode):
    chat = kind()
    made = Live(chat)
    message = made.ask(mode, [HumanMessage("2 + 2?")], stop=["\n"], temperature=0.5)
    assert message.text == "four"
    (usage,) = made.usages
    assert (usage.tokens_in, usage.tokens_out, usage.tokens_cached, usage.tokens_reasoning) == (20, 7, 8, 3)
    assert (usage.cost_usd, usage.retries, usage.failure, usage.finish_reason) == (COST, 0, None, "stop")
    assert usage.tokens_estimated is False
    assert (usage.ttft_s is not None) == (kind is Streaming and "stream" in mode)  # an object is called as its owner calls it
    ((messages, stop, options),) = chat.asked
    assert ([m.content for m in messages], stop, options["temperature"]) == (["2 + 2?"], ["\n"], 0.5)
    assert message.usage_metadata["output_tokens"] == 7


@pytest.mark.parametrize(("mode", "streams"), [(mode, streams) for mode in MODES for streams in (True, False)])
@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
def test_a_finish_reason_beside_the_message_is_seen(mode, streams, reason):
    made = Live(Beside(metadata={"finish_reason": reason}), stream=streams)
    if reason == "stop":
        assert made.ask(mode).text == "four"
    else:
        with pytest.raises(CallError):
            made.ask(mode)
    (usage,) = made.usages
    assert (usage.finish_reason, usage.cost_usd) == (reason, COST)
    assert usage.failure == {"length": "truncated"}.get(reason, reason if reason != "stop" else None)


@pytest.mark.parametrize(("reason", "kind"), [("max_output_tokens", "truncated"), ("content_filter", "content_filter")])
def test_an_incomplete_response_of_the_responses_api_is_a_failure(reason, kind):
    made = Live(Beside(metadata={"status": "incomplete", "incomplete_details": {"reason": reason}}))
    with pytest.raises(CallError) as raised:
        made.ask("invoke")
    assert (raised.value.kind, made.usages[0].finish_reason) == (kind, reason)


def test_a_complete_response_of_the_responses_api_has_an_end():
    made = Live(Beside(metadata={"status": "completed", "incomplete_details": None}))
    assert (made.ask("invoke").text, made.usages[0].finish_reason) == ("four", "completed")


@pytest.mark.parametrize("mode", MODES)
def test_streams_are_asked_for_their_usage_and_the_callers_model_stays_as_it_is(mode):
    """By its field: langchain-openai hands an argument on to the Responses API, which refuses it."""
    chat = Streaming(stream_usage=False)
    made = Live(chat)
    assert made.ask(mode).text == "four"
    ((_, _, options),) = chat.asked
    assert "stream_usage" not in options
    assert made.backend.inner(made.model).sync().stream_usage
    assert not chat.stream_usage


@pytest.mark.parametrize("mode", MODES)
def test_usage_that_is_not_told_is_estimated(mode):
    made = Live(Streaming(usage=None, metadata={}))
    assert made.ask(mode).text == "four"
    (usage,) = made.usages
    assert usage.tokens_estimated
    assert usage.cost_usd > 0
    assert usage.finish_reason == "not_reported"


def test_a_prompt_of_no_tokens_is_not_believed():
    made = Live(Whole(usage={"input_tokens": 0, "output_tokens": 7, "total_tokens": 7}))
    made.ask("invoke", PROMPT)
    (usage,) = made.usages
    assert usage.tokens_estimated
    assert usage.tokens_in > 0


@pytest.mark.parametrize("mode", ["invoke", "ainvoke", "stream"])
@pytest.mark.parametrize("which", ["input_tokens", "output_tokens"])
@pytest.mark.parametrize("value", [-5, 10**9, 10**400, 7.5, "7", True, None, [7]], ids=lambda value: str(value)[:8])
def test_impossible_usage_is_booked_at_the_bound(mode, which, value):
    made = Live(Whole(usage={**USAGE, which: value}))
    assert made.ask(mode, PROMPT).text == "four"
    (usage,) = made.usages
    assert usage.tokens_estimated
    bound_usd = made.backend.upper_bound_usd(made.model, [HumanMessage(PROMPT)]) / 2
    assert usage.cost_usd == pytest.approx(bound_usd)


@pytest.mark.parametrize("mode", ["ainvoke", "astream"])
def test_an_asynchronous_call_ends_with_its_time(mode):
    class Endless(Whole):
        async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
            await asyncio.sleep(60)

    made = Live(Endless(), max_retries=0)
    made.model = made.model.model_copy(update={"timeout_s": 0.05})
    with pytest.raises(CallError) as raised:
        made.ask(mode, PROMPT)
    assert raised.value.kind == "timeout"
    assert raised.value.cost_usd == pytest.approx(made.backend.upper_bound_usd(made.model, [HumanMessage(PROMPT)]) / 2)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


CALL = {"name": "add", "args": {"a": 1, "b": 2}, "id": "c1", "type": "tool_call"}


@pytest.mark.parametrize("mode", MODES)
def test_tools_are_bound_by_the_model_itself(mode):
    chat = Whole(script=[AIMessage("so", tool_calls=[CALL])])
    made = Live(chat)
    message = made.ask(mode, chat=made.chat().bind_tools([add], tool_choice="any"))
    assert (message.text, message.tool_calls) == ("so", [CALL])
    options = chat.asked[0][2]
    assert (options["how"], options["tools"][0]["function"]["name"]) == ("any", "add")


def test_streamed_tool_calls_keep_their_place():
    def piece(args, **more):
        return AIMessageChunk("", tool_call_chunks=[{"name": None, "id": None, "args": args, "index": 0, **more}])

    second = {"name": "add", "id": "c2", "index": 1}
    pieces = [piece('{"a": 1, ', name="add", id="c1"), piece('"b": 2}'), piece('{"a": 5, "b": 6}', **second)]
    made = Live(Streaming(script=[pieces]))
    message = made.ask("stream", chat=made.chat().bind_tools([add]))
    assert message.tool_calls == [CALL, {**CALL, "id": "c2", "args": {"a": 5, "b": 6}}]


class RateLimitError(Exception):
    status_code = 429


class Refused(Exception):
    def __init__(self, status):
        super().__init__(SECRET)
        self.response = type("Response", (), {"status_code": status, "headers": {"retry-after": "0.01"}})()


class ReadTimeout(Exception):
    pass


FAILURES = [
    (RateLimitError(SECRET), "rate_limit"),
    (Refused(401), "auth"),
    (Refused(400), "malformed"),
    (Refused(503), "server"),
    (ReadTimeout(SECRET), "timeout"),
    (ConnectionResetError(SECRET), "server"),
    (KeyError(SECRET), "malformed"),
    (RuntimeError(SECRET), "unknown"),
    (ValueError(f"this model takes no images {SECRET}"), "malformed"),
    (NotImplementedError(SECRET), "malformed"),
    (TypeError(f"_generate() got an unexpected keyword argument {SECRET}"), "malformed"),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", FAILURES, ids=lambda case: f"{type(case[0]).__name__}-{case[1]}")
def test_kinds_of_failure(mode, case, caplog):
    caplog.set_level(logging.DEBUG)
    error, kind = case
    made = Live(Streaming(script=[error]), max_retries=0)
    with pytest.raises(CallError) as caught:
        made.ask(mode, PROMPT)
    (usage,) = made.usages
    assert (caught.value.kind, usage.failure) == (kind, kind)
    said = "".join(traceback.format_exception(caught.value)) + repr(usage) + caplog.text
    assert SECRET not in said
    assert PROMPT not in said


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_attempt_is_repeated(mode):
    chat = Streaming(script=[Refused(503), RateLimitError(), "four"])
    made = Live(chat)
    assert made.ask(mode).text == "four"
    assert (made.usages[0].retries, len(chat.asked)) == (2, 3)


def test_a_broken_stream_is_not_repeated_once_seen():
    chat = Streaming(script=[["fo", ConnectionResetError()], "four"])
    with pytest.raises(CallError):
        Live(chat).ask("stream")
    assert len(chat.asked) == 1


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        ({"finish_reason": "length"}, "truncated"),
        ({"stop_reason": "max_tokens"}, "truncated"),
        ({"stop_reason": "refusal"}, "content_filter"),
    ],
)
def test_a_bad_answer_is_a_failure_and_costs(metadata, kind):
    with pytest.raises(CallError) as caught:
        Live(Whole(metadata=metadata)).ask("invoke")
    assert (caught.value.kind, caught.value.cost_usd) == (kind, COST)


def test_an_empty_answer():
    with pytest.raises(CallError) as caught:
        Live(Whole(script=[" "])).ask("ainvoke")
    assert caught.value.kind == "empty"


def test_fifty_at_once():
    class Echo(Streaming):
        def step(self, messages, stop, options):
            return messages[0].content

    made = Live(Echo())

    async def together():
        return await asyncio.gather(*(made.aask("astream" if n % 2 else "ainvoke", f"n{n}") for n in range(50)))

    assert [message.text for message in asyncio.run(together())] == [f"n{n}" for n in range(50)]
    assert len(made.usages) == 50


def test_upper_bound_and_the_cap():
    made = Live(Whole())
    assert isinstance(made.backend, PricesCalls)
    assert made.model.max_tokens == 100
    assert made.backend.upper_bound_usd(made.model, [HumanMessage("é" * 500)]) >= PRICE.cost_usd(1000, 100)
    with pytest.raises(ConfigError, match="max_tokens is the entry's, 100"):
        made.ask("invoke", max_tokens=101)


def test_a_model_without_tools():
    class Plain(Whole):
        def bind_tools(self, tools, **kwargs):
            raise NotImplementedError

    made = Live(Plain())
    with pytest.raises(ConfigError, match="model 'm': Plain takes no tools"):
        made.ask("invoke", chat=made.chat().bind_tools([add]))


def test_catalog_of_ready_models():
    chats = {"m": Whole(), "n": Streaming()}
    catalog = Catalog.from_chat_models(chats, prices={"m": PRICE, "n": PRICE.model_dump()})
    assert [(m.name, m.provider, m.model_id, m.engine) for m in catalog.models] == [
        ("m", "langchain", "Whole", "whole"),
        ("n", "langchain", "Streaming", "streaming"),
    ]
    assert catalog.subset(("n",)).live == {"n": chats["n"]}
    again = Catalog.from_dict(catalog.to_dict())
    assert again == catalog
    call = CallContext(stage="s", prefix=("m",), clock=WallClock(), on_usage=lambda usage: None)
    with pytest.raises(ConfigError, match="model 'm': was a ready chat model of another process: pass it again"):
        create_backends(again)["langchain"].chat_model(again["m"], call)


def test_a_ready_model_is_the_entry_that_names_it_with_its_provider():
    """A model of Ollama's has no list price: only the user's own entry, of whatever name, can be its price."""
    listed = Catalog.from_strings(["ollama:llama", "ollama:qwen"], prices=dict.fromkeys(["ollama:llama", "ollama:qwen"], PRICE))
    entries = [model.model_copy(update={"name": f"my-{n}", "engine": "langchain"}) for n, model in enumerate(listed.models)]

    class Ollama(Whole):
        def _get_ls_params(self, stop=None, **kwargs):
            return {"ls_provider": "ollama", "ls_model_name": "qwen"}

    assert entry_of_chat(Ollama(), entries).name == "my-1"
    with pytest.raises(ConfigError, match="no price known for 'ollama/qwen'"):
        entry_of_chat(Ollama(), entries[:1])


def test_vinelm_takes_them():
    from langchain_core.language_models import GenericFakeChatModel

    class ChatOpenAI(GenericFakeChatModel):
        model_name: str = "gpt-4.1-mini"

        def _get_ls_params(self, stop=None, **kwargs):
            return {"ls_provider": "openai", "ls_model_name": self.model_name}

    vine = VineLM(models={"small": ChatOpenAI(messages=iter([AIMessage("hello there")]))})
    model = vine.catalog["small"]
    assert (model.price_id, model.price.output) == ("openai/gpt-4.1-mini", 1.6)
    usages = []
    call = CallContext(stage="s", prefix=("small",), clock=WallClock(), on_usage=usages.append)
    assert vine.models.backends["langchain"].chat_model(model, call).invoke("?").text == "hello there"
    assert usages[0].tokens_estimated


def test_catalog_of_strings():
    catalog = Catalog.of(["openai:gpt-4.1-mini", "bedrock_converse:deepseek.v3.2", "google_genai:gemini-2.5-flash"])
    assert [(m.provider, m.model_id, m.price_id, m.api_key_env) for m in catalog.models] == [
        ("openai", "gpt-4.1-mini", "openai/gpt-4.1-mini", "OPENAI_API_KEY"),
        ("bedrock", "deepseek.v3.2", "bedrock/deepseek.v3.2", None),
        ("gemini", "gemini-2.5-flash", "gemini/gemini-2.5-flash", "GEMINI_API_KEY"),
    ]
    assert next(iter(catalog)) == "openai:gpt-4.1-mini"
    others = ["xai:grok-x", "anthropic:claude-x"]
    other = Catalog.from_strings(others, prices=dict.fromkeys(others, PRICE))
    assert [(m.provider, m.model_id) for m in other.models] == [("langchain", "xai:grok-x"), ("anthropic", "claude-x")]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Catalog.from_strings(["gpt-4o"]), "model 'gpt-4o': write it as PROVIDER:MODEL"),
        (lambda: Catalog.from_strings(["openai:gpt-x"]), r"no price known for 'openai/gpt-x': pass prices=\{'openai:gpt-x'"),
        (lambda: Catalog.from_strings(["openai:gpt-5"], prices={"gpt-5": PRICE}), "prices has 'gpt-5', which is not a model"),
        (lambda: Catalog.from_strings(["openai:gpt-5"], prices={"openai:gpt-5": {"input": 1}}), "bad value for 'price.output'"),
        (lambda: Catalog.from_chat_models({"m": Whole()}), "model 'm': no price known for 'whole/Whole'"),
        (
            lambda: Catalog.from_chat_models({"m": Whole().bind(stop=["x"])}, prices=PRICES),
            "Binding: give a LangChain chat model",
        ),
        (lambda: Live(Whole(), limit=5), r"\[backend.langchain\]: unknown key 'limit'"),
    ],
)
def test_bad_input_is_one_line(make, says):
    with pytest.raises(ConfigError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_missing_integration_is_one_line():
    catalog = Catalog.from_strings(["nobody_ever:x"], prices={"nobody_ever:x": PRICE})
    call = CallContext(stage="s", prefix=(), clock=WallClock(), on_usage=lambda usage: None)
    with pytest.raises(ConfigError, match="model 'nobody_ever:x': cannot be made") as caught:
        create_backends(catalog)["langchain"].chat_model(catalog.models[0], call)
    assert "\n" not in str(caught.value)

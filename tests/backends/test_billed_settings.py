"""Settings that decide the bill count in the bound wherever a call or an owner's object states them, or are refused."""

import pytest
from kit.optional import needs
from kit.wire import anthropic_format, openai_format
from kit.wire.client import KEY, ONCE, PRICE, Client, add
from kit.wire.providers import _Ready
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda

from vinelm.catalog.billed_settings import answers_in, dearer_in, held_in, limit_in, other_model_in
from vinelm.clock import WallClock
from vinelm.errors import CallError, CallRefused, ConfigError
from vinelm.money.spend_guard import SpendGuard
from vinelm.requests.protocols import CallContext

needs("langchain_openai")
pytestmark = pytest.mark.usefixtures("credentials")


def own_model(transport, **settings):
    from langchain_openai import ChatOpenAI

    return lambda url, timeout_s: ChatOpenAI(model="model-1", base_url=url, api_key=KEY, timeout=timeout_s, **settings)


@pytest.fixture(params=["catalog", "own"])
def made(request, transport, kept):
    transport.answers(openai_format.answering("four"))
    if request.param == "catalog":
        return kept(Client(transport.url, api_key_env="MY_KEY"))
    return kept(_Ready(own_model(transport, max_tokens=100), transport.url))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"model": "gpt-5-pro"}, "another price"),
        ({"extra_body": {"model": "gpt-5-pro"}}, "another price"),
        ({"extra_body": {"models": ["a", "b"]}}, "another price"),
        ({"extra_body": {"max_tokens": 99_999}}, "may only ask for less"),
        ({"extra_body": {"max_completion_tokens": "99999"}}, "may only ask for less"),
        ({"service_tier": "priority"}, "costs more than the list price"),
        ({"extra_body": {"service_tier": "priority"}}, "costs more than the list price"),
    ],
)
def test_a_call_that_would_be_billed_otherwise_is_refused(made, transport, options, said):
    with pytest.raises(ConfigError, match=said):
        made.ask("invoke", **options)
    assert not transport.asked


def test_a_call_may_name_its_own_model(made, transport):
    made.ask("invoke", model="model-1", extra_body={"max_tokens": 50})
    assert transport.asked[0].json["max_tokens"] == 50


@pytest.mark.parametrize("options", [{"n": 9}, {"extra_body": {"n": 9}}])
def test_every_answer_of_a_call_is_in_its_bound(made, options):
    one, nine = (made.backend.upper_bound_usd(made.model, [HumanMessage("2 + 2?")], **asked) for asked in ({}, options))
    assert nine > one + 2 * 8 * PRICE.cost_usd(0, made.model.max_tokens)


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [({"extra_body": {"max_completion_tokens": 9000}}, 9000), ({"extra_body": {"n": 4}}, 4 * 1024), ({"n": 4}, 4 * 1024)],
)
def test_what_an_owner_s_object_asks_for_in_its_body_is_in_the_bound(transport, kept, settings, tokens):
    made = kept(_Ready(own_model(transport, **settings), transport.url))
    bound_usd = made.backend.upper_bound_usd(made.model, [HumanMessage("2 + 2?")]) / 2
    assert bound_usd >= PRICE.cost_usd(0, tokens)


def test_an_answer_that_nobody_limited_is_booked_at_its_counts(transport, kept):
    """Far above what was assumed for it."""
    transport.answers(openai_format.answering("four", usage={"prompt_tokens": 20, "completion_tokens": 100_000}))
    made = kept(_Ready(own_model(transport), transport.url))
    made.ask("invoke")
    assert made.usages[0].cost_usd == pytest.approx(PRICE.cost_usd(20, 100_000))


def test_the_usage_of_a_call_with_several_answers_is_booked_once(transport, kept):
    async def reply(asked, out):
        whole = openai_format.completion("four")
        await out.whole({**whole, "choices": [{**whole["choices"][0], "index": number} for number in range(3)]})

    transport.answers(reply)
    made = kept(_Ready(own_model(transport, n=3, max_tokens=100), transport.url))
    made.ask("invoke")
    assert made.usages[0].cost_usd == pytest.approx(PRICE.cost_usd(20, 7, 8))


class Copying(BaseChatModel):
    """Binds tools with a copy of itself, and gives structured output by a chain that begins with something else."""

    tools: tuple = ()
    max_tokens: int = 100

    @property
    def _llm_type(self):
        return "copying"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        usage = {"input_tokens": 20, "output_tokens": 7, "total_tokens": 27}
        message = AIMessage(f"{len(self.tools)}", usage_metadata=usage, response_metadata={"finish_reason": "stop"})
        return ChatResult(generations=[ChatGeneration(message=message)])

    def bind_tools(self, tools, **kwargs):
        return self.model_copy(update={"tools": tuple(tools)})

    def with_structured_output(self, schema, **kwargs):
        return RunnableLambda(lambda asked: asked) | self | RunnableLambda(lambda message: message.content)


class Hiding(Copying):
    def bind_tools(self, tools, **kwargs):
        return RunnableLambda(self.invoke)

    def with_structured_output(self, schema, **kwargs):
        return RunnableLambda(self.invoke)


SCHEMA = {"title": "x", "type": "object", "properties": {}}


@pytest.mark.parametrize(("method", "given", "said"), [("bind_tools", [add], "1"), ("with_structured_output", SCHEMA, "0")])
def test_whatever_a_chat_model_makes_of_itself_is_metered(transport, kept, method, given, said):
    made = kept(_Ready(lambda url, timeout_s: Copying(), transport.url))
    answer = getattr(made.chat(), method)(given).invoke("2 + 2?")
    assert getattr(answer, "content", answer) == said
    assert [usage.cost_usd for usage in made.usages] == [pytest.approx(PRICE.cost_usd(20, 7))]
    hiding = kept(_Ready(lambda url, timeout_s: Hiding(), transport.url))
    with pytest.raises(ConfigError, match="whose calls nobody can count"):
        getattr(hiding.chat(), method)(given)


@pytest.mark.parametrize(
    ("settings", "limit", "answers"),
    [
        ({"max_tokens": 5}, None, 1),
        ({"extra_body": {"max_tokens": 5, "n": 2}}, 5, 2),
        ({"generation_config": {"max_output_tokens": 7, "candidate_count": 3}}, 7, 3),
        ({"inferenceConfig": {"maxTokens": 9}}, 9, 1),
        ({"extra_body": {"options": {"num_predict": 4}, "max_tokens": "11"}}, 11, 1),
        ({"extra_body": {"max_tokens": True, "n": float("inf")}}, None, 1),
        ({"extra_body": ["max_tokens"], "n": "8"}, None, 8),
    ],
)
def test_settings_are_found_inside_of_settings(settings, limit, answers):
    assert (limit_in(*held_in(settings)), answers_in(settings)) == (limit, answers)


def test_models_and_tiers_are_found_inside_of_settings():
    assert other_model_in({"modelId": "a"}, "b") == "a"
    assert other_model_in({"extra_body": {"model": "b"}}, "b") is None
    assert dearer_in({"serviceTier": {"type": "priority"}}) == ("serviceTier", "priority")
    assert dearer_in({"extra_body": {"speed": "fast"}}) == ("speed", "fast")
    assert dearer_in({"service_tier": "flex"}) is None


class OverAResource(BaseChatModel):
    """Makes its client when it is made, with the retries that were set then, as several packages do."""

    client: object = None
    max_retries: int = 2
    max_tokens: int = 100

    @property
    def _llm_type(self):
        return "over-a-resource"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.client.create(model="model-1", messages=[{"role": "user", "content": "4"}])


def test_a_client_that_was_made_with_retries_makes_none(transport, kept):
    import openai

    async def fails(asked, out):
        await out.whole({"error": {"message": "no"}}, 500)

    transport.answers(fails)
    client = openai.OpenAI(base_url=transport.url, api_key=KEY, max_retries=2)
    made = kept(_Ready(lambda url, timeout_s: OverAResource(client=client.chat.completions), transport.url, settings=ONCE))
    with pytest.raises(CallError):
        made.ask("invoke")
    assert len(transport.asked) == 1
    assert client.max_retries == 2


@pytest.mark.parametrize("mode", ["invoke", "ainvoke", "stream"])
def test_a_package_s_class_that_is_derived_from_another_s_makes_one_attempt(transport, kept, credentials, mode, monkeypatch):
    aws = pytest.importorskip("langchain_aws")

    async def fails(asked, out):
        await out.whole({"error": {"message": "no"}}, 500)

    transport.answers(fails)
    monkeypatch.setenv("ANTHROPIC_BEDROCK_BASE_URL", transport.url.removesuffix("/v1"))
    chat = aws.ChatAnthropicBedrock(model="anthropic.claude-sonnet-4-5-20250929-v1:0", region_name="us-east-1", max_tokens=9)
    made = kept(_Ready(lambda url, timeout_s: chat, transport.url, settings=ONCE))
    with pytest.raises(CallError):
        made.ask(mode)
    assert len(transport.asked) == 1


@pytest.mark.parametrize("options", [{"previous_response_id": "r"}, {"extra_body": {"cached_content": "cachedContents/1"}}])
def test_what_stands_at_the_provider_and_is_only_named_is_in_the_bound(made, options):
    bare, named = (made.backend.upper_bound_usd(made.model, [HumanMessage("2 + 2?")], **asked) for asked in ({}, options))
    assert named > bare + 2 * PRICE.cost_usd(16_000, 0)


def test_after_an_answer_at_a_dearer_tier_the_next_calls_are_reserved_at_its_rate(transport, kept):
    """A project's own setting, which no request tells."""

    async def reply(asked, out):
        if len(transport.asked) > 1:
            return await out.whole({"error": {"message": "no"}}, 500)
        return await out.whole({**openai_format.completion("four"), "service_tier": "priority"})

    transport.answers(reply)
    made = kept(Client(transport.url, api_key_env="MY_KEY", settings={**ONCE, "stream": False}))
    asked = [HumanMessage("2 + 2?")]
    before_usd = made.backend.upper_bound_usd(made.model, asked)
    guard = SpendGuard(10 * before_usd)
    call = CallContext(stage="s", prefix=("m",), clock=WallClock(), guard=guard, on_usage=made.usages.append)
    made.ask("invoke", chat=made.backend.chat_model(made.model, call))
    assert made.usages[0].cost_usd == pytest.approx(2 * PRICE.cost_usd(20, 7, 8))
    assert made.backend.upper_bound_usd(made.model, asked) == pytest.approx(2 * before_usd)
    with pytest.raises(CallError):  # of unknown cost
        made.ask("invoke", chat=made.backend.chat_model(made.model, call))
    assert made.usages[1].cost_usd == pytest.approx(before_usd, rel=0.01)
    tight = CallContext(stage="s", prefix=("m",), clock=WallClock(), guard=SpendGuard(0.9 * before_usd), on_usage=print)
    with pytest.raises(CallRefused):
        made.ask("invoke", chat=made.backend.chat_model(made.model, tight))


@pytest.mark.parametrize("status", [200, 400, 429, 503])
@pytest.mark.parametrize("counts", [True, False])
def test_an_error_that_counts_tokens_may_be_billed(transport, kept, status, counts):
    async def fails(asked, out):
        whole = {"error": {"message": "no", "code": 429}, **({"usage": openai_format.USAGE} if counts else {})}
        await out.whole(whole, status)

    transport.answers(fails)
    made = kept(Client(transport.url, api_key_env="MY_KEY", settings={**ONCE, "stream": False}))
    with pytest.raises(CallError):
        made.ask("invoke")
    bound_usd = made.backend.upper_bound_usd(made.model, [HumanMessage("2 + 2?")]) / 2
    assert made.usages[0].cost_usd == pytest.approx(bound_usd * counts)


def test_what_is_learnt_of_a_copy_with_other_settings_holds_for_the_model(made):
    inner = made.chat().binding.inner
    copy = made.chat()._with(inner.given.model_copy(update={"temperature": 0.5})).binding.inner
    copy.saw_rate(3.0)
    copy.refused.add("seed")
    assert (inner.rate, inner.refused) == (3.0, {"seed"})


@pytest.mark.parametrize("mode", ["invoke", "stream"])
def test_an_owner_s_object_that_asks_a_cache_to_keep_its_prompts_for_an_hour(transport, kept, mode):
    """The server says what it has written, and not for how long."""
    anthropic = pytest.importorskip("langchain_anthropic")
    usage = {"input_tokens": 20, "output_tokens": 7, "cache_creation_input_tokens": 1000}
    transport.answers(anthropic_format.answering("four", usage=usage))
    root = transport.url.removesuffix("/v1")
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}

    def of(**settings):
        chat = anthropic.ChatAnthropic(model="model-1", base_url=root, api_key=KEY, max_tokens=100, **settings)
        return kept(_Ready(lambda url, timeout_s: chat, transport.url))

    plain, marked = of(), of(model_kwargs={**mark, "system": "s" * 5000})
    for made, hour in ((plain, 0), (marked, 1000)):
        made.ask(mode)
        assert made.usages[0].cost_usd == pytest.approx(PRICE.cost_usd(1020, 7, 0, 1000, hour))
    bounds = [made.backend.upper_bound_usd(made.model, [HumanMessage("2 + 2?")]) for made in (plain, marked)]
    assert bounds[1] > bounds[0] + 2 * PRICE.cost_usd(5000, 0, 0, 5000, 5000)

"""``vine.around``: the application's own object is what runs, with all that was set on it, until a plan chooses another."""

import asyncio
import copy
import operator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

import pytest
from kit.wire.client import PRICE
from kit.wire.openai_format import completion, problem
from kit.wire.openai_format import stream as streamed
from langchain.chat_models import init_chat_model
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel

from vinelm import Stage, Template, VineChatModel, VineLM
from vinelm.catalog import Catalog, Model
from vinelm.errors import UNSUPPORTED_CALL, CallError, ConfigError, WorkflowError
from vinelm.policies import DefaultPolicy, StaticPolicy

langchain_openai = pytest.importorskip("langchain_openai")
# A client of an event loop that has ended leaves its connection to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sun in {city}"


class City(BaseModel):
    """A city."""

    name: str


async def named(asked, out):
    """Answers with the name of the model that was asked, but for models that are broken."""
    name = asked.json["model"]
    if name == "gpt-4o":
        return await out.whole(problem("invalid_api_key"), 401)
    if asked.json.get("stream"):
        return await streamed(out, name)
    return await out.whole({**completion(name), "model": name})


@pytest.fixture
def vine(server, monkeypatch):
    server.answers(named)
    monkeypatch.setenv("MY_KEY", "sk-canary")
    how = {"engine": "e", "price": PRICE, "price_id": "p", "timeout_s": 60.0, "api_key_env": "MY_KEY"}
    other = Model(name="other", provider="openai", model_id="another-model", api_base=server.url, **how)
    return VineLM(Catalog([other], {"openai": {"stream": False}}), template=Template((Stage("write"),)))


def own(server, model="gpt-4.1-mini", **settings):
    return langchain_openai.ChatOpenAI(model=model, base_url=server.url, api_key="sk-mine", **settings)


def policy_of(vine, name):
    return StaticPolicy(vine.template, (name,))


SET = {"temperature": 0.25, "reasoning_effort": "low", "extra_body": {"mine": 1}, "model_kwargs": {"user": "u"}, "seed": 3}


@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream"])
def test_the_object_asks_what_it_asks_without_us(vine, server, how):
    calls = {
        "invoke": lambda chat: chat.invoke("?").text,
        "ainvoke": lambda chat: asyncio.run(chat.ainvoke("?")).text,
        "stream": lambda chat: "".join(chunk.text for chunk in chat.stream("?")),
    }
    chat = own(server, **SET)
    around = vine.around(chat, "write")
    assert [calls[how](one) for one in (chat, around)] == ["gpt-4.1-mini"] * 2
    bare, ours = server.asked
    usage = {"stream_options": {"include_usage": True}} if how == "stream" else {}  # by which the call is booked
    assert ours.json == {**bare.json, **usage}
    assert ours.headers["authorization"] == "Bearer sk-mine"


class Counting(BaseCallbackHandler):
    def __init__(self):
        self.starts = []

    def on_chat_model_start(self, serialized, messages, *, tags=None, metadata=None, **kwargs):
        self.starts.append((tuple(tags or ()), (metadata or {}).get("team")))


class Limiter(BaseRateLimiter):
    def __init__(self):
        self.taken = 0

    def acquire(self, *, blocking=True):
        self.taken += 1
        return True

    async def aacquire(self, *, blocking=True):
        return self.acquire()


def test_its_callbacks_tags_and_rate_limiter_are_asked_once_a_call(vine, server):
    seen, limiter = Counting(), Limiter()
    chat = own(server, callbacks=[seen], tags=["mine"], metadata={"team": "red"}, rate_limiter=limiter)
    vine.around(chat, "write").invoke("?")
    assert seen.starts == [(("mine",), "red")]
    assert limiter.taken == 1


def test_its_cache_answers_for_the_same_settings_and_the_same_model(vine, server):
    cache = InMemoryCache()
    around = vine.around(own(server, cache=cache), "write")
    assert [around.invoke("?").text for _ in range(3)] == ["gpt-4.1-mini"] * 3
    assert len(server.asked) == 1
    vine.around(own(server, cache=cache, temperature=0.5), "write").invoke("?")
    assert len(server.asked) == 2
    policy = policy_of(vine, "other")
    with vine.request(policy=policy):
        assert around.invoke("?").text == "another-model"
    assert [one.failure for one in policy.invocations] == [None]


class State(TypedDict, total=False):
    said: list


class Notes(TypedDict, total=False):
    said: Annotated[list, operator.add]


def test_two_objects_in_one_node_stay_two(vine, server):
    small, large = vine.around(own(server, "gpt-4.1-mini")), vine.around(own(server, "gpt-4.1"))

    def write(state: State):
        return {"said": [one.invoke("?").text for one in (small, large, small)]}

    graph = StateGraph(State)
    graph.add_node("write", write)
    graph.add_edge(START, "write")
    graph.add_edge("write", END)
    assert graph.compile().invoke({})["said"] == ["gpt-4.1-mini", "gpt-4.1", "gpt-4.1-mini"]


@pytest.mark.parametrize("saver", [None, InMemorySaver()])
def test_nodes_side_by_side_whose_files_have_a_vinelm_each_run_as_without_us(server, saver):
    server.answers(named)
    one, two = VineLM(["openai:gpt-4.1"]), VineLM(["openai:gpt-4.1-mini"])
    small, large = one.around(own(server, "gpt-4.1-mini")), two.around(own(server, "gpt-4.1"))
    graph = StateGraph(Notes)
    graph.add_node("bull", lambda _: {"said": [small.invoke("?").text]})
    graph.add_node("bear", lambda _: {"said": [large.invoke("?").text]})
    graph.add_node("sum", lambda _: {"said": [large.invoke("?").text, small.invoke("?").text]})
    for node in ("bull", "bear"):
        graph.add_edge(START, node)
        graph.add_edge(node, "sum")
    app, of_a_turn = graph.compile(checkpointer=saver), ["gpt-4.1", "gpt-4.1-mini"] * 2
    for turn in (1, 2):
        said = app.invoke({"said": []}, {"configurable": {"thread_id": "t"}})["said"]
        assert sorted(said) == sorted(of_a_turn * (turn if saver else 1))


def test_a_retry_asks_again(vine, server):
    async def second_time(asked, out):
        await (out.whole(problem("x"), 400) if asked.number == 0 else named(asked, out))

    server.answers(second_time)
    around = vine.around(own(server).with_retry(stop_after_attempt=2, wait_exponential_jitter=False), "write")
    assert around.invoke("?").text == "gpt-4.1-mini"
    assert len(server.asked) == 2


def test_a_fallback_answers_and_both_are_metered(vine, server):
    around = vine.around(own(server, "gpt-4o").with_fallbacks([own(server)]), "write")
    assert around.invoke("?").text == "gpt-4.1-mini"
    assert {"gpt-4o", "gpt-4.1-mini"} <= set(vine.adapter.models.catalog)
    assert all(isinstance(one, VineChatModel) for one in (around.runnable, *around.fallbacks))


@pytest.mark.parametrize(
    "made",
    [
        lambda chat: chat.bind_tools([weather], tool_choice="weather"),
        lambda chat: chat.bind(stop=["END"]).with_config(tags=["a"]),
        lambda chat: ChatPromptTemplate.from_messages([("human", "{q}")]) | chat | StrOutputParser(),
        lambda chat: RunnableLambda(lambda given: given["q"]) | chat.with_retry(),
    ],
    ids=["bind_tools", "bind", "chain", "retry in a chain"],
)
def test_what_is_made_of_the_object_asks_what_it_asks_without_us(vine, server, made):
    bare = made(own(server))
    asked = {"q": "?"} if hasattr(bare, "steps") else "?"
    for one in (bare, vine.around(bare, "write")):
        one.invoke(asked)
    first, second = server.asked
    assert second.json == first.json


def test_a_configurable_field_and_a_configurable_alternative(vine, server):
    field = own(server, temperature=0.5).configurable_fields(temperature=ConfigurableField(id="heat"))
    vine.around(field, "write").invoke("?", {"configurable": {"heat": 0.75}})
    assert server.asked[-1].json["temperature"] == 0.75
    which = ConfigurableField(id="which")
    chat = own(server).configurable_alternatives(which, large=own(server, "gpt-4.1"), late=lambda: own(server, "gpt-4.1-nano"))
    around = vine.around(chat, "write")
    for name, model in (("default", "gpt-4.1-mini"), ("large", "gpt-4.1"), ("late", "gpt-4.1-nano")):
        assert around.invoke("?", {"configurable": {"which": name}}).text == model
        assert model in vine.adapter.models.catalog  # it was metered


@pytest.mark.parametrize("most", [9, 20_000])
def test_its_limit_of_an_answer_is_its_own_whatever_another_object_of_the_same_model_sets(vine, server, most):
    def ask(chat, **options):
        chat.invoke("?", **options)
        body = server.asked[-1].json
        return body.get("max_completion_tokens", body.get("max_tokens"))

    assert ask(vine.around(own(server, max_tokens=most), "write")) == most
    assert ask(vine.around(own(server), "write")) is None
    assert ask(vine.around(own(server, max_tokens=12), "write")) == 12
    assert ask(vine.around(own(server, max_tokens=12), "write"), max_tokens=50) == 50
    assert ask(vine.around(own(server, max_tokens=12), "write").bind(max_tokens=8)) == 8
    with vine.request(policy=policy_of(vine, "other")):
        assert ask(vine.around(own(server, max_tokens=12), "write")) == 12


FIELDS = {"model_name": ConfigurableField(id="which"), "seed": ConfigurableField(id="seed")}


def test_a_model_whose_name_a_call_configures_asks_what_it_asks_without_us(vine, server):
    bare = own(server, temperature=0.5).configurable_fields(**FIELDS)
    wrapped = vine.around(bare, "write")
    more = {"max_tokens": ConfigurableField(id="most")}
    for made in (bare, wrapped):
        made.invoke("?")
        made.invoke("?", {"configurable": {"which": "gpt-4.1", "seed": 7}})
        made.with_config(configurable={"which": "gpt-4.1"}).invoke("?")
        made.configurable_fields(**more).invoke("?", {"configurable": {"which": "gpt-4.1", "most": 9}})
        made.bind_tools([weather]).invoke("?")
        made.with_structured_output(City, include_raw=True, method="function_calling").invoke("?")
    bodies = [one.json for one in server.asked]
    assert bodies[:6] == bodies[6:]
    assert [body["model"] for body in bodies[6:10]] == ["gpt-4.1-mini", "gpt-4.1", "gpt-4.1", "gpt-4.1"]
    assert bodies[7]["seed"] == 7
    assert isinstance(vine.around(bare | StrOutputParser(), "write").invoke("?"), str)


def test_a_model_that_each_call_configures_reads_structured_answers_of_any_model(vine, server):
    """Its own provider's parser read them, which wants what only that provider's client leaves in an answer."""

    async def city(asked, out):
        return await out.whole({**completion('{"name": "Ulm"}'), "model": asked.json["model"]})

    server.answers(city)
    late = init_chat_model(
        "gpt-4.1-mini", model_provider="openai", configurable_fields=("model",), base_url=server.url, api_key="sk-mine"
    )
    made = vine.around(late, "write").with_structured_output(City).with_retry(stop_after_attempt=2)
    assert made.with_config({"model": "gpt-4.1"}).invoke("?") == City(name="Ulm")
    with vine.request(policy=policy_of(vine, "other")):
        assert made.invoke("?") == City(name="Ulm")
    assert [one.json["model"] for one in server.asked] == ["gpt-4.1", "another-model"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_client_of_the_sdk_runs_what_each_call_names_as_it_is_set_up(vine, server, is_async):
    openai = pytest.importorskip("openai")
    kind = openai.AsyncOpenAI if is_async else openai.OpenAI
    client = vine.around(kind(api_key="sk-mine", base_url=server.url, default_headers={"x-team": "blue"}, timeout=9.0), "write")
    assert isinstance(client, kind)
    assert vine.around(client) is client
    asked = [{"role": "user", "content": "?"}]

    def ask(model):
        found = client.chat.completions.create(model=model, messages=asked, temperature=0.25)
        return (asyncio.run(found) if is_async else found).model

    names = ["gpt-4.1", "gpt-4.1-mini", "gpt-4.1"]
    assert [ask(name) for name in names] == names
    assert [one.json["model"] for one in server.asked] == names
    assert {one.json["temperature"] for one in server.asked} == {0.25}
    assert {one.headers["x-team"] for one in server.asked} == {"blue"}
    assert {one.headers["authorization"] for one in server.asked} == {"Bearer sk-mine"}
    with vine.request(policy=policy_of(vine, "other")):
        assert ask("gpt-4.1") == "another-model"
    with pytest.raises(openai.BadRequestError, match="no price known for 'openai/nobodys'"):
        ask("nobodys")


@pytest.mark.parametrize("is_async", [False, True])
def test_llamaindex_calls_models_through_wrapped_clients(vine, server, is_async):
    """A stand-in for LlamaIndex's class, which makes its clients late; the real one is tried in test_openai_frameworks.py."""
    openai = pytest.importorskip("openai")

    class OpenAI(BaseModel):
        model: str
        reuse_client: bool = False
        _client: Any = None
        _aclient: Any = None

        def _get_client(self):
            self._client = self._client or openai.OpenAI(api_key="sk-mine", base_url=server.url)
            return self._client

        def _get_aclient(self):
            self._aclient = self._aclient or openai.AsyncOpenAI(api_key="sk-mine", base_url=server.url)
            return self._aclient

    OpenAI.__module__ = "llama_index.llms.openai.base"
    mine = OpenAI(model="gpt-4.1")
    llm = vine.around(mine, "write")
    assert (type(llm), llm.model, llm.reuse_client) == (OpenAI, "gpt-4.1", True)
    asked = {"model": llm.model, "messages": [{"role": "user", "content": "?"}]}

    def ask(one):
        if is_async:
            return asyncio.run(one._get_aclient().chat.completions.create(**asked)).model
        return one._get_client().chat.completions.create(**asked).model

    assert ask(llm) == "gpt-4.1"
    with vine.request(policy=policy_of(vine, "other")):
        assert (ask(llm), ask(mine)) == ("another-model", "gpt-4.1")  # the application's own object is as it was
    del OpenAI._get_aclient
    with pytest.raises(ConfigError, match="this version of LlamaIndex makes its clients in a way"):
        vine.around(OpenAI(model="gpt-4.1"))


def test_another_model_gets_the_settings_that_it_shares(vine, server):
    around = vine.around(own(server, max_tokens=77, **SET), "write")
    with vine.request(policy=policy_of(vine, "other")):
        assert around.invoke("?").text == "another-model"
    sent = server.asked[-1].json
    assert (sent["temperature"], sent["seed"]) == (0.25, 3)
    assert [sent[name] for name in ("max_tokens", "max_completion_tokens") if name in sent] == [77]
    assert not {"mine", "user", "reasoning_effort"} & set(sent)
    assert server.asked[-1].headers["authorization"] == "Bearer sk-canary"


def test_another_model_gets_tools_and_a_schema_in_its_own_form(vine, server):
    bound = vine.around(own(server).bind_tools([weather]), "write")
    with vine.request(policy=policy_of(vine, "other")):
        bound.invoke("?")
    assert server.asked[-1].json["model"] == "another-model"
    assert server.asked[-1].json["tools"][0]["function"]["name"] == "weather"


def test_the_object_is_the_entry_that_names_it_and_gets_one_where_none_does(vine, server):
    catalog = vine.adapter.models.catalog
    vine.around(own(server, "another-model"), "write")
    assert vine.adapter.models.catalog is catalog
    vine.around(own(server), "write")
    entry = vine.adapter.models.catalog["gpt-4.1-mini"]
    assert (entry.model_id, entry.price.input) == ("gpt-4.1-mini", 0.4)
    vine.around(own(server), "write")  # another object of the same model
    assert set(vine.adapter.models.catalog) == {"other", "gpt-4.1-mini"}


def test_a_price_that_nobody_knows_is_one_line(vine, server):
    with pytest.raises(ConfigError, match=r"no price known .*vine\.around: price=.*; or add an entry") as raised:
        vine.around(own(server, "nobody-knows-it"), "write")
    assert "\n" not in str(raised.value)
    price = {"input": 1.0, "output": 2.0, "source": "contract", "as_of": "2026-01-01"}
    assert vine.around(own(server, "nobody-knows-it"), "write", price=price).invoke("?").text == "nobody-knows-it"


def test_what_has_no_chat_model_inside_is_one_line(vine):
    with pytest.raises(ConfigError, match="without a chat model inside") as raised:
        vine.around(StrOutputParser())
    assert "\n" not in str(raised.value)


def test_around_twice_is_around_once(vine, server):
    around = vine.around(own(server), "write")
    assert vine.around(around, "write") is around


def test_its_own_key_is_enough_as_long_as_no_plan_chooses_another_model(server, monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    server.answers(named)
    vine = VineLM(["openai:gpt-4.1-mini", "openai:gpt-4.1", "anthropic:claude-haiku-4-5"])
    chat = vine.around(own(server), "write")
    assert chat.invoke("?").text == "gpt-4.1-mini"
    assert chat.bind_tools([weather]).invoke("?").text == "gpt-4.1-mini"
    assert server.asked[-1].headers["authorization"] == "Bearer sk-mine"
    template = Template((Stage("write"),)).bind(tuple(vine.adapter.models.catalog))
    policy = StaticPolicy(template, ("openai:gpt-4.1",))
    with vine.request(policy=policy), pytest.raises(ConfigError, match="variable OPENAI_API_KEY is not set"):
        chat.invoke("?")


def test_its_failure_shows_nothing_of_its_key(vine, server):
    server.answers(lambda asked, out: out.whole(problem("x"), 401))
    around = vine.around(own(server), "write")
    with pytest.raises(CallError) as raised:
        around.invoke("?")
    assert "sk-mine" not in str(raised.value)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda chat: chat.model_copy(deep=True)])
def test_a_copy_calls_the_same_object(vine, server, copied):
    """It has clients and locks: ``TypeError: cannot pickle '_thread.RLock' object``."""
    assert copied(vine.around(own(server), "write")).invoke("?").text == "gpt-4.1-mini"
    assert copy.deepcopy(vine.catalog) == vine.catalog  # which holds the object now


# -- objects that are made for each user ------------------------------------------------------------------------------


class Two(TypedDict, total=False):
    a: str
    b: str


def of_user(vine, server, user):
    """A graph with a user's own keys, as an application builds it for each request."""
    big, small = (
        vine.around(langchain_openai.ChatOpenAI(model=name, base_url=server.url, api_key=f"sk-{user}"), stage)
        for name, stage in (("gpt-4.1", "a"), ("gpt-4.1-mini", "b"))
    )
    graph = StateGraph(Two)
    graph.add_node("a", lambda state: {"a": big.invoke("?").text})
    graph.add_node("b", lambda state: {"b": small.invoke("?").text})
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    graph.add_edge("b", END)
    return graph.compile()


@pytest.fixture
def shop(server, vine):
    return VineLM(vine.catalog, template=Template((Stage("a"), Stage("b"))))


CHEAP = ("gpt-4.1-mini", "gpt-4.1-mini")


def keys_of(server):
    return [one.headers["authorization"] for one in server.asked]


def test_no_user_s_prompts_go_with_the_key_of_another(shop, server):
    """The plan has the first stage run on what is the second's: of mia, who came first, until tom's own was made."""
    graphs = {user: of_user(shop, server, user) for user in ("mia", "tom")}
    for user, graph in graphs.items():
        before = len(server.asked)
        with pytest.raises(WorkflowError, match="several objects of it") as caught:
            graph.invoke({}, context=shop.context(policy=StaticPolicy(shop.template, CHEAP)))
        assert caught.value.code == UNSUPPORTED_CALL  # so that another model of the plan answers
        assert len(server.asked) == before
        own = StaticPolicy(shop.template, ("gpt-4.1", "gpt-4.1-mini"))
        assert graph.invoke({}, context=shop.context(policy=own)) == {"a": "gpt-4.1", "b": "gpt-4.1-mini"}
        assert keys_of(server)[before:] == [f"Bearer sk-{user}"] * 2


@pytest.mark.parametrize("how", ["invoke", "tools"])
def test_another_model_answers_in_place_of_one_that_is_another_user_s(shop, server, how):
    of_user(shop, server, "mia")
    mine = shop.around(langchain_openai.ChatOpenAI(model="gpt-4.1", base_url=server.url, api_key="sk-tom"), "a")
    shop.around(langchain_openai.ChatOpenAI(model="gpt-4.1-mini", base_url=server.url, api_key="sk-tom"), "b")
    asks = {
        "invoke": mine,
        "tools": mine.bind_tools([weather]),
    }
    policy = DefaultPolicy(
        lambda stage: "gpt-4.1-mini",
        fallbacks=lambda stage: ["gpt-4.1-mini", "gpt-4.1"],
        template=shop.template,
        clock=shop.models.new_clock(),
    )
    with shop.request(policy=policy):
        asks[how].invoke("?")
    assert [(one.json["model"], one.headers["authorization"]) for one in server.asked] == [("gpt-4.1", "Bearer sk-tom")]


def test_objects_that_are_alike_are_one(shop, server):
    """An application that makes them anew for each request, with its one key."""
    for graph in [of_user(shop, server, "all") for _ in range(3)]:
        out = graph.invoke({}, context=shop.context(policy=StaticPolicy(shop.template, CHEAP)))
        assert out == {"a": "gpt-4.1-mini", "b": "gpt-4.1-mini"}


def test_objects_that_are_wrapped_at_once_are_all_there(shop, server):
    names = ["gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano", "gpt-5", "gpt-5-mini", "gpt-5-nano"] * 4
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda name: shop.around(own(server, name), "a"), names))
    assert set(names) <= set(shop.catalog)

"""What a catalog says of each provider's models: bad settings in one line, and where requests go, as whom."""

import sys

import pytest
from kit.optional import needs
from kit.wire import anthropic_format, bedrock_format, gemini_format, openai_format
from kit.wire.client import KEY, PRICE, Client, fails
from kit.wire.providers import PROVIDERS, SECRETS, TOKEN, give_token
from langchain_core.messages import HumanMessage

from vinelm.backends.diagnostics import KnowsContext
from vinelm.errors import ConfigError

needs("langchain_openai", "langchain_anthropic", "langchain_aws", "langchain_google_genai")
pytestmark = pytest.mark.usefixtures("credentials")
NOWHERE = "http://127.0.0.1:9"
BEARER = "AWS_BEARER_TOKEN_BEDROCK"


@pytest.fixture
def client(transport, kept):
    return lambda name, **how: kept(PROVIDERS[name].client(transport, **how))


BAD = [
    ("openai", {"options": {"max_tokens": 5}}, "model 'm': option 'max_tokens': set the entry's max_tokens instead"),
    ("openai", {"options": {"n": 2}}, "model 'm': option 'n' is set by VineLM: leave it out"),
    ("openai", {"options": {"extra_headers": {}}}, "option 'extra_headers' is set by VineLM"),
    ("openai", {"options": {"max_tokens_parameter": "length"}}, "max_tokens_parameter must be one of max_tokens, max_comp"),
    ("openai", {"api_base": "localhost:8000"}, "api_base is 'localhost:8000': it must start with http:// or https://"),
    ("openai", {"api_base": None, "api_key_env": None}, "model 'm': no api_key_env: name the variable of the key"),
    ("openai", {"api_key_env": "NOT_SET"}, "^model 'm': environment variable NOT_SET is not set: put the API key there$"),
    ("openai", {"settings": {"limit": {}}}, r"\[backend.openai\]: unknown key 'limit' \(did you mean 'limits'\?\): known keys are limits, stream"),
    ("openai", {"settings": {"max_retries": -1}}, r"\[backend.openai\]: max_retries is -1: it must be a finite number >= 0"),
    ("openai", {"settings": {"limits": {"f": {}}}}, r"limits of engine 'f', which no model has: engines are e"),
    ("openai", {"settings": {"limits": {"e": {"rpm": 5}}}}, r"limits of engine 'e': unknown key 'rpm': known keys"),
    ("openai", {"settings": {"limits": {"e": {"concurrency": 0}}}}, r"limits of engine 'e': concurrency: Input should be"),
    ("anthropic", {"api_key_env": None}, "no api_key_env: name the variable of the key, such as \"ANTHROPIC_API_KEY\""),
    ("anthropic", {"api_key_env": "NOT_SET"}, "environment variable NOT_SET is not set: put the API key there"),
    ("anthropic", {"options": {"max_tokens": 5}}, "option 'max_tokens': set the entry's max_tokens instead"),
    ("anthropic", {"options": {"thinking": {"type": "enabled", "budget_tokens": 9000}}}, "leaves no room in max_tokens"),
    ("anthropic", {"api_base": "localhost:80"}, "it must start with http:// or https://"),
    ("anthropic", {"settings": {"limit": 1}}, r"\[backend.anthropic\]: unknown key 'limit'"),
    ("bedrock", {"options": {}}, "model 'm': no AWS region: add options"),
    ("bedrock", {"api_key_env": "MY_KEY"}, f"api_key_env is MY_KEY: Bedrock's API key is read from {BEARER}"),
    ("bedrock", {"api_key_env": BEARER}, f"environment variable {BEARER} is not set"),
    ("bedrock", {"options": {"region": "x", "max_tokens": 5}}, "option 'max_tokens': set the entry's max_tokens instead"),
    ("gemini", {"api_key_env": None}, "model 'm': no api_key_env: name the variable of the key"),
    ("gemini", {"api_key_env": "NOT_SET"}, "environment variable NOT_SET is not set: put the API key there"),
    ("gemini", {"options": {"temprature": 1}}, "model 'm': option 'temprature' is no setting of ChatGoogleGenerativeAI"),
    ("gemini", {"options": {"max_output_tokens": 5}}, "option 'max_output_tokens': set the entry's max_tokens instead"),
    ("gemini", {"api_base": "localhost:80"}, "it must start with http:// or https://"),
    ("gemini", {"settings": {"limit": 1}}, r"\[backend.gemini\]: unknown key 'limit'"),
    ("azure", {"options": {}}, "model 'm': no API version: add options = { api_version"),
    ("azure", {"api_base": None}, "model 'm': api_base is None: say where the resource is"),
    ("azure", {"api_base": "x.azure.com"}, "model 'm': api_base is 'x.azure.com': say where the resource is"),
    ("azure", {"api_key_env": None}, 'no api_key_env: name the variable of the key, such as "AZURE_API_KEY"'),
    ("azure", {"options": {"api_version": "1", "n": 2}}, "option 'n' is set by VineLM: leave it out"),
    ("vertex", {"options": {}}, "model 'm': no Google Cloud project: add options = { project"),
    ("vertex", {"api_key_env": "MY_KEY"}, "already has a project: leave out project and location"),
    ("sglang", {"api_base": None}, "model 'm': api_base is None: say where the engine is"),
    ("sglang", {"options": {"chat_template": "chatml"}}, "the engine renders chats itself"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "message"), BAD)
def test_bad_settings_are_one_line(name, fields, message, kept):
    url = fields.get("api_base", NOWHERE)
    more = {key: value for key, value in fields.items() if key != "api_base"}
    with pytest.raises(ConfigError, match=message) as raised:
        kept(Client(url, **{"provider": name, **PROVIDERS[name].fields, **more})).chat()
    assert "\n" not in str(raised.value)
    assert all(secret not in str(raised.value) for secret in SECRETS)


def test_a_service_account_that_is_missing(client, monkeypatch, tmp_path):
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(ConfigError, match="model 'm': no Google credentials: set GOOGLE_APPLICATION_CREDENTIALS"):
        client("vertex").chat()


@pytest.mark.parametrize(("name", "package"), [("openai", "langchain_openai"), ("anthropic", "langchain_anthropic")])
def test_without_the_package_it_is_one_line(client, monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"pip install 'vinelm\[{name}\]'"):
        client(name).chat()


@pytest.mark.parametrize("name", ["openai", "anthropic", "bedrock", "gemini"])
def test_a_call_may_ask_for_fewer_tokens_and_not_for_more(transport, client, name):
    made = client(name, max_tokens=10)
    transport.asked.clear()
    with pytest.raises(ConfigError, match="max_tokens is the entry's, 10: a call may only ask for less"):
        made.ask("invoke", max_tokens=11)
    assert (transport.asked, made.usages) == ([], [])
    transport.answers(PROVIDERS[name].words.answering("x"))
    made.ask("invoke", max_tokens=3)
    body = transport.asked[0].json
    found = {**body, **body.get("generationConfig", {}), **body.get("inferenceConfig", {})}
    limits = [value for key, value in found.items() if key.lower().replace("_", "") in LIMITS]
    assert limits == [3]


LIMITS = ("maxtokens", "maxcompletiontokens", "maxoutputtokens")


def test_a_link_is_bounded(client):
    made = client("anthropic")
    link = HumanMessage([{"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}])
    assert made.backend.upper_bound_usd(made.model, [link]) > 2 * 16_000 * PRICE.input / 1e6


# -- where requests go, and as whom


def test_an_entry_s_key_and_address_and_nothing_of_the_environment(transport, client, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "ambient-s3cret")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Mine: ambient-s3cret\nX-Other: ambient-s3cret")
    for name, words in (("openai", openai_format), ("anthropic", anthropic_format)):
        made = client(name)
        transport.answers(words.answering("four"))
        made.ask("invoke")
        made.ask("astream")
        assert len(transport.asked) == 2
        for asked in transport.asked:
            assert KEY in " ".join(asked.headers.values())
            assert "s3cret" not in " ".join(asked.headers.values())


def test_a_server_without_keys_gets_none(transport, client, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "ambient-s3cret")
    transport.answers(openai_format.answering("four"))
    client("openai", api_key_env=None).ask("invoke")
    assert transport.asked[0].headers["authorization"] == "Bearer none"


def test_azure_s_address_header_and_body(transport, client, monkeypatch):
    for name in ("AZURE_OPENAI_API_KEY", "OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_API_VERSION"):
        monkeypatch.setenv(name, "ambient-secret")
    transport.answers(openai_format.answering("four"))
    client("azure", options={"api_version": "2025-01-01", "temperature": 0.5}).ask("ainvoke")
    (asked,) = transport.asked
    assert asked.path == "/openai/deployments/model-1/chat/completions?api-version=2025-01-01"
    assert asked.headers["api-key"] == KEY
    assert "authorization" not in asked.headers
    assert not any("ambient-secret" in value for value in asked.headers.values())
    assert asked.json["temperature"] == 0.5
    assert "api_version" not in asked.json


@pytest.mark.parametrize("mode", ["invoke", "astream"])
def test_vertex_s_address_and_token(transport, client, mode):
    transport.answers(gemini_format.answering("four"))
    made = client("vertex", options={"project": "p-1", "location": "europe-west4", "temperature": 0.5})
    assert [made.ask(mode).text for _ in range(2)] == ["four", "four"]
    asked = transport.asked[0]
    assert "/projects/p-1/locations/europe-west4/publishers/google/models/model-1:" in asked.path
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert asked.json["generationConfig"]["temperature"] == 0.5
    assert not {"project", "location"} & set(asked.json["generationConfig"])


def test_vertex_in_express_mode_sends_the_key(transport, client):
    transport.answers(gemini_format.answering("four"))
    client("vertex", api_key_env="MY_KEY", options={}).ask("invoke")
    assert transport.asked[0].headers["x-goog-api-key"] == KEY
    assert "/publishers/google/models/model-1:" in transport.asked[0].path


def test_betas_version_and_context_of_anthropic(transport, client):
    async def reply(asked, out):
        if asked.path.endswith("/models/model-1"):
            return await out.whole({"id": "model-1", "type": "model", "display_name": "M", "max_input_tokens": 200_000})
        return await anthropic_format.answering("four")(asked, out)

    transport.answers(reply)
    made = client("anthropic", options={"betas": ["a-1", "b-2"], "anthropic_version": "2026-10-21"})
    assert isinstance(made.backend, KnowsContext)
    assert made.backend.context_tokens(made.model) == 200_000
    made.ask("invoke")
    assert transport.asked[-1].headers["anthropic-beta"] == "a-1,b-2"
    assert transport.asked[-1].headers["anthropic-version"] == "2026-10-21"
    assert not {"betas", "anthropic_version"} & set(transport.asked[-1].json)


def test_context_of_gemini_and_of_servers_with_a_list(transport, client):
    async def reply(asked, out):
        if "/models/model-1" in asked.path:
            return await out.whole({"name": "models/model-1", "inputTokenLimit": 1048576, "outputTokenLimit": 65536})
        listed = {"id": "model-1", "object": "model", "created": 1, "owned_by": "x", "max_model_len": 4096}
        return await out.whole({"object": "list", "data": [listed]})

    transport.answers(reply)
    for name, tokens in (("gemini", 1048576), ("openai", 4096)):
        made = client(name)
        assert made.backend.context_tokens(made.model) == tokens
    transport.answers(give_token)
    made = client("openai")
    assert made.backend.context_tokens(made.model) is None


def test_an_api_key_of_bedrock_is_only_sent_over_tls(transport, client, monkeypatch):
    monkeypatch.setenv(BEARER, KEY)
    transport.answers(bedrock_format.answering("four"))
    error, usage = fails(client("bedrock", api_key_env=BEARER), "invoke")
    assert (error.kind, usage.cost_usd, transport.asked) == ("auth", 0.0, [])
    assert "https" in str(error)

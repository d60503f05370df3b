"""Where Azure's and Vertex's requests go and as whom, beyond what every provider is asked."""

import pytest
from kit.optional import needs
from kit.wire.client import KEY, MODES, ONCE, Client, add, fails
from kit.wire.gemini_format import answering as gemini_answer
from kit.wire.openai_format import answering, problem
from kit.wire.providers import AMBIENT, PROVIDERS, TOKEN, give_token, service_account
from kit.wire.server import WireServer

from vinelm.backends.gemini.response import failed
from vinelm.errors import ConfigError

needs("google.genai")
VERTEX = {"project": "p-1", "location": "europe-west4"}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in (*AMBIENT, "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MY_KEY", KEY)


@pytest.fixture
def tokens(monkeypatch, tmp_path):
    """Google's token endpoint, and a key file that names it."""
    server = WireServer().answers(give_token)
    (tmp_path / "key.json").write_text(service_account(f"{server.url}/token"))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    yield server
    server.stop()


@pytest.fixture
def azure(transport, kept):
    return lambda **how: kept(PROVIDERS["azure"].client(transport, **how))


@pytest.fixture
def vertex(transport, kept):
    return lambda **how: kept(PROVIDERS["vertex"].client(transport, **how))


@pytest.mark.parametrize("mode", MODES)
def test_azure_s_address_header_and_body(transport, azure, monkeypatch, mode):
    for name in ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_AD_TOKEN", "OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_API_VERSION"):
        monkeypatch.setenv(name, "ambient-secret")
    transport.answers(answering("four"))
    azure(options={"api_version": "2025-01-01", "temperature": 0.5}).ask(mode)
    (asked,) = transport.asked
    assert asked.path == "/openai/deployments/model-1/chat/completions?api-version=2025-01-01"
    assert asked.headers["api-key"] == KEY
    assert "authorization" not in asked.headers
    assert not any("ambient-secret" in value for value in asked.headers.values())
    assert (asked.json["max_completion_tokens"], asked.json["temperature"]) == (1024, 0.5)
    assert not {"api_version", "max_tokens"} & set(asked.json)


def test_azure_has_tools_and_its_own_refusals(transport, azure):
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    transport.answers(answering({"tool_calls": [call]}, finish_reason="tool_calls"))
    made = azure()
    message = made.ask("invoke", chat=made.chat().bind_tools([add]))
    assert message.tool_calls[0]["args"] == {"a": 1, "b": 2}

    async def refuse(asked, out):
        await out.whole(problem("content_filter"), 400)

    transport.answers(refuse)
    assert fails(azure(settings=ONCE), "ainvoke")[0].kind == "content_filter"


@pytest.mark.parametrize("mode", MODES)
def test_vertex_s_address_and_token(transport, vertex, tokens, mode):
    transport.answers(gemini_answer("four"))
    made = vertex(options={**VERTEX, "temperature": 0.5})
    assert [made.ask(mode).text for _ in range(2)] == ["four", "four"]
    asked = transport.asked[0]
    where = "/v1beta1/projects/p-1/locations/europe-west4/publishers/google/models/model-1:"
    assert asked.path.startswith(where)
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert asked.json["generationConfig"]["temperature"] == 0.5
    assert not set(VERTEX) & set(asked.json["generationConfig"])
    assert len(tokens.asked) == 1  # kept for as long as it is good


def test_vertex_in_express_mode_sends_the_key(transport, vertex):
    transport.answers(gemini_answer("four"))
    vertex(api_key_env="MY_KEY", options={}).ask("invoke")
    assert transport.asked[0].headers["x-goog-api-key"] == KEY
    assert "/publishers/google/models/model-1:" in transport.asked[0].path


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
def test_vertex_whose_account_is_refused(transport, vertex, tokens, mode):
    async def refuse(asked, out):
        await out.whole({"error": "invalid_grant", "error_description": "s3cret"}, 400)

    tokens.answers(refuse)
    transport.answers(gemini_answer("four"))
    error, _ = fails(vertex(), mode)
    assert str(error) == "m: auth: Google's credentials were rejected: check that they are still valid"
    assert not transport.asked


def test_a_token_endpoint_that_is_down_is_no_refusal():
    from google.auth.exceptions import RefreshError, TransportError

    kinds = [failed(error).kind for error in (RefreshError("s3cret", retryable=True), TransportError("x"), RefreshError("x"))]
    assert kinds == ["server", "server", "auth"]


@pytest.mark.parametrize(
    ("provider", "fields", "message"),
    [
        ("azure", {"options": {}}, "model 'm': no API version: add options = { api_version"),
        ("azure", {"api_base": None}, "model 'm': api_base is None: say where the resource is"),
        ("azure", {"api_base": "x.azure.com"}, "model 'm': api_base is 'x.azure.com': say where the resource is"),
        ("azure", {"api_key_env": None}, 'no api_key_env: name the variable of the key, such as "AZURE_API_KEY"'),
        ("azure", {"api_key_env": "NOT_SET"}, "environment variable NOT_SET is not set"),
        ("azure", {"options": {"api_version": "1", "n": 2}}, "option 'n' is set by VineLM: leave it out"),
        ("vertex", {"options": {}}, "model 'm': no Google Cloud project: add options = { project"),
        ("vertex", {"api_key_env": "MY_KEY"}, "already has a project: leave out project and location"),
        ("vertex", {}, "model 'm': no Google credentials: set GOOGLE_APPLICATION_CREDENTIALS"),
        ("vertex", {"options": {"project": "p", "temprature": 1}}, "no Google credentials"),
    ],
)
def test_bad_settings(kept, monkeypatch, tmp_path, provider, fields, message):
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    url = fields.pop("api_base", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=message):
        kept(Client(url, **{"provider": provider, **PROVIDERS[provider].fields, **fields})).chat()

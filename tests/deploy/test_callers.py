"""The example service knows callers by their tokens, and by nothing that they say of themselves."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest

import vinelm
from vinelm.errors import ConfigError
from vinelm.requests.names import scoped
from vinelm.traces import ObservationStore

ROOT = Path(__file__).resolve().parents[2]
TOKENS = {"acme": "0123456789abcdef-acme", "mallory": "0123456789abcdef-mallory"}


def imported(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def service():
    for needed in ("starlette", "uvicorn", "httpx", "prometheus_client"):
        pytest.importorskip(needed)
    yield imported("service_of_callers", ROOT / "deploy" / "service.py")
    del sys.modules["service_of_callers"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The example application, profiled and estimated."""
    folder = tmp_path_factory.mktemp("service")
    shutil.copytree(ROOT / "docs" / "examples", folder, dirs_exist_ok=True)
    workflow = imported("my_app_of_callers", folder / "my_app.py").workflow
    vinelm.profile(workflow, folder / "models.toml", folder / "my-app.db", budget_calls=60)
    vinelm.save_trie(folder / "my-app.vine", vinelm.estimate(folder / "my-app.db", max_error=None))
    yield folder, workflow.requests[0].id
    del sys.modules["my_app_of_callers"]


@pytest.fixture
def client(service, home, tmp_path, monkeypatch):
    """A function that posts as a tenant, and the service that answers."""
    from starlette.testclient import TestClient

    folder, data_id = home
    (tmp_path / "tokens.toml").write_text("".join(f'{name} = "{token}"\n' for name, token in TOKENS.items()))
    monkeypatch.setattr(service, "Prometheus", lambda: None)
    monkeypatch.setattr("vinelm.VineLM.observe", lambda *_: None)

    def serving(*, tokens=True):
        words = ["my_app_of_callers:workflow", "--models", str(folder / "models.toml"), "--trie", str(folder / "my-app.vine")]
        words += ["--evidence", str(tmp_path / "served.db"), *(["--tokens", str(tmp_path / "tokens.toml")] if tokens else [])]
        made = service.Service(service.parser().parse_args(words))
        web = TestClient(service.application(made), raise_server_exceptions=False)

        def post(path, body, token=None):
            headers = {} if token is None else {"Authorization": f"Bearer {TOKENS.get(token, token)}"}
            content = body if isinstance(body, bytes) else json.dumps(body)
            return web.post(path, content=content, headers=headers)

        return post, made

    return serving, data_id


def test_ids_and_words_of_tenants_are_apart_and_nobody_is_known_by_the_body(client, tmp_path):
    serving, data_id = client
    post, made = serving()
    for token in TOKENS:
        assert post("/ask", {"id": "r1", "data_id": data_id}, token).status_code == 200
    assert post("/ask", {"id": "r2", "data_id": data_id}, "acme").status_code == 200
    told = post("/ask", {"id": "r3", "data_id": data_id, "tenant": "acme"}, "mallory")
    assert (told.status_code, told.json()["error"].split(":")[0]) == (400, "tenant is not taken from the body")
    for token in (None, "", "0123456789abcdef-acm", "0123456789abcdef-acmee", "x" * 10_000):
        assert post("/ask", {"data_id": data_id}, token).status_code == 401
        assert post("/feedback", {"id": "r1", "success": False}, token).status_code == 401
    for name in ("r1", "r2"):
        assert post("/feedback", {"id": name, "success": True}, "acme").status_code == 200
    for forged in ("r1", "r2", scoped("r2", "acme"), "acme/r2"):
        post("/feedback", {"id": forged, "success": False}, "mallory")
    made.vine.close()
    with ObservationStore.open(tmp_path / "served.db") as store:
        last = {row.request_id: row.success for row in store.observations() if row.failure is None}
    assert last == {scoped("r1", "acme"): True, scoped("r2", "acme"): True, scoped("r1", "mallory"): False}


def test_conversations_of_tenants_with_one_id_are_two_threads(client):
    serving, data_id = client
    post, made = serving()
    threads, invoke = [], made.app.invoke

    class Seen:
        def invoke(self, inputs, config, **more):
            threads.append(config["configurable"])
            return invoke(inputs, config, **more)

    made.app = Seen()
    for token, name in (("acme", "chat"), ("mallory", "chat"), ("mallory", scoped("chat", "acme")), ("acme", "chat")):
        assert post("/ask", {"data_id": data_id, "conversation": name}, token).status_code == 200
    first, second, third, again = [one["thread_id"] for one in threads]
    assert first == again
    assert len({first, second, third}) == 3
    assert [one["tenant"] for one in threads] == ["acme", "mallory", "mallory", "acme"]
    for _ in range(2):
        post("/ask", {"data_id": data_id}, "acme")
    assert threads[-1]["thread_id"] != threads[-2]["thread_id"]  # what nobody calls a conversation is none


ODD = [
    b'{"id": "r1", "success": null}', b'{"id": "r1", "success": []}', b'{"id": "r1", "success": [true]}', b'{"id": "r1"}',
    b'{"id": "r1", "success": NaN}', b'{"id": "r1", "success": Infinity}', b'{"id": "r1", "success": {"a": 1}}',
    b'{"id": "r1", "success": "yes"}', b'{"id": "r1", "success": -1}', b'{"id": null, "success": true}', b'{"success": true}',
    b'{"id": ["r1"], "success": true}', b'{"id": {}, "success": true}', b'{"id": "\\ud800", "success": true}', b"null", b"[]",
    b'{"id": "r1", "success": 1' + b"0" * 400 + b"}", b'{"id": "r1", "success": 1' + b"0" * 5000 + b"}", b"", b"\xff", b"1",
]  # fmt: skip


@pytest.mark.parametrize("body", ODD, ids=lambda body: repr(body)[:40])
def test_odd_feedback_is_a_bad_request_in_one_line(client, body):
    serving, _ = client
    post, _ = serving()
    told = post("/feedback", body, "acme")
    assert told.status_code == 400
    assert "\n" not in told.json()["error"]


@pytest.mark.parametrize("field", ["objective", "id", "conversation", "data_id"])
@pytest.mark.parametrize("value", [5, [], {"a": []}, True, "\ud800"], ids=repr)
def test_an_odd_request_is_a_bad_request_in_one_line(client, field, value):
    serving, data_id = client
    post, _ = serving()
    told = post("/ask", {"data_id": data_id, field: value}, "acme")
    assert told.status_code == 400
    assert "\n" not in told.json()["error"]


def test_without_tokens_nobody_is_known_and_feedback_is_refused(client):
    serving, data_id = client
    post, _ = serving(tokens=False)
    assert post("/ask", {"data_id": data_id}).status_code == 200
    assert post("/ask", {"data_id": data_id, "tenant": "acme"}).status_code == 400
    told = post("/feedback", {"id": "r1", "success": True})
    assert (told.status_code, "--tokens" in told.json()["error"]) == (401, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('acme = "short"', "'acme' needs a token of at least 16"),
        ('"" = "0123456789abcdef"', "needs a token"),
        ("acme = 5", "'acme' needs a token"),
        ('acme = "0123456789abcdef"\nb = "0123456789abcdef"', "has the token of another one"),
        ("acme = 0123456789abcdef-secret", "cannot read the tokens: TOMLDecodeError"),
    ],
)
def test_bad_tokens_are_refused_in_one_line_without_the_token(service, tmp_path, text, said):
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        service.Tenants(tmp_path / "t.toml")
    assert said in str(caught.value)
    assert "abcdef" not in str(caught.value)


def test_a_tenant_may_have_several_tokens(service, tmp_path):
    (tmp_path / "t.toml").write_text('acme = ["0123456789abcdef", "0123456789abcdeX"]')
    tenants = service.Tenants(tmp_path / "t.toml")
    assert {tenants.of("Bearer 0123456789abcdef"), tenants.of("bearer  0123456789abcdeX ")} == {"acme"}
    for header in ("", "Basic 0123456789abcdef", "0123456789abcdef", "Bearer 0123456789abcdeY", "Bearer"):
        with pytest.raises(service.UnknownCaller):
            tenants.of(header)


@pytest.mark.parametrize("cap", ["acme", "acme=", "acme=x", "bob=5", "=5"])
def test_a_cap_that_is_nobodys_is_refused(service, tmp_path, cap):
    (tmp_path / "t.toml").write_text('acme = "0123456789abcdef"')
    tenants = service.Tenants(tmp_path / "t.toml")
    options = service.parser().parse_args(["w:w", "--models=m", "--trie=t", "--fleet=redis://h", "--daily-usd", cap])
    with pytest.raises(ConfigError, match="--daily-usd"):
        service.fleet_config(options, tenants)


def test_an_invented_tenant_has_no_money_of_its_own(service):
    """Whoever asks without a token is the same one: `*` is one cap for all of them."""
    nobody = service.Tenants(None)
    assert {nobody.of(""), nobody.of("Bearer invented-0001"), nobody.of("Bearer invented-0002")} == {""}

"""`vinelm check --models` against a real server on loopback: what it sends, what it says, what it finds wrong."""

import asyncio
import json
from datetime import date, timedelta

import pytest
from kit.wire.openai_format import answering, problem
from kit.wire.server import WireServer

from vinelm.cli.main import main

CANARY = "sk-canary-doctor-1"
TODAY = date.today().isoformat()
PRICE = f'price = {{ input = 1.0, output = 10.0, source = "a test", as_of = {TODAY} }}'
ENTRY = """
[[model]]
name = "{name}"
provider = "openai"
model = "{name}-1"
engine = "e-{name}"
api_base = "{url}"
api_key_env = "ACME_API_KEY"
timeout_s = 5
{price}
"""


@pytest.fixture(scope="module")
def wire():
    server = WireServer()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACME_API_KEY", CANARY)
    monkeypatch.setenv("COLUMNS", "110")
    return tmp_path


def catalog(*entries, more=""):
    with open("models.toml", "w", encoding="utf-8") as file:
        file.write("".join(entries) + more)


def entry(wire, name="small", price=PRICE, url=None):
    return ENTRY.format(name=name, url=url or wire.url, price=price)


def serving(context=4096, *, pause_s=0.0, pieces=("one, ", "two, ", "three"), **how):
    """Lists its models, and answers."""

    async def reply(asked, out):
        if asked.path.endswith("/models"):
            listed = {"id": "small-1", "object": "model", "created": 1, "owned_by": "me", "max_model_len": context}
            return await out.whole({"object": "list", "data": [listed]})
        return await answering(*pieces, **how)(asked, out)

    return reply


def asked_in_json(capsys, *more):
    code = main(["check", "--models", "models.toml", "--json", *more])
    out = capsys.readouterr()
    assert CANARY not in out.out + out.err
    return code, json.loads(out.out)


def test_without_yes_nothing_is_sent(wire, capsys):
    wire.answers(serving())
    catalog(entry(wire), more="[backend.openai]\nlimits = { e-small = { requests_per_min = 60 } }\n")
    code, said = asked_in_json(capsys)
    assert (code, wire.asked) == (0, [])
    assert (said["is_ok"], said["is_called"], said["spent_usd"], said["problems"]) == (True, False, 0, [])
    (model,) = said["models"]
    assert model["price"] == {
        "input": 1.0, "output": 10.0, "cached": None, "call": 0.0, "source": "a test", "as_of": TODAY, "price_id": None,
    }  # fmt: skip
    assert model["limits"] == {"requests_per_min": 60}
    assert model["is_reached"] is None
    assert 0 < model["upper_bound_usd"] < 0.01


def test_one_call_to_each_model(wire, capsys):
    wire.answers(serving())
    catalog(entry(wire), entry(wire, "other"))
    code, said = asked_in_json(capsys, "--yes")
    first, second = said["models"]
    assert code == 0
    calls = [asked.json for asked in wire.asked if asked.path.endswith("completions")]
    assert [(call["model"], call["max_tokens"]) for call in calls] == [("small-1", 128), ("other-1", 128)]
    assert (first["is_reached"], first["context_tokens"], second["context_tokens"]) == (True, 4096, None)
    assert (first["tokens_in"], first["tokens_out"], first["failure"]) == (20, 7, None)
    assert 0 <= first["ttft_s"] <= first["latency_s"]
    assert first["tokens_per_s"] > 0
    assert said["spent_usd"] == first["cost_usd"] + second["cost_usd"] <= first["upper_bound_usd"] + second["upper_bound_usd"]


def test_tables_for_people(wire, capsys):
    wire.answers(serving())
    catalog(entry(wire))
    assert main(["check", "--models", "models.toml"]) == 0
    assert "Nothing was sent. Add --yes to call each model once, for at most $0.00" in capsys.readouterr().out
    assert main(["check", "--models", "models.toml", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "answers" in said
    assert "4,096" in said
    assert "Spent $0.000" in said
    assert "problem" not in said


def refusing(status, code=None):
    async def reply(asked, out):
        await out.whole(problem(code), status)

    return reply


def silent():
    async def reply(asked, out):
        await asyncio.sleep(30)

    return reply


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (
            refusing(401, "invalid_api_key"),
            "auth: the server answered HTTP 401 (invalid_api_key): is the key in api_key_env right",
        ),
        (
            refusing(404, "model_not_found"),
            "malformed: the server answered HTTP 404 (model_not_found): does it have that model",
        ),
        (refusing(503), "server: the server answered HTTP 503"),
        (refusing(429), "rate_limit: the server answered HTTP 429"),
    ],
)
def test_what_does_not_answer_has_to_be_mended(wire, capsys, reply, says):
    wire.answers(reply)
    catalog(entry(wire))
    code, said = asked_in_json(capsys, "--yes")
    assert (code, said["is_ok"], said["models"][0]["is_reached"]) == (1, False, False)
    assert said["models"][0]["problems"][0].startswith(says)
    assert len(wire.asked) == 1  # not repeated


def test_nobody_listens_and_too_slow(wire, capsys):
    wire.answers(silent())
    slow = entry(wire, "slow").replace("timeout_s = 5", "timeout_s = 0.2")
    catalog(entry(wire, url="http://127.0.0.1:9/v1"), slow)
    code, said = asked_in_json(capsys, "--yes")
    assert code == 1
    assert [model["problems"] for model in said["models"]] == [
        ["server: the connection failed or broke off: check that http://127.0.0.1:9/v1 is running"],
        ["timeout: no end after 0.2 s"],
    ]


@pytest.mark.parametrize(
    ("how", "note"),
    [
        ({"finish_reason": "length"}, None),
        ({"pieces": (), "finish_reason": "stop"}, "wrote no text within 128 tokens"),
        ({"usage": None}, "the server reports no token counts"),
    ],
)
def test_a_beginning_is_enough(wire, capsys, how, note):
    wire.answers(serving(**how))
    catalog(entry(wire))
    code, said = asked_in_json(capsys, "--yes")
    assert (code, said["models"][0]["is_reached"]) == (0, True)
    assert [text.startswith(str(note)) for text in said["models"][0]["notes"]] == ([True] if note else [])


def test_an_answer_that_fills_the_context(wire, capsys):
    wire.answers(serving(context=1024))
    catalog(entry(wire))
    code, said = asked_in_json(capsys, "--yes")
    assert code == 1
    assert said["models"][0]["problems"] == ["max_tokens = 1024 leaves no room for a prompt in 1024 tokens: lower it"]


WRONG = [
    (lambda text: text.replace(PRICE, ""), "models.toml: model 'small': no price known for 'openai/small-1': add price = "),
    (lambda text: text.replace(PRICE, 'price_id = "nobody/knows"'), "no price known for 'nobody/knows'"),
    (lambda text: text.replace("ACME_API_KEY", "NOT_SET_KEY"), "environment variable NOT_SET_KEY is not set"),
    (lambda text: text.replace('"openai"', '"opnai"'), "unknown provider 'opnai' (did you mean 'openai'?): known are"),
    (lambda text: text + "[backend.openai]\nlimits = { f = { concurrency = 2 } }\n", "engine 'f', which no model has"),
    (lambda text: text + "[backend.openai]\nlimits = { e-small = { rpm = 2 } }\n", "'e-small': unknown key 'rpm'"),
    (lambda text: text + "[backend.bedrock]\nstream = true\n", "[backend.bedrock] has no effect"),
    (lambda text: text + text, "the catalog names 'small' twice"),
    (lambda text: text + 'options = { n = 2 }\n', "option 'n' is set by VineLM: leave it out"),
    (lambda text: text.replace("http://", ""), "it must start with http:// or https://"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says"), WRONG)
def test_what_can_be_seen_without_a_call(wire, capsys, change, says):
    catalog(change(entry(wire)))
    code, said = asked_in_json(capsys)
    problems = said["problems"] + [problem for model in said["models"] for problem in model["problems"]]
    assert code == 1
    assert any(says in text for text in problems), problems
    assert all("\n" not in text for text in problems)


def test_one_broken_entry_does_not_hide_the_others(wire, capsys):
    wire.answers(serving())
    catalog(entry(wire, "broken", price=""), entry(wire))
    assert main(["check", "--models", "models.toml", "--yes"]) == 1
    said = capsys.readouterr().out
    assert "problem  models.toml: model 'broken': no price" in said
    assert "answers" in said


def test_an_old_price_is_a_note(wire, capsys):
    catalog(entry(wire, price=PRICE.replace(TODAY, (date.today() - timedelta(days=91)).isoformat())))
    code, said = asked_in_json(capsys)
    (note,) = said["models"][0]["notes"]
    assert code == 0
    assert note == "its price was read 91 days ago: compare it with a test, and give it with today's date"


def test_simulated_models_have_nobody_to_call(capsys):
    catalog(f'[[model]]\nname = "sim"\nprovider = "simulated"\nmodel = "sonnet"\n{PRICE}\n')
    code, said = asked_in_json(capsys, "--yes")
    assert (code, said["models"][0]["notes"]) == (0, ["simulated: answers from the workflow's requests, no server is called"])


def test_a_file_that_is_no_catalog(capsys):
    catalog("[[model]")
    assert main(["check", "--models", "models.toml"]) == 2
    assert "not valid TOML" in capsys.readouterr().err

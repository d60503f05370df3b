"""`vinelm profile --batch-prices`: what it forecasts, what it refuses, and a run on a provider of the test's own."""

import json
import sys

import pytest
from kit.servers.batch_provider import BatchProvider

from vinelm.cli.main import main

MODELS = """
[[model]]
name = "m0"
provider = "openai"
model_id = "model-m0"
api_base = "{url}/v1"
api_key_env = "BATCH_KEY"
engine = "e"
price = {{ input = 2.0, output = 8.0, source = "a test", as_of = 2026-01-01 }}
max_tokens = 64

[backend.openai]
stream = false
batches = {batches}
"""
APP = """
from kit.toys.profiling import one_stage, generate
from vinelm import Stage, Template, Workflow, Request
workflow = Workflow(
    name="flat", template=Template((Stage("generate", ("m0",)),)), build=one_stage(generate), score=lambda *_: True,
    requests=[Request(f"q{k}", {"question": f"number {k}", "label": k}) for k in range(6)], labels=("label",),
)
"""


@pytest.fixture
def provider(tmp_path, monkeypatch):
    made = BatchProvider(lambda model, prompt: "right")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("BATCH_KEY", "sk-batch")
    (tmp_path / "flat_app.py").write_text(APP)
    (tmp_path / "models.toml").write_text(MODELS.format(url=made.url, batches="true"))
    yield made
    made.stop()
    sys.modules.pop("flat_app", None)


LINE = ["profile", "flat_app:workflow", "--models", "models.toml", "--store", "s.db", "--budget-usd", "1", "--coverage", "1"]


def test_a_forecast_names_waves_and_dollars(provider, tmp_path, capsys):
    assert main([*LINE, "--batch-prices", "--wait", "90m", "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["batches"]
    assert (found["waves"], found["wait_s"], found["timed_cells"]) == (1, 5400.0, 5)
    assert found["ordinary_usd"] * 0.5 < found["cost_usd"] < found["ordinary_usd"]
    assert main([*LINE, "--batch-prices", "--dry-run"]) == 0
    assert "1 waves or more, each within 24 h" in " ".join(capsys.readouterr().out.split())
    assert not (tmp_path / "s.db").exists()
    assert not provider.bought


def test_a_run_and_its_estimate(provider, capsys):
    assert main([*LINE, "--batch-prices", "--quiet"]) == 0
    assert (sum(provider.bought.values()), sum(provider.at_once.values())) == (1, 5)
    assert main(["estimate", "s.db", "--no-check"]) == 0
    assert "Seconds come from 5 of the 6 rows: of the others they are not known." in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--wait", "3h"], "--wait has no effect without --batch-prices"),
        (["--batch-prices", "--wait", "soon"], "--wait is 'soon': write hours"),
        (["--batch-prices", "--wait", "0s"], "more than 0 and at most 7 days"),
        (["--batch-prices", "--isolation", "process"], "leave --isolation and --engine out with --batch-prices"),
        (["--batch-prices", "--engine", "ray://auto"], "leave --isolation and --engine out with --batch-prices"),
        (["--batch-prices", "--unit-timeout-s", "9"], "timeout_s has no effect"),
        (["--batch-prices", "--store", "postgresql://nobody@127.0.0.1:1/none"], ""),
    ],
)
def test_what_makes_no_sense_is_one_line(provider, capsys, options, said):
    assert main([*LINE, *options]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not provider.bought


def test_an_engine_of_ones_own_is_one_line(provider, tmp_path, capsys):
    (tmp_path / "models.toml").write_text(MODELS.format(url=provider.url, batches="false"))
    assert main([*LINE, "--batch-prices"]) == 2
    error = capsys.readouterr().err
    assert "engine of your own" in error
    assert "leave --batch-prices out" in error
    assert error.count("\n") == 1

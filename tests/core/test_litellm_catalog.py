"""LiteLLM's own YAML, as its documentation writes it, loads without a change."""

import datetime
import os

import pytest

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError

CANARY = "sk-canary-litellm"
COSTS = "model_info: {input_cost_per_token: 0.0000025, output_cost_per_token: 1.0e-05, cache_read_input_token_cost: 1.25e-06}"
CONFIG = f"""
model_list:
  - model_name: gpt-4.1-mini          # a price of the bundled file
    litellm_params:
      model: openai/gpt-4.1-mini
      api_key: os.environ/MY_OPENAI_KEY
      rpm: 480
      tpm: 100000
      timeout: 300
      stream_timeout: 60
      temperature: 0.5
  - model_name: gpt-4o
    litellm_params: {{model: gpt-4o, max_tokens: 900, drop_params: true}}
    {COSTS}
  - model_name: gpt-4o                # LiteLLM balances between the two
    litellm_params:
      model: hosted_vllm/openai/gpt-oss-20b
      api_base: os.environ/VLLM_BASE
      api_key: none
    model_info: {{id: second, mode: chat, input_cost_per_token: 0, output_cost_per_token: 0}}
  - model_name: deepseek
    litellm_params:
      model: bedrock/converse/deepseek.v3.2
      aws_region_name: us-west-2
      aws_access_key_id: os.environ/AWS_ACCESS_KEY_ID
      aws_secret_access_key: os.environ/AWS_SECRET_ACCESS_KEY
  - model_name: flash
    litellm_params: {{model: gemini/gemini-2.5-flash, max_parallel_requests: 3}}
litellm_settings: {{drop_params: true, success_callback: ["langfuse"]}}
router_settings: {{routing_strategy: least-busy}}
general_settings: {{master_key: {CANARY}}}
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("VLLM_BASE", "http://gpu-1:8000/v1")
    monkeypatch.chdir(tmp_path)


def load(text):
    with open("config.yaml", "w", encoding="utf-8") as file:
        file.write(text)
    os.utime("config.yaml", (1_767_268_800, 1_767_268_800))  # 2026-01-01, noon
    return Catalog.from_file("config.yaml")


def test_a_config_loads_unchanged():
    catalog = load(CONFIG)
    assert list(catalog) == ["gpt-4.1-mini", "gpt-4o", "gpt-4o-2", "deepseek", "flash"]
    mini, gpt, local, deepseek, flash = catalog.models
    assert (mini.provider, mini.model_id, mini.api_base, mini.api_key_env) == ("openai", "gpt-4.1-mini", None, "MY_OPENAI_KEY")
    assert (mini.price_id, mini.timeout_s, mini.options) == ("openai/gpt-4.1-mini", 300.0, {"temperature": 0.5})
    assert (gpt.provider, gpt.model_id, gpt.max_tokens, gpt.api_key_env) == ("openai", "gpt-4o", 900, "OPENAI_API_KEY")
    assert (gpt.price.input, gpt.price.output, gpt.price.cached, gpt.options) == (2.5, 10.0, 1.25, {})
    assert (gpt.price.source, gpt.price.as_of) == ("model_info in config.yaml", datetime.date(2026, 1, 1))
    assert (local.model_id, local.api_base, local.api_key_env) == ("openai/gpt-oss-20b", "http://gpu-1:8000/v1", None)
    assert (local.price.input, local.price.output, local.engine) == (0.0, 0.0, "http://gpu-1:8000/v1")
    assert (deepseek.provider, deepseek.model_id, deepseek.options) == ("bedrock", "deepseek.v3.2", {"region": "us-west-2"})
    assert (flash.provider, flash.model_id, flash.api_key_env) == ("gemini", "gemini-2.5-flash", "GEMINI_API_KEY")
    assert {model.price_id for model in (deepseek, flash)} == {"bedrock/deepseek.v3.2", "gemini/gemini-2.5-flash"}
    assert catalog.backends == {
        "openai": {"limits": {"openai/gpt-4.1-mini": {"requests_per_min": 480, "tokens_per_min": 100000}}},
        "gemini": {"limits": {"gemini/flash": {"concurrency": 3}}},
    }
    assert mini.engine == "openai/gpt-4.1-mini"
    assert CANARY not in repr(catalog) + repr(catalog.to_dict())
    assert Catalog.from_dict(catalog.to_dict()) == catalog


def test_backends_take_it(monkeypatch):
    from vinelm.backends import create_backends

    catalog = load(CONFIG)
    ours = catalog.subset(("gpt-4.1-mini", "gpt-4o", "gpt-4o-2", "deepseek"))
    assert list(create_backends(Catalog(ours.models, {"openai": catalog.backends["openai"]}))) == ["openai", "bedrock"]


def one(params, info="", name="m"):
    return f"model_list:\n  - model_name: {name}\n    litellm_params: {{{params}}}\n    model_info: {{{info}}}\n"


PRICED = "input_cost_per_token: 1e-06, output_cost_per_token: 1e-06"
WRONG = [
    ("model_list: []", "config.yaml: has no model_list"),
    ("a: [", "config.yaml, line 1: not valid YAML"),
    ("model_list: [{model_name: x}]", "entry 1 of model_list has no litellm_params"),
    (one("model: azure/gpt-4o"), "model 'm': unknown LiteLLM provider in 'azure/gpt-4o': known are bedrock"),
    (one("model: claude-3"), "unknown LiteLLM provider in 'claude-3'"),
    (one("model: openai/*"), "'openai/\\*' stands for many models"),
    (one("api_base: http://x/v1"), "litellm_params has no model"),
    (one("model: openai/nobody-knows"), "no price known for 'openai/nobody-knows': add input_cost_per_token"),
    (one("model: openai/a", "input_cost_per_token: much, output_cost_per_token: 1"), "must be dollars"),
    (one("model: openai/a", "input_cost_per_token: -1, output_cost_per_token: 1"), "price.input"),
    (one(f"model: openai/a, api_key: {CANARY}", PRICED), "api_key holds the key itself"),
    (one("model: openai/a, api_key: none", PRICED), "api_key holds the key itself"),
    (one("model: hosted_vllm/a", PRICED), "no api_base: say where its server is"),
    (one("model: hosted_vllm/a, api_base: os.environ/NOT_SET", PRICED), "api_base: environment variable NOT_SET is not set"),
    (one(f"model: bedrock/a, aws_secret_access_key: {CANARY}", PRICED), "aws_secret_access_key is only read from the env"),
    (one(f"model: openai/a, extra_headers: {{Authorization: {CANARY}}}", PRICED), "holds a secret"),
    (one("model: openai/a, timeout: soon", PRICED), "timeout_s"),
]


@pytest.mark.parametrize(("text", "says"), WRONG)
def test_what_cannot_be_taken_over_is_one_line(text, says):
    with pytest.raises(ConfigError, match=says) as caught:
        load(text)
    assert "\n" not in str(caught.value)
    assert CANARY not in str(caught.value)


def test_a_default_key_is_sent_to_no_other_server():
    catalog = load(one("model: openai/a, api_base: 'http://elsewhere/v1'", PRICED))
    assert catalog["m"].api_key_env is None


def test_known_services_have_their_address():
    catalog = load(one("model: groq/llama-3.3-70b-versatile", PRICED))
    assert (catalog["m"].api_base, catalog["m"].api_key_env) == ("https://api.groq.com/openai/v1", "GROQ_API_KEY")


def test_doctor_reads_it_entry_by_entry(capsys):
    from vinelm.cli.main import main

    with open("config.yaml", "w", encoding="utf-8") as file:
        file.write(one("model: hosted_vllm/a, api_base: 'http://127.0.0.1:9/v1'", PRICED))
        file.write("  - {model_name: b, litellm_params: {model: azure/b}}\n")
    assert main(["doctor", "config.yaml"]) == 1
    said = capsys.readouterr().out
    assert "mend  config.yaml: model 'b': unknown LiteLLM provider" in said
    assert "ready" in said

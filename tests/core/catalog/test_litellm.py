"""LiteLLM's own YAML, as its documentation writes it, loads without a change."""

import datetime

import pytest

from vinelm.backends import create_backends
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
    return Catalog.from_file("config.yaml")


def test_a_config_loads_unchanged(caplog):
    catalog = load(CONFIG)
    left_out = (
        "litellm_settings.drop_params, litellm_settings.success_callback, router_settings.routing_strategy, general_settings, "
        "gpt-4.1-mini.stream_timeout, gpt-4o.drop_params"
    )
    assert caplog.messages == [f"config.yaml: has no effect here (see docs/fields.md#litellm-configyaml): {left_out}"]
    assert list(catalog) == ["gpt-4.1-mini", "gpt-4o", "gpt-4o-2", "deepseek", "flash"]
    mini, gpt, local, deepseek, flash = catalog.models
    assert (mini.provider, mini.model_id, mini.api_base, mini.api_key_env) == ("openai", "gpt-4.1-mini", None, "MY_OPENAI_KEY")
    assert (mini.price_id, mini.timeout_s, mini.options) == ("openai/gpt-4.1-mini", 300.0, {"temperature": 0.5})
    assert (gpt.provider, gpt.model_id, gpt.max_tokens, gpt.api_key_env) == ("openai", "gpt-4o", 900, "OPENAI_API_KEY")
    assert (gpt.price.input, gpt.price.output, gpt.price.cached, gpt.options) == (2.5, 10.0, 1.25, {})
    assert (gpt.price.source, gpt.price.as_of) == ("model_info in config.yaml", datetime.date.today())
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
    (one("model: sagemaker/a"), "model 'm': unknown LiteLLM provider in 'sagemaker/a': leave the entry out"),
    (one("model: mine"), "unknown LiteLLM provider in 'mine': .* provider = \"langchain\""),
    (one("model: vertex_ai/llama-x", PRICED), "of Vertex AI only Gemini and Claude models are called"),
    (one("model: azure/a", PRICED), "no api_base: add the URL of its server, or set AZURE_API_BASE"),
    (one("model: azure/a, api_base: 'https://x', api_version: v1", "base_model: gpt-x"), "no price known for 'gpt-x'"),
    (one(f"model: azure/a, azure_ad_token: {CANARY}", PRICED), "azure_ad_token is not supported: give the entry an api_key"),
    (one("model: bedrock/a, aws_role_name: r", PRICED), "aws_role_name is not supported"),
    (one(f"model: anthropic/claude-x, api_key: {CANARY}", PRICED), "api_key holds the key itself"),
    (one("model: vertex_ai/gemini-x, vertex_credentials: /k.json", PRICED), "set GOOGLE_APPLICATION_CREDENTIALS"),
    ("include: [more.yaml]\n" + one("model: openai/a", PRICED), "more.yaml: cannot read the catalog"),
    (one("model: openai/*"), "'openai/\\*' stands for many models"),
    (one("api_base: http://x/v1"), "litellm_params has no model"),
    (one("model: openai/nobody-knows"), "no price known for 'openai/nobody-knows': add input_cost_per_token"),
    (one("model: openai/a", "input_cost_per_token: much, output_cost_per_token: 1"), "must be dollars"),
    (one("model: openai/a", "input_cost_per_token: -1, output_cost_per_token: 1"), "must be dollars"),
    (one(f"model: openai/a, api_key: {CANARY}", PRICED), "api_key holds the key itself"),
    (one("model: openai/a, api_key: none", PRICED), "api_key holds the key itself"),
    (one("model: hosted_vllm/a", PRICED), "no api_base: add the URL of its server"),
    (one("model: hosted_vllm/a, api_base: os.environ/NOT_SET", PRICED), "api_base: environment variable NOT_SET is not set"),
    (one(f"model: bedrock/a, aws_secret_access_key: {CANARY}", PRICED), "aws_secret_access_key is only read from the env"),
    (one(f"model: openai/a, extra_headers: {{Authorization: {CANARY}}}", PRICED), "the header 'Authorization' cannot be sent"),
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


def test_azure_vertex_and_anthropic(monkeypatch):
    for name in ("AZURE_API_BASE", "AZURE_API_VERSION", "VERTEXAI_PROJECT", "VERTEXAI_LOCATION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_API_BASE", "https://mine.openai.azure.com")
    monkeypatch.setenv("VERTEXAI_LOCATION", "europe-west4")
    catalog = load(f"""
model_list:
  - model_name: deployed
    litellm_params:
      model: azure/my-mini
      api_base: https://res.openai.azure.com/
      api_key: os.environ/MY_AZURE_KEY
      api_version: "2025-01-01-preview"
      rpm: 10
    model_info: {{base_model: gpt-4.1-mini}}
  - model_name: series
    litellm_params: {{model: azure/o_series/my-o3, api_version: 2025-02-01}}
    model_info: {{{PRICED}}}
  - model_name: newer
    litellm_params: {{model: azure/my-mini, api_version: latest}}
    model_info: {{{PRICED}}}
  - model_name: vertex
    litellm_params: {{model: vertex_ai/gemini-2.5-flash, vertex_project: p-1, temperature: 0.1}}
    model_info: {{{PRICED}}}
  - model_name: claude
    litellm_params: {{model: claude-sonnet-x, api_key: os.environ/ANTHROPIC_API_KEY}}
    model_info: {{{PRICED}}}
router_settings: {{num_retries: 2, timeout: 30}}
litellm_settings: {{request_timeout: 60, num_retries: 9}}
""")
    deployed, series, newer, vertex, claude = catalog.models
    assert (deployed.provider, deployed.model_id, deployed.api_key_env) == ("azure", "my-mini", "MY_AZURE_KEY")
    assert (deployed.api_base, deployed.price_id) == ("https://res.openai.azure.com/", "azure/gpt-4.1-mini")
    assert deployed.options == {"api_version": "2025-01-01-preview"}
    assert (series.model_id, series.api_base, series.api_key_env) == ("my-o3", "https://mine.openai.azure.com", "AZURE_API_KEY")
    assert series.options == {"api_version": "2025-02-01"}
    assert (newer.provider, newer.api_base, newer.options) == ("openai", "https://mine.openai.azure.com/openai/v1", {})
    assert newer.api_key_env == "AZURE_API_KEY"
    assert (vertex.provider, vertex.model_id, vertex.api_key_env) == ("vertex", "gemini-2.5-flash", None)
    assert vertex.options == {"location": "europe-west4", "project": "p-1", "temperature": 0.1}
    assert (claude.provider, claude.model_id, claude.api_key_env) == ("anthropic", "claude-sonnet-x", "ANTHROPIC_API_KEY")
    assert {model.timeout_s for model in catalog.models} == {30.0}
    assert {name: table["max_retries"] for name, table in catalog.backends.items()} == dict.fromkeys(
        ("azure", "openai", "vertex", "anthropic"), 2
    )
    assert catalog.backends["azure"]["limits"] == {"azure/deployed": {"requests_per_min": 10}}
    assert list(create_backends(catalog)) == ["azure", "openai", "vertex", "anthropic"]


def test_rates_that_no_call_meets_are_neither_sent_nor_silent(caplog):
    unmet = "input_cost_per_token_priority: 9, search_context_cost_per_query: {low: 0.1}, output_cost_per_image: 3"
    catalog = load(one(f"model: openai/a, {unmet}, weight: 2, temperature: 0, cost_center: 7", PRICED))
    assert catalog["m"].options == {"temperature": 0}
    assert sorted(caplog.messages[0].partition(": m.")[2].split(", m.")) == [
        "cost_center", "input_cost_per_token_priority", "output_cost_per_image", "search_context_cost_per_query", "weight"
    ]  # fmt: skip


def test_nothing_is_said_where_everything_counts(caplog):
    load(one("model: openai/a, rpm: 5, timeout: 3, max_tokens: 10, top_p: 0.5", PRICED))
    assert caplog.messages == []


def test_doctor_reads_it_entry_by_entry(capsys):
    from vinelm.cli.main import main

    with open("config.yaml", "w", encoding="utf-8") as file:
        file.write(one("model: hosted_vllm/a, api_base: 'http://127.0.0.1:9/v1'", PRICED))
        file.write("  - {model_name: b, litellm_params: {model: sagemaker/b}}\n")
        file.write("router_settings: {routing_strategy: least-busy}\n")
    assert main(["check", "--models", "config.yaml"]) == 1
    said = capsys.readouterr().out
    assert "problem config.yaml: model 'b': unknown LiteLLM provider" in " ".join(said.split())
    assert "ready" in said
    note = "note config.yaml: has no effect here (see docs/fields.md#litellm-configyaml): router_settings.routing"
    assert note in " ".join(said.split())

"""The shapes of entries in LiteLLM configs that people publish, each with what becomes of it."""

import pytest

from vinelm.backends import create_backends
from vinelm.catalog import Catalog
from vinelm.catalog.loading import read_catalog_file
from vinelm.errors import ConfigError

AMBIENT = (
    "OPENAI_API_BASE", "AZURE_API_BASE", "AZURE_API_VERSION", "OLLAMA_API_BASE", "TOGETHER_API_KEY", "VLLM_BASE",
    "VERTEXAI_PROJECT", "VERTEXAI_LOCATION", "HOSTED_VLLM_API_KEY", "FRIENDLI_TOKEN", "ANTHROPIC_API_BASE",
)  # fmt: skip
PRICED = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in AMBIENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def read(*entries, name="config.yaml", **sections):
    import yaml

    listed = [
        {"model_name": entry.pop("as_name", f"m{number}"), "model_info": entry.pop("info", {}), "litellm_params": entry}
        for number, entry in enumerate(entries)
    ]
    with open(name, "w", encoding="utf-8") as file:
        yaml.safe_dump({"model_list": listed, **sections}, file)
    return read_catalog_file(name)


def model(**params):
    found = read(params)
    assert found.errors == ()
    (one,) = found.models
    return one


SERVICES = [
    ("groq/llama-3.3-70b-versatile", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    ("together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo", "https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    ("mistral/mistral-small-latest", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    ("deepseek/deepseek-chat", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    ("openrouter/meta-llama/llama-3.3-70b-instruct", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    ("fireworks_ai/accounts/fireworks/models/kimi-k2p5", "https://api.fireworks.ai/inference/v1", "FIREWORKS_AI_API_KEY"),
    ("xai/grok-4", "https://api.x.ai/v1", "XAI_API_KEY"),
    ("perplexity/sonar-pro", "https://api.perplexity.ai", "PERPLEXITYAI_API_KEY"),
    ("cerebras/gpt-oss-120b", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    ("cohere/command-r", "https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
    ("moonshot/kimi-k2-0905-preview", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    ("command-r", "https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY"),
]


@pytest.mark.parametrize(("name", "base", "key"), SERVICES)
def test_services_have_their_address_their_key_and_a_list_price(name, base, key):
    made = model(model=name)
    assert (made.provider, made.api_base, made.api_key_env) == ("openai", base, key)
    assert made.price.source.startswith("genai-prices")
    assert 0 < made.price.input <= made.price.output
    assert made.price_id.split("/", 1)[1] == made.model_id


@pytest.mark.parametrize(
    ("name", "more", "model_id", "base"),
    [
        ("nvidia_nim/meta/llama-x", {}, "meta/llama-x", "https://integrate.api.nvidia.com/v1"),
        ("huggingface/together/deepseek-ai/DeepSeek-R1", {}, "deepseek-ai/DeepSeek-R1:together", "https://router.huggingface.co/v1"),
        ("huggingface/tgi", {"api_base": "https://x.endpoints.example"}, "tgi", "https://x.endpoints.example/v1"),
        ("github/gpt-x", {}, "gpt-x", "https://models.inference.ai.azure.com"),
        ("databricks/dbrx", {"api_base": "https://w.example/serving-endpoints"}, "dbrx", "https://w.example/serving-endpoints"),
        ("azure_ai/x", {"api_base": "https://r.services.ai.azure.com/models"}, "x", "https://r.services.ai.azure.com/openai/v1"),
        ("azure_ai/x", {"api_base": "https://r.models.ai.azure.com"}, "x", "https://r.models.ai.azure.com/v1"),
        ("fireworks_ai/x", {}, "accounts/fireworks/models/x", "https://api.fireworks.ai/inference/v1"),
        ("openai/x", {"api_base": "https://g.example/v1/chat/completions"}, "x", "https://g.example/v1"),
        ("litellm_proxy/x", {"api_base": "https://proxy.example"}, "x", "https://proxy.example"),
    ],
)  # fmt: skip
def test_other_servers_of_openais_protocol(name, more, model_id, base):
    made = model(model=name, **more, info=PRICED)
    assert (made.provider, made.model_id, made.api_base) == ("openai", model_id, base)
    assert (made.price.input, made.price.output, made.price_id) == (1.0, 2.0, None)


@pytest.mark.parametrize(
    ("params", "base"),
    [
        ({"model": "ollama/llama3:8b"}, "http://localhost:11434/v1"),
        ({"model": "ollama_chat/llama3", "api_base": "http://box:11434/"}, "http://box:11434/v1"),
        ({"model": "hosted_vllm/org/x", "api_base": "http://gpu-1:8000/v1", "api_key": "none"}, "http://gpu-1:8000/v1"),
        ({"model": "lm_studio/x", "api_base": "http://localhost:1234/v1"}, "http://localhost:1234/v1"),
        ({"model": "openai/org/x", "api_base": "http://vllm.ns.svc.cluster.local:8000/v1"}, "http://vllm.ns.svc.cluster.local:8000/v1"),
        ({"model": "openai/org/x", "api_base": "http://10.0.0.7:8000/v1", "api_key": "EMPTY"}, "http://10.0.0.7:8000/v1"),
        ({"model": "openai/x", "api_base": "http://127.0.0.1:8011/v1", "api_key": "omx"}, "http://127.0.0.1:8011/v1"),
        ({"model": "openai/x", "api_base": "https://llm.example/v1", "api_key": "sk-no-key-required"}, "https://llm.example/v1"),
    ],
)  # fmt: skip
def test_servers_of_ones_own_send_no_bill_and_a_note_says_so(params, base):
    found = read(params)
    (made,) = found.models
    assert (made.provider, made.api_base, made.api_key_env) == ("openai", base, None)
    assert (made.price.input, made.price.output, made.price.source) == (0.0, 0.0, "no bill: a server of your own")
    assert any("config.yaml: counted as $0, as servers of your own: m0: for other prices" in note for note in found.notes)


def test_a_gateway_at_home_that_sells_known_models_is_not_free():
    found = read({"model": "openai/gpt-4.1-mini", "api_base": "http://localhost:4000", "api_key": "sk-1234"})
    assert (found.models[0].price.input, found.models[0].price_id) == (0.4, "openai/gpt-4.1-mini")
    assert found.models[0].price.source.startswith("assumed from the name: ")
    assert any("prices assumed from the models' names: m0" in note for note in found.notes)


def test_free_models_of_openrouter():
    made = model(
        model="openai/org/nobody-knows:free", api_base="https://openrouter.ai/api/v1", api_key="os.environ/OPENROUTER_API_KEY"
    )
    assert (made.price.input, made.price.source) == (0.0, "free of charge: OpenRouter's :free models")


def test_an_address_decides_the_price():
    made = model(model="openai/deepseek/deepseek-v3.2", api_base="https://openrouter.ai/api/v1", api_key="os.environ/K")
    assert made.price_id == "openrouter/deepseek/deepseek-v3.2"


def test_azure():
    known = model(
        model="azure/my-name",
        api_base="https://r.openai.azure.com",
        api_version="2024-10-21",
        info={"base_model": "azure/gpt-4o"},
    )
    assert (known.provider, known.price.input, known.options) == ("azure", 2.5, {"api_version": "2024-10-21"})
    named = read({"as_name": "gpt-4o", "model": "azure/gpt-4o-eu", "api_base": "https://r.openai.azure.com"})
    assert (named.models[0].price.input, named.models[0].options) == (2.5, {"api_version": "2025-02-01-preview"})
    assert any("prices assumed from the models' names: gpt-4o" in note for note in named.notes)
    unknown = read({"as_name": "mine", "model": "azure/mine", "api_base": "https://r.openai.azure.com"})
    assert "no price known for 'azure/mine': add input_cost_per_token" in str(unknown.errors[0])
    claude = model(model="azure_ai/claude-sonnet-4-5", api_base="https://r.services.ai.azure.com/models")
    assert (claude.provider, claude.api_base) == ("anthropic", "https://r.services.ai.azure.com/anthropic")


def test_amazon_and_google():
    there = model(model="bedrock/us-east-1/anthropic.claude-3-5-sonnet-20241022-v2:0")
    assert (there.provider, there.model_id) == ("bedrock", "anthropic.claude-3-5-sonnet-20241022-v2:0")
    assert there.options == {"region": "us-east-1"}
    profile = model(model="bedrock/converse/us.anthropic.claude-sonnet-4-20250514-v1:0", aws_region_name="us-west-2")
    assert (profile.model_id, profile.options) == ("us.anthropic.claude-sonnet-4-20250514-v1:0", {"region": "us-west-2"})
    bare = model(model="gemini-2.5-flash", vertex_project="p", vertex_location="europe-west4")
    assert (bare.provider, bare.options) == ("vertex", {"project": "p", "location": "europe-west4"})
    claude = model(model="vertex_ai/claude-sonnet-4-5@20250929", vertex_project="p", vertex_location="eu")
    assert (claude.provider, claude.model_id) == ("langchain", "google_anthropic_vertex:claude-sonnet-4-5@20250929")
    full = "https://aiplatform.eu.rep.googleapis.com/v1/projects/p/locations/eu/publishers/google/models/gemini-2.5-flash"
    assert model(model="gemini-2.5-flash", vertex_project="p", api_base=full).api_base is None


def test_anthropic_is_called_by_our_own_client():
    made = model(model="anthropic/claude-sonnet-4-5-20250929", api_key="os.environ/ANTHROPIC_API_KEY")
    assert (made.provider, made.model_id, made.max_tokens) == ("anthropic", "claude-sonnet-4-5-20250929", 4096)
    assert (made.price.cache_write, made.price.cache_write_1h) == (3.75, 6.0)
    assert list(create_backends(Catalog([made]))) == ["anthropic"]


def budget(tokens):
    return {"type": "enabled", "budget_tokens": tokens}


ADAPTIVE = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}


@pytest.mark.parametrize(
    ("name", "more", "options"),
    [
        ("gemini/gemini-2.5-flash", {"reasoning_effort": "low"}, {"thinking_config": {"thinking_budget": 1024}}),
        ("gemini/gemini-2.5-flash", {"thinking": budget(9)}, {"thinking_config": {"thinking_budget": 9}}),
        ("gemini/gemini-3-flash-preview", {"reasoning_effort": "high"}, {"thinking_config": {"thinking_level": "high"}}),
        ("anthropic/claude-sonnet-4-5", {"reasoning_effort": "medium"}, {"thinking": budget(2048)}),
        ("anthropic/claude-sonnet-5", {"reasoning_effort": "low"}, ADAPTIVE),
        ("openai/gpt-5", {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ("openrouter/openai/gpt-4o", {"extra_body": {"provider": {"ignore": ["x"]}}}, {"provider": {"ignore": ["x"]}}),
        ("openai/gpt-4o", {"extra_headers": {"X-Title": "mine", "HTTP-Referer": "https://x.example"}}, {}),
    ],
)  # fmt: skip
def test_parameters_in_the_words_of_the_provider(name, more, options):
    made = model(model=name, **more, info=PRICED)
    assert made.options == options
    create_backends(Catalog([made]))


OTHERS = [
    ({"model": "openai/text-embedding-3-small"}, "embedding"),
    ({"model": "azure/my-own", "info": {"mode": "embedding"}}, "embedding"),
    ({"model": "ollama/nomic-embed-text"}, "embedding"),
    ({"model": "hosted_vllm/BAAI/bge-m3"}, "embedding"),
    ({"model": "openai/dall-e-3"}, "image"),
    ({"model": "gemini/imagen-4", "info": {"mode": "image_generation"}}, "image"),
    ({"model": "openai/whisper-1"}, "audio"),
    ({"model": "openai/tts-1"}, "audio"),
    ({"model": "cohere/rerank-english-v3.0"}, "rerank"),
    ({"model": "openai/omni-moderation-latest"}, "moderation"),
    ({"model": "text-completion-openai/gpt-3.5-turbo-instruct"}, "text completion"),
]


def test_entries_that_are_no_chat_models_are_one_line():
    found = read({"as_name": "chat", "model": "openai/gpt-4o"}, *[{"as_name": kind, **params} for params, kind in OTHERS])
    assert [one.name for one in found.models] == ["chat"]
    assert (found.errors, len(found.skipped)) == ((), len(OTHERS))
    (note,) = found.notes
    counts = "2 audio, 4 embedding, 2 image, 1 moderation, 1 rerank, 1 text completion"
    assert note.startswith(f"config.yaml: skipped, because they are no chat models ({counts}): embedding, ")


def test_a_mode_wins_over_a_name():
    assert model(model="openai/my-embedding-chat", info={"mode": "chat", **PRICED}).model_id == "my-embedding-chat"


def test_nothing_but_embeddings_is_an_error():
    with pytest.raises(ConfigError, match=r"model_list has no chat model: 1 embedding"):
        read({"model": "openai/text-embedding-3-small"})


def test_deployments_of_one_name():
    one = {"as_name": "gpt", "model": "azure/gpt-4o", "api_base": "https://eu.openai.azure.com", "api_key": "os.environ/EU_KEY"}
    found = read(
        {**one},
        {**one, "api_key": "os.environ/EU_KEY_2", "rpm": 5},
        {**one, "api_base": "https://us.openai.azure.com"},
        {**one},
    )
    assert [(each.name, each.api_base) for each in found.models] == [
        ("gpt", "https://eu.openai.azure.com"),
        ("gpt-2", "https://us.openai.azure.com"),
    ]
    assert found.copies == ("gpt", "gpt")
    assert any(
        "differ from another deployment of that name only in key or limits: gpt, gpt: VineLM needs" in n for n in found.notes
    )


def test_a_second_deployment_never_takes_the_name_of_another_entry():
    one = {"model": "openai/gpt-4o"}
    found = read({**one, "as_name": "a-2"}, {**one, "as_name": "a"}, {"model": "openai/gpt-4.1", "as_name": "a"})
    assert [each.name for each in found.models] == ["a-2", "a", "a-2-2"]


def test_routing_is_understood():
    found = read(
        {"as_name": "gpt", "model": "openai/gpt-4o"},
        router_settings={
            "model_group_alias": {"fast": "gpt", "slow": {"model": "gpt", "hidden": True}},
            "fallbacks": [{"gpt": ["x"]}],
        },
        litellm_settings={"context_window_fallbacks": [{"gpt": ["x"]}], "num_retries": 3},
        general_settings={"master_key": "os.environ/MASTER"},
    )
    assert found.notes == (
        "config.yaml: fallbacks: VineLM itself chooses another model when one fails, among all models of the plan",
        "config.yaml: 'fast' is only another name of 'gpt': use 'gpt'",
        "config.yaml: 'slow' is only another name of 'gpt': use 'gpt'",
        "config.yaml: has no effect here (see docs/fields.md#litellm-configyaml): general_settings",
    )
    assert found.backends == {"openai": {"max_retries": 3}}


def test_what_many_entries_have_is_counted():
    found = read(
        *[{"model": f"openai/gpt-4.1{size}", "stream_timeout": 5} for size in ("", "-mini", "-nano")],
        {"model": "gpt-4o", "stream_timeout": 5},
    )
    [note] = found.notes
    assert note == "config.yaml: has no effect here (see docs/fields.md#litellm-configyaml): stream_timeout of 4 entries"


def test_included_files():
    read({"as_name": "b", "model": "openai/gpt-4o"}, name="more.yaml")
    found = read({"as_name": "a", "model": "openai/gpt-4.1"}, include=["more.yaml"])
    assert [one.name for one in found.models] == ["a", "b"]


@pytest.mark.parametrize("written", ["os.environ/MINE", "${MINE}", "$MINE"])
def test_references_to_the_environment(monkeypatch, written):
    monkeypatch.setenv("MINE", "https://mine.example/v1")
    made = model(model="openai/x", api_base=written, api_key=written, info=PRICED)
    assert (made.api_base, made.api_key_env) == ("https://mine.example/v1", "MINE")


def test_the_variable_of_a_key_is_the_one_that_is_set(monkeypatch):
    monkeypatch.delenv("TOGETHERAI_API_KEY", raising=False)
    monkeypatch.setenv("TOGETHER_API_KEY", "k")
    assert model(model="together_ai/x/y", info=PRICED).api_key_env == "TOGETHER_API_KEY"


def test_what_cannot_be_used_is_left_out_with_one_line_and_the_rest_loads(caplog):
    read(
        {"as_name": "a", "model": "openai/gpt-4o"},
        {"as_name": "b", "model": "openai/nobody-knows"},
        {"as_name": "*", "model": "openai/*"},
    )
    catalog = Catalog.from_file("config.yaml")
    assert list(catalog) == ["a"]
    missing, wildcard = caplog.messages
    assert missing == (
        "left out: config.yaml: model 'b': no price known for 'openai/nobody-knows': add input_cost_per_token and "
        "output_cost_per_token (dollars) to its model_info, or write the entry in a models.toml with "
        "price = { input, output, source, as_of } (dollars per million tokens)"
    )
    assert wildcard.startswith("left out: config.yaml: model '*': 'openai/*' stands for many models")


def test_limits_of_an_entry_that_is_left_out_leave_no_trace():
    found = read({"model": "openai/gpt-4o"}, {"model": "bedrock/nobody-knows", "rpm": 5})
    assert found.backends == {}
    create_backends(Catalog(found.models, found.backends))


def test_the_price_of_writing_to_a_cache():
    info = {**PRICED, "cache_read_input_token_cost": 1e-7, "cache_creation_input_token_cost": 1.25e-6}
    made = model(model="anthropic/claude-x", info=info)
    assert (made.price.cached, made.price.cache_write) == (0.1, 1.25)


def test_coverage_script(capsys):
    from scripts.litellm_coverage import main

    models = ("openai/gpt-4o", "openai/nobody-knows", "openai/*", "openai/tts-1")
    read(*[{"model": one} for one in models], {"model": "openai/gpt-4o", "as_name": "m0"})
    assert main(["config.yaml", "--json"]) == 0
    import json

    said = json.loads(capsys.readouterr().out)
    assert (said["chat"], said["loaded"], said["configs"][0]["other"], said["configs"][0]["wildcards"]) == (3, 2, 1, 1)

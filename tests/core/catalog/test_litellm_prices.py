"""Each rate of a LiteLLM list is what calls are booked at, or the entry is refused in one line."""

import pytest

from vinelm.catalog import Catalog
from vinelm.catalog.loading import read_catalog_file
from vinelm.errors import ConfigError

PRICED = {"input_cost_per_token": 1e-6, "output_cost_per_token": 4e-6}
HOME = {"api_base": "http://10.0.0.7:4000/v1", "api_key": "none"}
ABROAD = {"api_base": "https://gateway.example/v1", "api_key": "os.environ/K"}


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_BASE", raising=False)


def read(info, **params):
    import yaml

    entry = {"model_name": "m", "model_info": info, "litellm_params": {"model": "openai/a", **params}}
    with open("config.yaml", "w", encoding="utf-8") as file:
        yaml.safe_dump({"model_list": [entry]}, file)
    return read_catalog_file("config.yaml")


def price(info, **params):
    found = read(info, **params)
    assert found.errors == ()
    assert found.notes == () or "no effect" not in " ".join(found.notes)
    return found.models[0].price


def refused(info, **params):
    with pytest.raises(ConfigError) as raised:
        Catalog([]) if (found := read(info, **params)).errors == () else raise_(found.errors[0])
    assert "\n" not in str(raised.value)
    return str(raised.value)


def raise_(error):
    raise error


# -- base models and fine-tuned names

FT = "openai/ft:gpt-4o-mini-2024-07-18:acme::x"


@pytest.mark.parametrize("base", ["openai/gpt-4o-mini-2024-07-18", "gpt-4o-mini", "azure/gpt-4o-mini", None])
@pytest.mark.parametrize(
    "where", [{}, HOME, ABROAD, {"model": "litellm_proxy/openai/ft:gpt-4o-mini-2024-07-18:acme::x", **HOME}]
)
def test_a_fine_tuned_model_has_its_own_price_and_not_that_of_its_base(base, where):
    found = price({} if base is None else {"base_model": base}, **{"model": FT, **where})
    assert (found.input, found.output) == (0.3, 1.2)


@pytest.mark.parametrize(
    "name",
    ["openai/ft:gpt-9-nano:acme::x", "openai/ft:gpt-4-0613:a", "mistral/ft:open-mistral-7b:x", "together_ai/me/llama-ft-x"],
)
@pytest.mark.parametrize("where", [{}, ABROAD])
def test_one_without_a_known_price_is_refused_and_not_sold_as_its_base(name, where):
    said = refused({"base_model": "openai/gpt-4o-mini"}, model=name, **where)
    assert f"no price known for {name!r}, which is fine-tuned and has a price of its own: add input_cost_per_token" in said
    assert price({"base_model": "openai/gpt-4o-mini", **PRICED}, model=name, **where).input == 1.0


def test_an_azure_deployment_is_what_its_base_model_says():
    azure = {"api_base": "https://r.openai.azure.com", "api_version": "2024-10-21"}
    assert price({"base_model": "azure/gpt-4o"}, model="azure/gpt-4o-mini", **azure).input == 2.5
    assert price({"base_model": "gpt-4o"}, model="azure/mine", **azure).input == 2.5
    assert "fine-tuned" in refused({"base_model": "azure/gpt-4o"}, model="azure/gpt-4.1.ft-x", **azure)


@pytest.mark.parametrize(
    ("name", "base", "input_usd"),
    [
        ("openai/mine", "openai/gpt-4o", 2.5),
        ("openai/mine", "gpt-4o", 2.5),
        ("openai/mine", "azure/gpt-4o", 2.5),
        ("openai/gpt-4o", "openai/gpt-4o-mini", 2.5),
        ("openai/gpt-4o-mini", "openai/gpt-4o", 2.5),
        ("hosted_vllm/mine", "openai/gpt-4o", 2.5),
        ("litellm_proxy/mine", "openai/gpt-4o", 2.5),
    ],
)
def test_a_server_of_ones_own_that_names_a_base_model_is_not_free(name, base, input_usd):
    found = read({"base_model": base}, model=name, **HOME)
    assert (found.models[0].price.input, found.models[0].price.source[:7]) == (input_usd, "assumed")
    assert any("prices assumed" in note for note in found.notes)


def test_what_is_called_wins_over_a_base_model_where_it_is_sure():
    assert price({"base_model": "openai/gpt-4o-mini"}, model="openai/gpt-4o").input == 2.5
    assert price({"base_model": "openai/gpt-4o"}, model="openai/gpt-4o-mini").input == 0.15


def test_an_unknown_base_model_is_free_only_where_no_bill_can_come():
    assert "no price known for 'acme/llm'" in refused({"base_model": "acme/llm"}, model="openai/mine", **HOME)
    assert price({"base_model": "acme/llm"}, model="hosted_vllm/mine", **HOME).input == 0.0


# -- rates

RATES = {
    **PRICED,
    "cache_read_input_token_cost": 1e-7,
    "cache_creation_input_token_cost": 1.25e-6,
    "cache_creation_input_token_cost_above_1hr": 2e-6,
    "input_cost_per_token_above_200k_tokens": 2e-6,
    "output_cost_per_token_above_200k_tokens": 6e-6,
    "cache_read_input_token_cost_above_200k_tokens": 2e-7,
    "cache_creation_input_token_cost_above_200k_tokens": 2.5e-6,
    "cache_creation_input_token_cost_above_1hr_above_200k_tokens": 4e-6,
    "input_cost_per_token_batches": 5e-7,
    "output_cost_per_token_batches": 2e-6,
}


@pytest.mark.parametrize("place", ["info", "params"])
def test_every_token_rate_is_booked(place):
    found = price(RATES) if place == "info" else price({}, **RATES)
    assert found.cost_usd(1000, 10, 300, 200, 50) * 1e6 == pytest.approx(500 * 1 + 300 * 0.1 + 150 * 1.25 + 50 * 2 + 40)
    assert found.cost_usd(200_000, 0) == pytest.approx(0.2)
    long = 300_000 - 150_000
    assert found.cost_usd(300_000, 10, 100_000, 50_000, 20_000) * 1e6 == pytest.approx(
        long * 2 + 100_000 * 0.2 + 30_000 * 2.5 + 20_000 * 4 + 60
    )


def test_thresholds_of_every_length_and_prices_of_calls():
    found = price({**PRICED, "input_cost_per_token_above_128k_tokens": 3e-6, "output_cost_per_token_above_272k_tokens": 9e-6,
                   "input_cost_per_request": 0.01})  # fmt: skip
    assert found.cost_usd(100_000, 0) == pytest.approx(0.01 + 0.1)
    assert found.cost_usd(130_000, 0) == pytest.approx(0.01 + 0.39)
    assert found.cost_usd(300_000, 100) == pytest.approx(0.01 + 0.9 + 9e-4)
    tiers = [{"range": [0, 32_000], "input_cost_per_token": 1e-6, "output_cost_per_token": 4e-6},
             {"range": [32_000, 128_000], "input_cost_per_token": 2e-6, "output_cost_per_token": 8e-6}]  # fmt: skip
    tiered = price({"tiered_pricing": tiers})
    assert (tiered.cost_usd(32_000, 1), tiered.cost_usd(32_001, 0)) == (pytest.approx(0.032 + 4e-6), pytest.approx(0.064002))


def test_a_rate_alone_changes_the_list_price():
    found = price({"cache_read_input_token_cost": 2e-6, "input_cost_per_token_above_200k_tokens": 5e-6}, model="openai/gpt-4o")
    assert (found.input, found.cached, found.output) == (2.5, 2.0, 10.0)
    assert found.cost_usd(300_000, 0) == pytest.approx(1.5)
    assert "no price known" in refused({"input_cost_per_token": 1e-6}, **HOME)


LONG = "input_cost_per_token_above_200k_tokens"
PRIORITY = {"input_cost_per_token_priority": 2e-6, "output_cost_per_token_priority": 7e-6}


@pytest.mark.parametrize("sent", [{"service_tier": "priority"}, {"extra_body": {"service_tier": "priority"}}])
def test_the_rates_of_a_tier_that_is_sent_are_booked(sent):
    found = price({**PRICED, **PRIORITY, "cache_read_input_token_cost": 1e-7, "cache_creation_input_token_cost": 1e-6}, **sent)
    assert found.cost_usd(1000, 10) * 1e6 == pytest.approx(2000 + 70)
    assert found.cost_usd(1000, 0, 1000) * 1e6 == pytest.approx(2000)  # no rate of the tier: the dearer side
    assert found.cost_usd(1000, 0, 0, 1000) * 1e6 == pytest.approx(2500)
    flex = {"input_cost_per_token_flex": 5e-7, "output_cost_per_token_flex": 2e-6}
    assert price({**PRICED, **flex}, service_tier="flex").cost_usd(1000, 10) * 1e6 == pytest.approx(500 + 20)
    assert price(PRICED, service_tier="flex").cost_usd(1000, 10) * 1e6 == pytest.approx(1000 + 40)
    assert price(PRICED, service_tier="default").input == 1.0


@pytest.mark.parametrize(
    ("info", "params", "says"),
    [
        (PRICED, {"service_tier": "priority"}, "no rates for service_tier 'priority': add input_cost_per_token_priority"),
        ({}, {"service_tier": "priority", "model": "openai/gpt-5-mini"}, "is not billed at the list price: add input"),
        ({}, {"extra_body": {"service_tier": "priority"}, "model": "openai/gpt-5-mini"}, "not billed at the list price"),
        ({**PRICED, **PRIORITY, LONG: 9e-6}, {"service_tier": "priority"}, "_above_200k_tokens_pri"),
        (PRICED, {"service_tier": "scale"}, "no rates for service_tier 'scale': write the entry in a models.toml"),
        ({**PRICED, "input_cost_per_second": 0.1}, {}, "input_cost_per_second cannot be booked: leave it out if no call"),
        ({**PRICED, "input_cost_per_character": 1e-7}, {}, "input_cost_per_character cannot be booked"),
        ({**PRICED, "input_cost_per_audio_token": 3e-6}, {}, "input_cost_per_audio_token cannot be booked"),
        ({**PRICED, "output_cost_per_reasoning_token": 5e-6}, {}, "output_cost_per_reasoning_token cannot be booked"),
        ({**PRICED, "search_context_cost_per_query": {"low": 0.01}}, {"tools": [1]}, "search_context_cost"),
        ({**PRICED, "input_cost_per_token_batches": 8e-7}, {}, "input_cost_per_token_batches is above half"),
        ({**PRICED, "some_new_cost_per_thing": 1}, {}, "some_new_cost_per_thing cannot be booked"),
        ({"tiered_pricing": [{"range": [0, 9], "input_cost_per_song": 1}]}, {}, "tiered_pricing.input_cost_per_song cannot be"),
        ({**PRICED, LONG: "much"}, {}, f"{LONG} must be dollars"),
    ],
)  # fmt: skip
def test_a_rate_that_cannot_be_booked_refuses_the_entry_in_one_line(info, params, says):
    assert says in refused(info, **params)


def test_rates_that_cost_no_more_than_text_are_taken():
    cheap = {
        "input_cost_per_audio_token": 1e-6,
        "output_cost_per_reasoning_token": 4e-6,
        "input_cost_per_second": 0,
        "cost_center": 9,
    }
    assert price({**PRICED, **cheap}).input == 1.0
    assert price({**PRICED, "input_cost_per_image": None}).input == 1.0


def test_deployments_that_differ_in_what_they_cost_are_two():
    import yaml

    infos = [{"base_model": "openai/gpt-4o"}, {"base_model": "openai/gpt-4o-mini"}, {**PRICED}, {**PRICED, **PRIORITY}]
    listed = [{"model_name": "m", "model_info": info, "litellm_params": {"model": "openai/a", **HOME}} for info in infos]
    with open("config.yaml", "w", encoding="utf-8") as file:
        yaml.safe_dump({"model_list": listed}, file)
    assert [one.price.input for one in read_catalog_file("config.yaml").models] == [2.5, 0.15, 1.0, 1.0]

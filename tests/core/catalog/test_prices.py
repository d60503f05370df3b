"""Where a price comes from, what a call costs at it, and when it is reported as old."""

import datetime
import itertools
import json

import pytest
from genai_prices import Usage, calc_price

from vinelm.catalog import Catalog, LongPromptRates, Model, Price, bundled_prices, find_price, prices
from vinelm.catalog.prices import is_old, old_price_note, price_origin
from vinelm.errors import ConfigError

DAY = datetime.date(2026, 6, 1)
LONG = LongPromptRates(above=200, input=2, output=20, cached=0.2, cache_write=2.5, cache_write_1h=4)
TIERED = Price(
    input=1, output=10, cached=0.1, cache_write=1.25, cache_write_1h=2, long_prompts=(LONG,), call=0.5, source="t", as_of=DAY
)


def entry(price=None, **fields):
    price = price or Price(input=1, output=2, source="a page", as_of=DAY)
    return Model(**{"name": "m", "provider": "openai", "model_id": "x", "engine": "e", "price": price, **fields})


@pytest.mark.parametrize(
    ("tokens", "dollars_per_million"),
    [
        ((100, 10), 100 * 1 + 10 * 10),
        ((100, 10, 40), 60 * 1 + 40 * 0.1 + 10 * 10),
        ((100, 10, 40, 30), 30 * 1 + 40 * 0.1 + 30 * 1.25 + 10 * 10),
        ((100, 10, 40, 30, 20), 30 * 1 + 40 * 0.1 + 10 * 1.25 + 20 * 2 + 10 * 10),
        ((200, 10), 200 * 1 + 10 * 10),
        ((201, 10), 201 * 2 + 10 * 20),
        ((300, 10, 40, 30, 20), 230 * 2 + 40 * 0.2 + 10 * 2.5 + 20 * 4 + 10 * 20),
    ],
)
def test_what_a_call_costs(tokens, dollars_per_million):
    assert TIERED.cost_usd(*tokens) == pytest.approx(0.5 + dollars_per_million / 1e6)


def price_of(**rates):
    return Price(**{"input": 4, "output": 20, "source": "t", "as_of": DAY, **rates})


@pytest.mark.parametrize(
    ("rates", "minutes", "hour"),
    [
        ({}, 5.0, 8.0),
        ({"cached": 0.4}, 5.0, 8.0),
        ({"cache_write": 4.4}, 4.4, 8.0),
        ({"cache_write": 9}, 9.0, 9.0),
        ({"cache_write_1h": 7}, 5.0, 7.0),
        ({"input": 0}, 0.0, 0.0),
        ({"long_prompts": (LongPromptRates(above=50, input=8),)}, 10.0, 16.0),
        ({"cache_write": 5, "long_prompts": (LongPromptRates(above=50, input=8),)}, 10.0, 16.0),
        ({"cache_write": 5, "long_prompts": (LongPromptRates(above=50, output=90),)}, 5.0, 8.0),
        ({"long_prompts": (LongPromptRates(above=50, cache_write=6), LongPromptRates(above=500, input=80))}, 6.0, 8.0),
    ],
)
def test_a_rate_for_writing_to_a_cache_that_is_not_named_is_taken_at_its_dearer_side(rates, minutes, hour):
    price = price_of(**rates)
    assert price.cost_usd(100, 0, 0, 100) == pytest.approx(100e-6 * minutes)
    assert price.cost_usd(100, 0, 0, 100, 100) == pytest.approx(100e-6 * hour)


def test_rates_that_are_not_given_are_those_of_the_input():
    price = price_of(long_prompts=(LongPromptRates(above=200, input=12),))
    assert price.cost_usd(100, 0, 40) == pytest.approx(400e-6)
    assert price.cost_usd(300, 1) == pytest.approx((300 * 12 + 20) / 1e6)
    read = price_of(cached=0.4, long_prompts=(LongPromptRates(above=200, input=12),))
    assert read.cost_usd(300, 0, 300) == pytest.approx(300 * 1.2 / 1e6)


@pytest.mark.parametrize("rates", [{}, {"cached": 5}, {"cache_write": 6, "cached": 0.1}, {"cache_write_1h": 3}])
@pytest.mark.parametrize("long", [(), (LongPromptRates(above=500, input=8, output=1),), (LongPromptRates(above=500, input=1),)])
def test_no_split_of_a_prompt_costs_more_than_the_most(rates, long):
    price = price_of(**rates, long_prompts=long)
    for tokens in (1, 500, 501, 1000):
        for read, kept in itertools.product((0, tokens // 2, tokens), repeat=2):
            assert price.cost_usd(tokens, 7, read) <= price.most_usd(1000, 7) * (1 + 1e-12)
            written = tokens - read
            call = price.cost_usd(tokens, 7, read, written, min(kept, written))
            assert call <= price.most_usd(1000, 7, asks_for_an_hour=True) * (1 + 1e-12)
            assert price.cost_usd(tokens, 7, read, written) <= price.most_usd(1000, 7, writes_cache=True) * (1 + 1e-12)


def test_a_batch_that_does_not_halve_the_cache_does_not_halve_a_write_without_a_name():
    found = price_of(long_prompts=(LongPromptRates(above=200, input=8),)).in_batches(halves_cache=False)
    assert found.cost_usd(100, 0, 0, 100) == pytest.approx(500e-6)
    assert found.cost_usd(100, 0, 0, 100, 100) == pytest.approx(800e-6)
    assert found.cost_usd(300, 0, 0, 300) == pytest.approx(3000e-6)
    assert price_of().in_batches(halves_cache=True).cost_usd(100, 0, 0, 100) == pytest.approx(250e-6)


def test_only_a_write_that_the_price_names_is_saved_by_a_hit():
    assert price_of(cached=1).cache_saves_usd(100, 50) == pytest.approx(150e-6)
    assert price_of(cached=1, cache_write=5).cache_saves_usd(100, 50) == pytest.approx(200e-6)


def test_a_price_without_the_later_rates_is_written_as_before():
    """A store holds its catalog in these words: an upgrade must not change them."""
    plain = entry().price.model_dump(mode="json")
    assert plain == {"input": 1.0, "output": 2.0, "cached": None, "call": 0.0, "source": "a page", "as_of": "2026-06-01"}
    catalog = Catalog([entry(TIERED)])
    assert Catalog.from_dict(json.loads(json.dumps(catalog.to_dict()))) == catalog


CHECKED = [
    ("openai", "gpt-4o", "openai"),
    ("anthropic", "claude-sonnet-4-5-20250929", "anthropic"),
    ("gemini", "gemini-2.5-pro", "google"),
    ("groq", "llama-3.3-70b-versatile", "groq"),
    ("bedrock", "anthropic.claude-3-5-sonnet-20241022-v2:0", "aws"),
]


@pytest.mark.parametrize(("provider", "model_id", "seller"), CHECKED)
@pytest.mark.parametrize("tokens_in", [1000, 199_999, 250_000])
def test_a_listed_price_costs_what_genai_prices_itself_computes(provider, model_id, seller, tokens_in):
    found = find_price(provider, model_id).price
    usage = Usage(input_tokens=tokens_in, output_tokens=500, cache_read_tokens=300)
    theirs = calc_price(usage, model_id, provider_id=seller).total_price
    ours = found.cost_usd(tokens_in, 500, 300)
    assert ours == pytest.approx(float(theirs), rel=1e-9)


def test_our_file_takes_precedence_until_the_other_source_is_much_younger(monkeypatch):
    price_id = "openai/gpt-4o"
    listed = prices.find_price("openai", "gpt-4o").price
    for age, is_ours in ((0, True), (90, True), (91, False)):
        mine = Price(input=9, output=99, source="our page", as_of=listed.as_of - datetime.timedelta(days=age))
        monkeypatch.setattr(prices, "bundled_prices", lambda mine=mine: {price_id: mine})
        found = find_price("openai", "gpt-4o")
        assert (found.price_id, found.price == mine) == (price_id, is_ours)
    monkeypatch.setattr(prices, "bundled_prices", lambda: {"openai/only-ours": mine})
    assert find_price("openai", "only-ours").price == mine


def test_openais_prices_say_nothing_of_other_servers():
    assert find_price("openai", "gpt-4o", "https://elsewhere.example/v1") is None
    assert find_price("openai", "gpt-4o", "https://openrouter.ai/api/v1") is None
    assert find_price("openai", "openai/gpt-4o", "https://openrouter.ai/api/v1").price_id == "openrouter/openai/gpt-4o"


def test_models_that_are_no_chat_models_have_no_price():
    assert find_price("openai", "text-embedding-3-small") is None
    assert find_price("openai", "whisper-1") is None
    assert find_price("nobody", "knows") is None


def test_the_data_have_a_date_and_every_price_its_source():
    found = find_price("groq", "llama-3.3-70b-versatile").price
    assert datetime.date(2026, 1, 1) < found.as_of <= datetime.date.today()
    assert found.source.startswith("genai-prices ")
    assert "llama-3.3-70b-versatile (https://" in found.source


def test_prices_by_the_hour_count_at_their_highest():
    from genai_prices.data import providers

    hourly = [
        (seller, one)
        for seller in providers
        for one in seller.models
        if isinstance(one.prices, list) and any(hasattr(c.constraint, "start_time") for c in one.prices)
    ]
    assert hourly
    for seller, one in hourly:
        found = prices._price(seller, one)
        rates = [prices._rate(c.prices, "output_mtok") for c in one.prices if hasattr(c.constraint, "start_time")]
        assert found is None or found.output >= max(rate for rate in rates if rate is not None)


TOML = '[[model]]\nname = "m"\nprovider = "{}"\nmodel = "{}"\n{}\n'


def from_toml(tmp_path, *words):
    path = tmp_path / "models.toml"
    path.write_text(TOML.format(*words))
    return Catalog.from_file(path)["m"]


def test_an_entry_without_a_price_is_looked_up(tmp_path):
    made = from_toml(tmp_path, "anthropic", "claude-sonnet-4-5-20250929", "")
    assert (made.price.input, made.price_id) == (3.0, "anthropic/claude-sonnet-4-5-20250929")
    lent = from_toml(tmp_path, "openai", "llama-3.3-70b-versatile", 'api_base = "https://api.groq.com/openai/v1"')
    assert (lent.price.input, lent.price_id) == (0.59, "groq/llama-3.3-70b-versatile")
    named = from_toml(tmp_path, "openai", "mine", 'api_base = "http://localhost/v1"\nprice_id = "openai/gpt-4o"')
    assert named.price.input == 2.5
    mine = from_toml(tmp_path, "openai", "gpt-4o", 'price = { input = 7, output = 8, source = "s", as_of = 2026-06-01 }')
    assert (mine.price.input, mine.price_id) == (7.0, None)


def test_an_unknown_price_is_one_line_that_says_how_to_give_it(tmp_path):
    with pytest.raises(ConfigError) as raised:
        from_toml(tmp_path, "openai", "mine", 'api_base = "http://localhost/v1"')
    assert str(raised.value) == (
        f"{tmp_path}/models.toml: model 'm': no price known for 'openai/mine': add price = {{ input, output, source, as_of }} "
        "(dollars per million tokens)"
    )


@pytest.mark.parametrize(("days", "is_reported"), [(90, False), (91, True)])
def test_old_prices_are_one_line_that_says_what_to_do(days, is_reported):
    today = DAY + datetime.timedelta(days=days)
    assert is_old(entry(), today) == is_reported
    note = old_price_note([entry(), entry(name="n")], today)
    said = "prices up to 91 days old: m, n: compare it with a page, and give it with today's date"
    assert note == (said if is_reported else None)
    bundled = entry(entry().price.model_copy(update={"source": "genai-prices 0.2: x"}))
    assert not is_reported or "upgrade the package genai-prices" in old_price_note([bundled], today)


def test_free_and_simulated_models_have_no_old_price():
    today = DAY + datetime.timedelta(days=400)
    assert not is_old(entry(Price(input=0, output=0, source="s", as_of=DAY)), today)
    assert not is_old(entry(provider="simulated"), today)


@pytest.mark.parametrize("age", [1, 400])
def test_every_way_to_a_catalog_warns_once(tmp_path, caplog, age):
    as_of = datetime.date.today() - datetime.timedelta(days=age)
    price = {"input": 1, "output": 2, "source": "a page", "as_of": as_of}
    from_toml(tmp_path, "openai", "x", f'price = {{ input = 1, output = 2, source = "a page", as_of = {as_of} }}')
    Catalog.from_strings(["openai:x"], prices={"openai:x": price})
    assert len([line for line in caplog.messages if "prices up to 400 days old" in line]) == (2 if age == 400 else 0)


def test_where_a_price_comes_from():
    found = find_price("openai", "gpt-4o")
    listed = entry(found.price, price_id=found.price_id)
    assert price_origin(listed) == found.price.source.partition(":")[0]
    assert price_origin(entry()) == "the entry"
    ours = bundled_prices()["bedrock/deepseek.v3.2"]
    assert price_origin(entry(ours, price_id="bedrock/deepseek.v3.2")) == "vinelm"


@pytest.mark.parametrize("model_id", ["ft:gpt-4-0613:acme", "ft:gpt-9:acme", "gpt-4.1.ft-abc"])
def test_a_fine_tuned_model_never_has_the_price_of_what_it_was_made_of(model_id):
    assert find_price("openai", model_id) is None
    assert find_price("openai", "ft:gpt-4o-mini-2024-07-18:acme").price.input == 0.3


@pytest.mark.parametrize(
    "words", ['options = { service_tier = "priority" }', 'options = { extra_body = { service_tier = "scale" } }']
)
def test_a_dearer_tier_needs_a_price_of_its_own(tmp_path, words):
    with pytest.raises(ConfigError, match="is not billed at the list price: add price = "):
        from_toml(tmp_path, "openai", "gpt-4o", words)
    with pytest.raises(ConfigError, match="is not billed at the list price"):
        from_toml(tmp_path, "openai", "gpt-4o", words + '\nprice_id = "openai/gpt-4o"')
    mine = 'price = { input = 7, output = 8, source = "s", as_of = 2026-06-01 }'
    assert from_toml(tmp_path, "openai", "gpt-4o", f"{words}\n{mine}").price.input == 7.0
    assert (
        from_toml(tmp_path, "openai", "gpt-4o", words.replace("priority", "flex").replace("scale", "auto")).price.input == 2.5
    )


@pytest.mark.parametrize("named", list(itertools.product((0, 1), repeat=3)))
def test_a_price_without_other_rates_for_long_prompts_costs_as_one_whose_threshold_no_prompt_reaches(named):
    rates = {
        name: rate
        for name, rate, has in zip(("cached", "cache_write", "cache_write_1h"), (0.4, 4.4, 7.0), named, strict=True)
        if has
    }
    plain, tiered = price_of(**rates), price_of(**rates, long_prompts=(LongPromptRates(above=10**9, input=9),))
    for tokens in ((100, 10), (100, 10, 40), (100, 10, 40, 30), (100, 10, 40, 30, 20)):
        assert plain.cost_usd(*tokens) == tiered.cost_usd(*tokens)
    assert plain.cache_saves_usd(100, 40) == tiered.cache_saves_usd(100, 40)

import pytest

from vinelm.catalog import Catalog, Price
from vinelm.errors import ConfigError

PRICE = 'price = { input = 3.0, output = 15.0, source = "a page", as_of = 2026-01-01 }'
GOOD = f"""
[[model]]
name = "big"
provider = "openai"
model = "big-1"
api_key_env = "BIG_KEY"
{PRICE}

[backend.openai]
organization = "acme"
"""


def write(tmp_path, text):
    path = tmp_path / "models.toml"
    path.write_text(text)
    return path


def test_reads_models_prices_and_backend_settings(tmp_path):
    catalog = Catalog.from_file(write(tmp_path, GOOD))
    assert list(catalog) == ["big"]
    assert catalog["big"].model_id == "big-1"
    assert catalog["big"].engine == "openai"
    assert catalog.backends == {"openai": {"organization": "acme"}}
    assert Catalog.from_dict(catalog.to_dict()) == catalog


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "at least one model"),
        ("[[model]", "not valid TOML"),
        ("[[models]]\nname='x'", "unknown key 'models'"),
        (GOOD.replace("api_key_env", "api_key"), "unknown key 'api_key'"),
        (GOOD.replace(PRICE, ""), "no price"),
        (GOOD.replace(PRICE, 'price_id = "nobody/knows"'), "nobody/knows"),
        (GOOD.replace("3.0", "-3.0"), "price.input"),
        (GOOD.replace("3.0", "nan"), "price.input"),
        (GOOD.replace('model = "big-1"', ""), "'model'"),
        (GOOD.replace("[backend", GOOD.split("[backend", maxsplit=1)[0] + "[backend"), "twice"),
    ],
)
def test_bad_files_get_one_line_that_names_the_place(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says) as caught:
        Catalog.from_file(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_missing_file_and_unknown_model(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        Catalog.from_file(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="unknown model 'small'"):
        Catalog.from_file(write(tmp_path, GOOD)).subset(("small",))


def test_cached_tokens_are_part_of_the_input():
    price = Price(input=2.0, output=10.0, cached=0.5, call=0.001, source="a page", as_of="2026-01-01")
    assert price.cost_usd(1_000_000, 100_000, 400_000) == pytest.approx(0.001 + 0.6 * 2.0 + 0.4 * 0.5 + 0.1 * 10.0)
    dear = Price(input=2.0, output=10.0, source="a page", as_of="2026-01-01")
    assert dear.cost_usd(1_000_000, 0, 400_000) == pytest.approx(2.0)


def test_a_catalog_is_a_value(tmp_path):
    path = write(tmp_path, GOOD)
    assert Catalog.from_file(path) == Catalog.from_file(path)


CANARY = "canary-do-not-print"
REFUSED_KEYS = (
    "api_key", "API-Key", "apiKey", "x-api-key", "openai_api_key", "token", "auth_token", "aws_session_token", "secret",
    "client_secret", "aws_secret_access_key", "aws_access_key_id", "password", "Authorization", "Proxy-Authorization", "cookie",
)  # fmt: skip


def with_options(options, **fields):
    entry = {"name": "big", "provider": "openai", "model": "big-1", "options": options, **fields}
    price = {"input": 1, "output": 1, "source": "a page", "as_of": "2026-01-01"}
    return {"model": [entry | {"price": price}]}


@pytest.mark.parametrize("key", REFUSED_KEYS)
def test_a_secret_is_refused_wherever_it_hides_and_never_shown(key):
    catalogs = [
        with_options({key: CANARY}),
        with_options({"default_headers": {key: CANARY}}),
        with_options({"servers": [{"headers": {key: CANARY}}]}),
        {**with_options({}), "backend": {"openai": {key: CANARY}}},
    ]
    for plain in catalogs:
        with pytest.raises(ConfigError, match="api_key_env") as caught:
            Catalog.from_dict(plain)
        assert repr(key) in str(caught.value)
        assert CANARY not in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "plain",
    [
        with_options({"extra_headers": {"X-Auth": f"Bearer {CANARY}"}}),
        with_options({}, api_base=f"https://me:{CANARY}@example.org/v1"),
        {**with_options({}), "backend": {"openai": {"proxy": f"http://me:{CANARY}@proxy:3128"}}},
    ],
)
def test_a_value_that_is_a_secret_by_its_looks_is_refused(plain):
    with pytest.raises(ConfigError, match="holds a secret") as caught:
        Catalog.from_dict(plain)
    assert CANARY not in str(caught.value)


def test_ordinary_options_are_no_secrets():
    options = {
        "max_completion_tokens": 100, "stop_token": "</s>", "eos_token_id": 2, "prompt_cache_key": "vinelm", "seed": 7,
        "api_key_env": "BIG_KEY", "token_limit": 9, "thinking": {"budget_tokens": 50}, "secretary": "Ada", "top_k": 5,
        "logit_bias": {"50256": -100}, "stop": ["token", "password:"], "return_token": True,
    }  # fmt: skip
    catalog = Catalog.from_dict(
        {**with_options(options, api_base="http://localhost:8000/v1"), "backend": {"x": {"a": "b@c:d"}}}
    )
    assert catalog["big"].options == options

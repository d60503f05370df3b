"""Secrets are redacted by the values of variables and by their looks, and a key is no variable's name."""

import pytest

from vinelm.catalog import Catalog
from vinelm.catalog.secrets import redacted
from vinelm.errors import ConfigError

CANARY = "zQ9vinelmCanary77"
PRICE = {"input": 1, "output": 1, "source": "test", "as_of": "2026-01-01"}


@pytest.mark.parametrize("variable", ["APP_DSN", "DB_PASSWD", "MY_CREDENTIALS", "SESSION_COOKIE", "app_pass", "BIG_KEY"])
def test_values_of_variables_with_secret_names_are_redacted(variable, monkeypatch):
    monkeypatch.setenv(variable, CANARY)
    assert redacted(f"cannot connect: {CANARY}!") == f"cannot connect: ${variable}!"


def test_the_value_of_a_variable_that_a_catalog_names_is_redacted(monkeypatch):
    monkeypatch.setenv("VINELM_TEST_ODD_NAME", CANARY)
    assert CANARY in redacted(CANARY)
    catalog = {"model": [{"name": "m", "provider": "openai", "model": "x", "price": PRICE}]}
    catalog["model"][0]["api_key_env"] = "VINELM_TEST_ODD_NAME"
    Catalog.from_dict(catalog)
    assert redacted(CANARY) == "$VINELM_TEST_ODD_NAME"


def test_the_longest_value_goes_first(monkeypatch):
    monkeypatch.setenv("A_KEY", "abcdefgh")
    monkeypatch.setenv("B_KEY", "abcdefgh-and-more")
    assert redacted("abcdefgh-and-more") == "$B_KEY"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{CANARY}@db:5432/x",
        f"Authorization: Bearer {CANARY}",
        f"sk-proj-{CANARY}{CANARY}",
        "AKIAIOSFODNN7ZQ9CANA is not valid",
        f"{{'api_key': '{CANARY}'}}",
        f"password={CANARY} host=x",
        f"token: {CANARY}",
        f"eyJhbGciOiJIUzI1NiJ9.eyJ{CANARY}.{CANARY}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_credential_is_redacted(text):
    assert CANARY not in redacted(text)
    assert "ZQ9CANA" not in redacted(text)
    assert redacted(redacted(text)) == redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 4096 tokens",
        "unexpected token: something",
        "https://example.org:8000/v1",
        "sk-1",
        "/home/x/key",
        "Basic idea",
    ],
)
def test_ordinary_text_stays(text):
    assert redacted(text) == text


@pytest.mark.parametrize("key", [f"sk-{CANARY}{CANARY}", "AKIAIOSFODNN7ZQ9CANA", f"x{CANARY}8K3jd92", "ab12" * 8, "not a name"])
def test_a_key_in_place_of_its_variable_is_refused_and_not_shown(key):
    plain = {"model": [{"name": "m", "provider": "openai", "model": "x", "price": PRICE, "api_key_env": key}]}
    with pytest.raises(ConfigError, match="api_key_env is not the name") as caught:
        Catalog.from_dict(plain)
    assert key not in str(caught.value)


def test_a_variable_that_is_set_changed_or_deleted_later_counts_as_it_is_now(monkeypatch):
    assert redacted(CANARY) == CANARY
    monkeypatch.setenv("LATER_KEY", CANARY)
    assert redacted(CANARY) == "$LATER_KEY"
    monkeypatch.setenv("LATER_KEY", "something else")
    assert redacted(f"{CANARY} and something else") == f"{CANARY} and $LATER_KEY"
    monkeypatch.delenv("LATER_KEY")
    assert redacted("something else") == "something else"

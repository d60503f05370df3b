"""The page on providers: its catalogs load, and it leaves no provider, no failure out."""

import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from vinelm.backends import PROVIDERS, create_backends
from vinelm.backends.limits.rate_limits import RateLimits
from vinelm.backends.remote.retry import RETRIES, SETTINGS
from vinelm.catalog import Catalog, Model
from vinelm.catalog.litellm_keys import LIMITS, NOT_TAKEN, PRICES
from vinelm.catalog.litellm_routes import ROUTES
from vinelm.cli.main import main
from vinelm.errors import FailureKind

DOCS = Path(__file__).parents[2] / "docs"
PAGE, CALLS, FIELDS = ((DOCS / name).read_text(encoding="utf-8") for name in ("providers.md", "serve.md", "fields.md"))
CATALOGS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
NOT_OF_A_PROVIDER = {"unexpected_arm", "tool", "crash", "state", "budget"}


@pytest.fixture(scope="module")
def fields():
    """The page on fields with its tables, as the site has it."""
    sys.path.insert(0, str(DOCS.parent / "scripts" / "docs_parts"))
    try:
        yield import_module("field_tables").filled(FIELDS)
    finally:
        sys.path.pop(0)


@pytest.mark.parametrize("text", CATALOGS)
def test_every_catalog_loads(text, tmp_path):
    path = tmp_path / "models.toml"
    path.write_text(text)
    catalog = Catalog.from_file(path)
    assert set(create_backends(catalog)) == {model.provider for model in catalog.models}


def test_every_provider_has_its_row_and_every_remote_one_a_catalog():
    for provider in PROVIDERS:
        assert f"| `{provider}` |" in PAGE
    shown = {entry["provider"] for text in CATALOGS for entry in tomllib.loads(text)["model"]}
    assert shown == set(PROVIDERS) - {"recorded", "simulated"}


def test_every_key_setting_and_failure_is_named(fields):
    keys = {"model" if name == "model_id" else name for name in Model.model_fields}
    names = keys | set(SETTINGS) | set(RateLimits.model_fields) | (set(get_args(FailureKind)) - NOT_OF_A_PROVIDER)
    assert [name for name in sorted(names) if f"`{name}`" not in PAGE + CALLS + fields.partition("## Workflow")[0]] == []


def test_what_litellm_has_is_named(fields):
    page = fields.partition("## LiteLLM")[2]
    prefixes = [name for name in ROUTES if name != "bedrock_converse"]
    missing = [name for name in prefixes if f"{name}/" not in page]
    missing += [name for name in (*LIMITS, *PRICES, *NOT_TAKEN) if f"`{name}`" not in page]
    assert missing == []


@pytest.mark.parametrize("kind", RETRIES)
def test_numbers_of_attempts(kind):
    row = next(line for line in CALLS.splitlines() if line.startswith(f"| `{kind}` |"))
    assert re.match(rf"{RETRIES[kind]}\b", row.split("|")[3].strip())


def test_the_line_that_launches_an_engine(capsys):
    shown = re.search(r"\$ vinelm (engine .*) --print\n(.*)\n", PAGE)
    assert main([*shown[1].split(), "--print"]) == 0
    assert capsys.readouterr().out.strip() == shown[2]

import datetime
import tomllib
from importlib import resources

import pytest

from vinelm.catalog import bundled_prices

PAPER = {
    "bedrock/google.gemma-3-27b-it",
    "bedrock/global.anthropic.claude-sonnet-4-6",
    "bedrock/moonshotai.kimi-k2.5",
    "bedrock/qwen.qwen3-32b-v1:0",
    "bedrock/zai.glm-4.7",
    "bedrock/meta.llama3-3-70b-instruct-v1:0",
    "bedrock/deepseek.v3.2",
    "bedrock/openai.gpt-oss-120b-1:0",
}
ENTRIES = tomllib.loads((resources.files("vinelm") / "prices.toml").read_text(encoding="utf-8"))["price"]


@pytest.mark.parametrize("price_id", ENTRIES)
def test_every_entry_is_complete_positive_and_dated(price_id):
    fields = ENTRIES[price_id]
    assert {"input", "output", "source", "as_of"} <= set(fields) <= {"input", "output", "cached", "audio", "source", "as_of"}
    price = bundled_prices()[price_id]
    assert 0 < price.input <= price.output
    assert price.cached is None or 0 < price.cached < price.input
    assert datetime.date(2025, 1, 1) <= price.as_of <= datetime.date.today()
    assert "https://" in price.source


def test_the_papers_eight_models_are_there():
    assert set(ENTRIES) >= PAPER

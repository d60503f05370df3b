"""docs/fields.md asks for a table of every field of a catalog, a workflow and an objective, and each says something."""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from vinelm.backends.remote.retry import SETTINGS
from vinelm.catalog import Price

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fields.md").read_text(encoding="utf-8")
CLASSES = re.findall(r"<!-- fields: ([\w.]+) -->", PAGE)


@pytest.fixture(scope="module")
def tables():
    sys.path.insert(0, str(ROOT / "scripts" / "docs_parts"))
    try:
        yield import_module("field_tables")
    finally:
        sys.path.pop(0)


def test_the_page_has_what_a_user_writes():
    named = {name.rpartition(".")[2] for name in CLASSES}
    assert {"Model", "Price", "RateLimits", "Workflow", "Template", "Stage", "Loop", "Branch", "Objective"} <= named
    for setting in (*SETTINGS, "stream", "batches", "limits", "send_priority"):
        assert f"`{setting}`" in PAGE


@pytest.mark.parametrize("name", CLASSES)
def test_every_argument_is_described(tables, name):
    module, _, attribute = name.rpartition(".")
    subject = getattr(import_module(module), attribute)
    said = tables.arguments(subject)
    assert set(said) == set(inspect.signature(subject).parameters)
    assert all(len(text) > 3 for text in said.values())
    assert tables.table(name).count("\n") == len(said) + 1


def test_a_table_has_the_defaults_and_no_role(tables):
    table = tables.table("vinelm.Objective")
    assert "| `cost_budget` | `'population'` |" in table
    assert "| `maximize` | none |" in table
    assert ":class:" not in table
    assert "| `model` | required |" in tables.table("vinelm.Model")
    assert "| `price` | the list price |" in tables.table("vinelm.Model")


def test_lines_of_a_docstring_become_one(tables):
    class Sample:
        """A sample.

        Args:
            one: First,
                see :class:`~vinelm.catalog.Price` | ``x``.
            two: Second.

        Raises:
            ValueError: Never.
        """

    assert tables.arguments(Sample) == {"one": "First, see `Price` \\| `x`.", "two": "Second."}
    assert tables.arguments(Price)["as_of"]


def test_what_litellm_has_is_filled_in(tables):
    page = tables.filled("a <!-- litellm: routes --> b <!-- litellm: not taken -->")
    assert "`groq/`" in page
    assert "`drop_params`" in page
    assert "<!--" not in page

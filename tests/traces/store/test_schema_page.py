"""The page about the store says what the store is."""

import runpy
from pathlib import Path

from vinelm.traces.databases import schema

REPO = Path(__file__).parents[3]


def test_the_page_is_fresh():
    script = runpy.run_path(str(REPO / "scripts" / "store_schema_doc.py"))
    assert (REPO / "docs" / "store.md").read_text(encoding="utf-8") == script["page"](), "run scripts/store_schema_doc.py"


def test_the_page_has_every_table_and_column():
    text = (REPO / "docs" / "store.md").read_text(encoding="utf-8")
    for table in schema.metadata.sorted_tables:
        assert f"## {table.name}\n" in text
        for column in table.columns:
            assert f"| `{column.name}` |" in text

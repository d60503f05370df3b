"""Write docs/store.md from the comments in the store's schema; with --check, only say whether it is fresh."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Table

from vinelm.traces.store import schema

PAGE = Path(__file__).parents[1] / "docs" / "store.md"
HEAD = f"""# The observation store

<!-- Written by scripts/store_schema_doc.py from traces/store/schema.py: change that file, then run the script. -->

One SQLite file (WAL, `synchronous=FULL`) per workflow, catalog and dataset. Schema version {schema.SCHEMA_VERSION}:
an older file is migrated when it is opened, in one transaction; a newer one is rejected. Unknown values are NULL, never 0.
No table holds prompts, answers or keys; checkpoints hold the workflow's own state.

```
vinelm store info runs/nl2sql.db                 # workflow, number of rows, cost, coverage
vinelm store check runs/nl2sql.db                # look for damage; exit code 1 if there is any
vinelm store export runs/nl2sql.db -o rows.csv   # or .csv.gz, .parquet; `vinelm store import` reads it back
vinelm store merge ann.db ben.db -o both.db      # stores of the same workflow
vinelm store import log.csv -o log.db --request-column id --model-column model --success-column correct --cost-column usd ...
```

To copy a store during a run, copy `STORE-wal` with it; a copy without it is detected and rejected.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(line for table in schema.metadata.tables.values() for line in section(table))])


def section(table: Table) -> Iterator[str]:
    yield f"## {table.name}"
    yield ""
    yield f"{table.comment}"
    yield ""
    yield "| column | type | null | what |"
    yield "| --- | --- | --- | --- |"
    for column in table.columns:
        key = ", primary key" if column.primary_key else ""
        null = "yes" if column.nullable else ""
        yield f"| `{column.name}` | {column.type}{key} | {null} | {str(column.comment).replace('|', chr(92) + '|')} |"
    yield ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the page is stale")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    is_fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
    print(f"{PAGE.name} is {'fresh' if is_fresh else 'stale: run scripts/store_schema_doc.py'}")
    return 0 if is_fresh else 1


if __name__ == "__main__":
    sys.exit(main())

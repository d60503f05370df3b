"""Write docs/store.md from the comments in the store's schema; with --check, only say whether it is fresh."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Table

from vinelm.traces.databases import schema
from vinelm.traces.served.answers import answers, equal_calls
from vinelm.traces.served.kept_calls import kept_calls
from vinelm.traces.served.piloted import served as piloted
from vinelm.traces.served.replayed import compared, labels, questions, units
from vinelm.traces.served.served_requests import served
from vinelm.traces.served.served_store import feedback
from vinelm.traces.store.judgements import judgements
from vinelm.traces.store.prompts import prompts
from vinelm.traces.store.tool_rows import tool_calls

PAGE = Path(__file__).parents[1] / "docs" / "store.md"
HEAD = f"""# The observation store

<!-- Written by scripts/store_schema_doc.py from traces/databases/schema.py: change that file, then run the script. -->

One SQLite file (WAL, `synchronous=FULL`) per workflow. Schema version {schema.SCHEMA_VERSION}:
a file of another version is refused in one line. Unknown values are NULL, never 0.
No table holds API keys. `vinelm replay` and an autopilot keep prompts and answers in plain text, and so does a profile of
requests without labels, as persons are asked about them (`replay_units`, `compared_answers`). A batch keeps answers. Other
rows have answers only if the workflow asks for it (`answer=`). Checkpoints hold the workflow's own state.

<!-- not run: it takes minutes -->
```
vinelm profile nl2sql --limit 60 --coverage 0.2 --quiet   # a store to look at, with simulated models
vinelm store info runs/nl2sql.db                 # workflow, number of rows, cost, coverage
vinelm store check runs/nl2sql.db                # look for damage; exit code 1 if there is any
vinelm store export runs/nl2sql.db -o rows.csv   # or .csv.gz, .parquet; `vinelm store import` reads it back
vinelm store merge ann.db ben.db -o both.db      # stores of the same workflow
vinelm store reprice runs/nl2sql.db --models new-prices.toml -o repriced.db   # the same rows at other prices
vinelm store import log.csv -o log.db --column request=id --column model=model --column success=correct ...
```

To copy a store during a run, copy `STORE-wal` with it; a copy without it is detected and rejected. A run that ended because the
disk was full is told from such a copy by its note in `STORE.lock`.

`store info`, `store check`, `export` and `estimate` also read a store that may not be written, on a read-only disk for
example. If its write-ahead log is not empty, they read a temporary copy.

## Logs as stores

`vinelm store import` makes a store of a table of recorded calls. A request ends where `--stopped-if` says that the
application's own check passed. With `--stop oracle` it ends when its answer is right, which no service can see: everything
that shows figures of such a store says so, `vinelm evaluate` gives no advice, and its tries cannot be served. An answer that
several paths use has its dollars in each of their rows and once on the ledger, since it was paid once; a recorded call that
no path uses is on the ledger alone. An empty latency is unknown. `--column answer=COLUMN` names the answers; equal texts are
equal answers.

## A store grows

The workflow, the dataset and the catalog may change between two runs ([profiling](profiling.md#growing-a-store)). Which rows
hold is decided by comparing what each was executed with (`observations.identity_id`, key into `identities`) with what is
current (`meta`):

- the request: the hash of what the graph is invoked with, or of its whole dataset row where that is unknown;
- the prefix: the stages and models up to the row, each model with what is sent to it (provider, model id, URL, `max_tokens`,
  options, settings of its provider), not with its price, engine, rate limits, timeouts or key variable;
- the code of these stages, and what all stages share: graph, tools, routes, `inputs`, resources, the seed of simulated models;
- the row before it on its path, which must hold and not end the request.

A row that does not hold is moved to `retired`, with its state and the reason. Its dollars stay on the ledger, and its calls in
`--budget-calls`. It is moved back when the change is undone. `success` is decided by the scorer and the labels; if only these
change, rows are scored again from their states.

`cost_usd` follows the current price: recorded tokens times price, scaled by what the row was charged beyond (or below) its
tokens at the price of its time. `recorded_usd` keeps what was charged. A row without token counts keeps its dollars.

## Other prices

`vinelm store reprice` writes a copy in which every row counts at the prices of a catalog. No model is called and the store is
not changed. `recorded_usd` and the ledger of the copy say what was charged and paid; `sources` says which store it was made
from. It is refused if a model of the store has no price in the catalog, or if a row of a model with a new price recorded no
tokens. [Two tries compared](estimators.md#other-prices-and-two-tries-compared) has an example.

## What a row showed

`signal`, `answer` and `answer_class` follow `Workflow(signal=, answer=, agree=)`
([profiling](profiling.md#growing-a-store)). They decide no row: when one of them changes, the next profile makes them anew
without a call, signals and answers from the states, classes from the answers. `signals` in `meta` holds what they were made
with.

The class of an answer is the first earlier class of its request whose first answer is equal to it, else a new one. "Earlier"
is by depth, then by prefix with names in alphabetical order, over all rows of the request: the order in which rows were added
does not count. A row that is added may therefore change the numbers of others, and the classes are computed at the end of a
run; a run that was killed leaves that to the next. A merge of stores computes them where answers are compared by their JSON,
and leaves the rest to the next profile.

`sampler`, `round` and `probability` say who bought the row: a cell that several paths share belongs to the first of them.
`probability` is that of the path, the same for all rows that were bought on its way.
"""


def page() -> str:
    """The whole page."""
    others = (
        judgements,
        prompts,
        served,
        feedback,
        tool_calls,
        answers,
        equal_calls,
        kept_calls,
        units,
        questions,
        labels,
        compared,
        piloted,
    )
    tables = (*schema.metadata.tables.values(), *others)
    return "\n".join([HEAD, *(line for table in tables for line in section(table))])


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

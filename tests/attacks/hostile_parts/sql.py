"""Attacks by model-written SQL: statements that write, read other files, outlast their time, or flood memory or disk."""

# ruff: noqa: E501

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vinelm.workflows.nl2sql.limited_sql import run_limited

TIMEOUT_S = 1.0
_GRACE_S = 3.0
MAX_GROWTH_BYTES = 300 << 20
"""What this process may grow by while it waits; a result may have 64 MB of text."""

_ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
_MERGE = "(SELECT json_group_object(x || '', x) FROM (" + _ENDLESS + "SELECT x FROM c LIMIT 60000))"
_DOUBLING = "WITH c0 AS (SELECT 1 AS x), " + ", ".join(
    f"c{i} AS (SELECT x FROM c{i - 1} UNION SELECT x FROM c{i - 1})" for i in range(1, 24)
)

LASTING = {
    "printf-width": "SELECT length(printf('%.*c', 2000000000, 'x'))",
    "printf-pad": "SELECT length(printf('%2000000000d', 1))",
    "format-width": "SELECT length(format('%.*c', 2000000000, 'x'))",
    "printf-many": "SELECT sum(length(printf('%.*c', 90000, 'x'))) FROM item a, item b, item c, item d, item e, item f",
    "json-patch": f"SELECT length(json_patch({_MERGE}, {_MERGE}))",
    "json-set": f"SELECT length(json_set({_MERGE}, '$.a', json({_MERGE})))",
    "json-each": _ENDLESS + "SELECT count(*) FROM c, json_each('[1,2,3]')",
    "with-doubling": _DOUBLING + " SELECT * FROM c23",
    "with-products": "WITH a AS (SELECT 1 FROM item x, item y, item z), b AS (SELECT 1 FROM a, a), c AS (SELECT 1 FROM b, b) "
    "SELECT count(*) FROM c, c",
    "recursion": _ENDLESS + "SELECT count(*) FROM c",
    "recursion-in-where": "SELECT * FROM item WHERE EXISTS (" + _ENDLESS + "SELECT 1 FROM c WHERE x < 0)",
    "cross-join": "SELECT count(*) FROM " + ", ".join(f"item i{n}" for n in range(40)),
    "like": "SELECT hex(randomblob(40000)) || 'b' LIKE '" + "%a" * 90 + "%z'",
    "glob": "SELECT replace(hex(zeroblob(40000)), '0', 'a') GLOB '" + "*a" * 90 + "*b'",
    "instr": "SELECT sum(instr(hex(zeroblob(40000)), hex(zeroblob(20000)) || '1')) FROM item a, item b, item c, item d, item e",
    "replace": "SELECT length(replace(replace(hex(zeroblob(45000)), '0', 'ab'), 'ab', '0')) FROM item a, item b, item c, item d",
    "sort": _ENDLESS + "SELECT randomblob(1000) AS r FROM c ORDER BY r",
    "group-concat": _ENDLESS + "SELECT group_concat(x, randomblob(900)) FROM c",
    "window": _ENDLESS + "SELECT sum(x) OVER (ORDER BY x ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM c",
    "date": _ENDLESS + "SELECT count(strftime('%Y', x)) FROM c",
}
"""Statements that outlast their time, in steps, inside one step, or while they are compiled."""

FLOODING = {
    "with-bomb": "WITH RECURSIVE c(x, s) AS (SELECT 1, hex(randomblob(400000)) UNION SELECT x + 1, s || x FROM c WHERE x < 5000) "
    "SELECT count(*) FROM c",
    "distinct": _ENDLESS + "SELECT DISTINCT x || '" + "y" * 9000 + "' FROM c",
    "materialized": "WITH c AS MATERIALIZED ("
    + _ENDLESS
    + "SELECT x || '"
    + "y" * 9000
    + "' FROM c) SELECT count(*) FROM c, c AS d",
    "wide-rows": _ENDLESS + "SELECT " + ", ".join(f"x + {n}" for n in range(900)) + " FROM c",
    "long-rows": _ENDLESS + "SELECT '" + "y" * 90000 + "' || x FROM c",
    "blobs": _ENDLESS + "SELECT zeroblob(99000) FROM c",
    "big-value": "SELECT zeroblob(2000000000)",
    "big-hex": "SELECT hex(hex(hex(zeroblob(90000))))",
    "deep-expression": "SELECT " + "(" * 20000 + "1" + ")" * 20000,
    "long-statement": "SELECT '" + "x" * 5_000_000 + "'",
    "many-terms": "SELECT 1" + " UNION ALL SELECT 1" * 20000,
    "temp-index": _ENDLESS + "SELECT a.x FROM c a JOIN c b ON a.x || '" + "y" * 900 + "' = b.x",
}
"""Statements that take memory or disk."""

WRITING = {
    "insert": "INSERT INTO item VALUES (9, 'x')",
    "update": "UPDATE item SET name = 'x'",
    "with-delete": "WITH a AS (SELECT 1) DELETE FROM item",
    "drop": "DROP TABLE item",
    "create-temp": "CREATE TEMP TABLE t AS SELECT 1",
    "attach": "ATTACH 'other.sqlite' AS other",
    "attach-memory": "ATTACH ':memory:' AS other",
    "vacuum-into": "VACUUM INTO 'stolen.sqlite'",
    "two-statements": "SELECT 1; DROP TABLE item",
    "load-extension": "SELECT load_extension('evil')",
    "readfile": "SELECT readfile('/etc/passwd')",
    "writefile": "SELECT writefile('stolen', 'x')",
    "edit": "SELECT edit('x', 'sh')",
    "fts-tokenizer": "SELECT fts3_tokenizer('simple', x'41414141')",
    "virtual-table": "CREATE VIRTUAL TABLE t USING fts5(a)",
    "csv-table": "SELECT * FROM csv('/etc/passwd')",
    "dbstat": "SELECT * FROM sqlite_dbpage",
    "pragma": "PRAGMA writable_schema = 1",
    "pragma-temp-store": "PRAGMA temp_store_directory = '/'",
    "pragma-heap": "PRAGMA hard_heap_limit = 0",
    "pragma-table": "SELECT * FROM pragma_database_list",
    "savepoint": "SAVEPOINT s",
    "explain-delete": "EXPLAIN DELETE FROM item",
    "analyze": "ANALYZE",
    "reindex": "REINDEX",
}
"""Statements that do more than read the database."""


def run(progress: Callable[[int, int], None], every: int = 1) -> dict[str, Any]:
    """Run every statement as model-written SQL; the counts, and what each tried and what came of it.

    Args:
        progress: called with the number of attacks that are done and that there are.
        every: runs each ``every``-th statement only.
    """
    attacks = [(kind, name, sql) for kind, group in _GROUPS.items() for name, sql in group.items()][::every]
    done: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shop = _database(Path(folder))
        for kind, name, sql in attacks:
            done.append(_attack(kind, name, sql, shop))
            progress(len(done), len(attacks))
    return {"attacks": done, "count": len(done), "got_through": sum(not attack["stopped"] for attack in done)}


_GROUPS = {"lasts": LASTING, "floods": FLOODING, "writes": WRITING}


def _database(folder: Path) -> Path:
    path = folder / "shop.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT);")
    connection.executemany("INSERT INTO item (name) VALUES (?)", [(f"item {n}",) for n in range(200)])
    connection.commit()
    connection.close()
    return path


def _attack(kind: str, name: str, sql: str, shop: Path) -> dict[str, Any]:
    content, files, memory = shop.read_bytes(), sorted(os.listdir()), _resident_bytes()
    started = time.monotonic()
    result = run_limited(shop, sql, timeout_s=TIMEOUT_S)
    late_s = time.monotonic() - started - TIMEOUT_S - _GRACE_S
    found = None
    if late_s > 0:
        found = f"{late_s:.1f} s late"
    elif _resident_bytes() - memory > MAX_GROWTH_BYTES:
        found = "the process that asked grew"
    elif shop.read_bytes() != content or sorted(os.listdir()) != files:
        found = "a file changed"
    elif kind == "writes" and result.status == "ok":
        found = "it ran"
    return {
        "name": name,
        "tried": kind,
        "stopped": found is None,
        "found": found,
        "report": f"{result.status}: {result.error}"[:200],
    }


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0

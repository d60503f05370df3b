"""Builds prompts, and extracts SQL from the models' answers."""

from __future__ import annotations

import hashlib
import re

SYSTEM = (
    "You translate questions about a SQLite database into SQL. Answer with one SQLite SELECT statement in a ```sql code block "
    "and nothing else. Return exactly the columns that the question asks for."
)
GENERATE = """Database schema:
{schema}

Question: {question}"""
REPAIR = """Database schema:
{schema}

Question: {question}

An earlier answer:
```sql
{sql}
```
{outcome}

Write a statement that answers the question."""

_FENCE = re.compile(r"```[ \t]*(?:(sqlite3?|sql)\b|[\w+-]*[ \t]*(?=\r?\n))?(.*?)(?:```|\Z)", re.S | re.I)
_QUERY = re.compile(r"^[ \t]*(?:SQL(?:Query)?[ \t]*:\s*)?((?:SELECT|WITH|VALUES)\b.*)", re.S | re.I | re.M)
_AFTER = re.compile(r"\n[ \t]*```|;[ \t]*\r?\n[ \t]*\r?\n")
"""Matches the end of a query outside a block: a stray fence, or a semicolon before an empty line."""


def extract_sql(text: str) -> str:
    """Return the SQL statement in a model's answer, stripped. Never raises.

    It is the whole text if that starts like a query, else the last fenced block (preferably one marked as SQL). Without such a
    block, it is the text from the first line that starts like a query, else the whole text.
    """
    found = _QUERY.search(text)
    blocks: list[tuple[str, str]] = [(marked, body.strip()) for marked, body in _FENCE.findall(text) if body.strip()]
    if blocks and not (found and not text[: found.start()].strip()):
        return [body for marked, body in blocks if marked or not any(m for m, _ in blocks)][-1]
    return (_AFTER.split(found.group(1), 1)[0] if found else text).strip()


def digest() -> str:
    """Return a hash of all prompts, which changes if any prompt changes."""
    return hashlib.sha256("\0".join((SYSTEM, GENERATE, REPAIR)).encode()).hexdigest()

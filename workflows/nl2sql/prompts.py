"""What the models are asked, and how SQL is read out of what they say."""

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

_FENCE = re.compile(r"```[ \t]*([A-Za-z0-9_+-]*)[ \t]*\r?\n?(.*?)(?:```|\Z)", re.DOTALL)
_START = re.compile(
    r"^[ \t]*(?:SQL(?:Query)?[ \t]*:[ \t]*)?((?:SELECT|WITH|VALUES)\b.*)", re.DOTALL | re.IGNORECASE | re.MULTILINE
)


def extract_sql(text: str) -> str:
    """The statement in a model's answer: the last fenced block (those marked as SQL first), else from the first line that
    starts like a query, else the whole text. Never raises; surrounding blanks are cut.
    """
    blocks = [(tag.lower(), body.strip()) for tag, body in _FENCE.findall(text) if body.strip()]
    marked = [body for tag, body in blocks if tag in ("sql", "sqlite")]
    if blocks:
        return marked[-1] if marked else blocks[-1][1]
    found = _START.search(text)
    return (found.group(1) if found else text).strip()


def digest() -> str:
    """Hash of all prompts: other prompts make another workflow."""
    return hashlib.sha256("\0".join((SYSTEM, GENERATE, REPAIR)).encode()).hexdigest()

"""Lines of OpenAI's Batch API: requests in one file, responses in another, joined by their ``custom_id``.

https://platform.openai.com/docs/guides/batch
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

_TABLE = "CREATE TABLE halves (id TEXT, is_request INTEGER, place TEXT, line TEXT)"
_LEFT = """
SELECT id, place, line, (SELECT COUNT(*) FROM halves AS other WHERE other.id = halves.id AND other.is_request)
FROM halves WHERE NOT is_request ORDER BY rowid
"""


class BatchPairs:
    """Joins the two halves of a call, whichever comes first. What waits for its other half is in a temporary file.

    Attributes:
        kept: How many halves have come.
        unanswered: At the end, how many requests have no response.
    """

    def __init__(self) -> None:
        self.kept = self.unanswered = 0
        self._halves: sqlite3.Connection | None = None

    def fed(self, place: str, record: object) -> Iterator[tuple[str, Any]]:
        """Yield the record itself where it is not a half; else what it is a half of, once both are there."""
        if not isinstance(record, dict) or (id_ := record.get("custom_id")) is None:
            yield place, record
            return
        is_request = "response" not in record
        if is_request != ("body" in record):  # both in one line, or not a line of a batch
            yield place, record
            return
        self.kept += 1
        if self._halves is None:
            self._halves = sqlite3.connect("", isolation_level=None)  # a file without a name, which ends with the connection
            self._halves.execute("PRAGMA journal_mode = OFF")
            self._halves.execute(_TABLE)
            self._halves.execute("CREATE INDEX by_id ON halves (id)")
        waiting = self._halves.execute("SELECT is_request, line FROM halves WHERE id = ?", (str(id_),)).fetchall()
        if len(waiting) == 1 and bool(waiting[0][0]) is not is_request:
            self._halves.execute("DELETE FROM halves WHERE id = ?", (str(id_),))
            other = json.loads(waiting[0][1])
            asked, answered = (record, other) if is_request else (other, record)
            yield place, {**answered, "body": asked["body"]}
        else:  # of several requests with this id, any may be the other half
            row = (str(id_), is_request, place, json.dumps(record))
            self._halves.execute("INSERT INTO halves VALUES (?, ?, ?, ?)", row)

    def rest(self, note: Callable[[str, str], None]) -> Iterator[tuple[str, Any]]:
        """Yield the responses that are left without a request; those that may belong to one of several are told to ``note``."""
        if self._halves is None:
            return
        count = "SELECT COUNT(*) FROM halves WHERE is_request"
        self.unanswered = self._halves.execute(count).fetchone()[0]
        left = self._halves.execute(_LEFT)
        for id_, place, line, requests in left:
            if requests:
                note(place, f"several lines have the custom_id {id_!r}: give the files of one batch, and its prompts are found")
            yield place, json.loads(line)
        self._halves.close()

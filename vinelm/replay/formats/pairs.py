"""Joins lines of OpenAI's Batch API, with requests in one file and responses in another, by their ``custom_id``.

https://platform.openai.com/docs/guides/batch
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

_TABLE = "CREATE TABLE halves (id TEXT, is_request INTEGER, place TEXT, line TEXT)"
_RESPONSES = "SELECT id, place, line FROM halves WHERE NOT is_request ORDER BY rowid"
_OF_ID = """
SELECT SUM(is_request), SUM(NOT is_request), COUNT(DISTINCT CASE WHEN is_request THEN line END),
       MAX(CASE WHEN is_request THEN line END)
FROM halves WHERE id = ?
"""
_UNANSWERED = """
SELECT COUNT(*) FROM halves AS asked WHERE is_request
AND NOT EXISTS (SELECT 1 FROM halves WHERE id = asked.id AND NOT is_request)
"""


class BatchPairs:
    """Joins requests and responses that have the same ``custom_id``, after all lines have been read.

    Until then, the lines are in a temporary file. Only all lines together show whether several batches use the same id.

    Attributes:
        kept: Number of requests and responses that were stored to be joined.
        unanswered: Number of stored requests without a response; counted by :meth:`rest`.
    """

    def __init__(self) -> None:
        self.kept = self.unanswered = 0
        self._halves: sqlite3.Connection | None = None

    def fed(self, place: str, record: object) -> Iterator[tuple[str, Any]]:
        """Yield (place, record) unchanged, unless the record is only a request or only a response of a batch.

        Such a record is stored until :meth:`rest` joins it with its other half. ``place`` is the record's file and line.
        """
        if not isinstance(record, dict) or (id_ := record.get("custom_id")) is None:
            yield place, record
            return
        is_request = "response" not in record
        if is_request != ("body" in record):  # both halves in one line, or not a line of a batch
            yield place, record
            return
        self.kept += 1
        if self._halves is None:
            self._halves = sqlite3.connect("", isolation_level=None)  # a file without a name, which ends with the connection
            self._halves.execute("PRAGMA journal_mode = OFF")
            self._halves.execute(_TABLE)
        self._halves.execute("INSERT INTO halves VALUES (?, ?, ?, ?)", (str(id_), is_request, place, json.dumps(record)))

    def rest(self, note: Callable[[str, str], None]) -> Iterator[tuple[str, Any]]:
        """Yield (place, record) for each response, joined with its request; ``place`` is the file and line of the response.

        A response that belongs to no request, or may belong to several requests, has no prompt. For a response whose request
        is ambiguous, ``note`` is called with the place of the response and the reason.
        """
        if self._halves is None:
            return
        self._halves.execute("CREATE INDEX by_id ON halves (id)")
        self.unanswered = self._halves.execute(_UNANSWERED).fetchone()[0]
        for id_, place, line in self._halves.execute(_RESPONSES):
            requests, responses, prompts, asked = self._halves.execute(_OF_ID, (id_,)).fetchone()
            answered = json.loads(line)
            if prompts == 1 and responses <= requests:  # also if a failed batch was sent once more
                answered["body"] = json.loads(asked)["body"]
            elif prompts:
                note(place, f"several lines have the custom_id {id_!r}: give the files of one batch, and its prompts are found")
            yield place, answered
        self._halves.close()

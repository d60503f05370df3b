"""The state of a run in its store: its checkpoints, and the settings for resuming it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, select

from vinelm.traces.databases import schema
from vinelm.traces.store.rows import decode_prefix
from vinelm.traces.store.store import ObservationStore

UNFINISHED = "unfinished_run"
"""The key in ``meta`` of a run that has not completed: its settings, and ``rows``, the number of rows before it started."""
LAST = "last_run"
"""The key in ``meta`` of the settings of the last started run, completed or not."""

ONLY_FAILURES = "only_failures"
"""The key in ``meta`` that is present if every row had failed when the last profile ended; the next one executes them again."""

WANTED = "wanted_runs"
"""The key in ``meta`` of the runs that verdicts lacked: a list of [the number of rows at the verdict, runs], oldest first."""


class RunRecords:
    """Reads and writes what a store records of its current run, other than rows. Writes are durable.

    The caller has locked the store (:meth:`ObservationStore.exclusive`).
    """

    def __init__(self, store: ObservationStore) -> None:
        self.store = store
        self._database = store.database

    # -- checkpoints -------------------------------------------------------------------------------------------

    def checkpoint_cells(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the (request, prefix) pairs of the rows that have a checkpoint. A prefix is the models of the calls so far."""
        with self._database.transaction() as connection:
            found = connection.execute(select(schema.checkpoints.c.request_id, schema.checkpoints.c.prefix))
            return [(row[0], decode_prefix(row[1])) for row in found]

    # -- settings and resumption ------------------------------------------------------------------------------

    def begin(self, settings: Mapping[str, Any]) -> int:
        """Record that a run with these settings (plain JSON) has started.

        An unfinished run with the same settings is resumed.

        Returns:
            The number of rows in the store when the run first started.
        """
        with self._database.transaction() as connection:
            unfinished = _recorded(connection, UNFINISHED)
            _record(connection, LAST, dict(settings))
            # Compared in the form that JSON returns: a tuple among the settings would differ from its own list.
            if unfinished is not None and unfinished["settings"] == json.loads(json.dumps(dict(settings))):
                return int(unfinished["rows"])
            count = select(func.count()).select_from(schema.observations)
            rows = int(connection.execute(count).scalar_one())
            _record(connection, UNFINISHED, {"settings": dict(settings), "rows": rows})
            return rows

    def want(self, rows: int, runs: Sequence[Sequence[Any]]) -> None:
        """Record the runs that a verdict lacked when the profile had this number of rows.

        A run is the models of its calls; an element is a dict if a call may run several stages.
        """
        with self._database.transaction() as connection:
            found = _recorded(connection, WANTED) or {"wanted": []}
            _record(connection, WANTED, {"wanted": [*found["wanted"], [rows, runs]]})

    def wanted(self) -> list[tuple[int, list[tuple[Any, ...]]]]:
        """Return what :meth:`want` has recorded, oldest first."""
        with self._database.transaction() as connection:
            found = _recorded(connection, WANTED) or {"wanted": []}
        return [(int(rows), [tuple(run) for run in runs]) for rows, runs in found["wanted"]]

    def note_only_failures(self) -> None:
        """Record that every row of the store failed, and that the next run should execute all of them again."""
        with self._database.transaction() as connection:
            _record(connection, ONLY_FAILURES, {"rows": len(self.store)})

    def forget_only_failures(self) -> bool:
        """Delete the note that only failures are stored, which :meth:`note_only_failures` wrote; return whether it existed."""
        with self._database.transaction() as connection:
            return bool(connection.execute(delete(schema.meta).where(schema.meta.c.key == ONLY_FAILURES)).rowcount)

    def last_settings(self) -> Mapping[str, Any] | None:
        """Return the settings of the last started run; None if there is none or an old version did not record them."""
        with self._database.transaction() as connection:
            last, unfinished = _recorded(connection, LAST), _recorded(connection, UNFINISHED)
            return last if last is not None or unfinished is None else dict(unfinished["settings"])

    def end(self) -> None:
        """Record that the run has completed and need not be resumed."""
        with self._database.transaction() as connection:
            connection.execute(delete(schema.meta).where(schema.meta.c.key == UNFINISHED))


def _recorded(connection: Connection, key: str) -> dict[str, Any] | None:
    text = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == key)).scalar()
    return json.loads(text) if text else None


def _record(connection: Connection, key: str, plain: Mapping[str, Any]) -> None:
    schema.set_meta(connection, key, json.dumps(dict(plain)))

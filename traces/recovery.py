"""After a run that did not end in good order: are all its rows in this file?

Rows are durable in the log beside the file (``STORE-wal``) before they are in the file itself. A store whose run was killed
still has its log and loses nothing. A *copy* made while a run was writing may lack it, or have another moment's: SQLite would
open it without a word, rows short. So a run leaves a mark in the file itself for as long as it lasts.
"""

from __future__ import annotations

from pathlib import Path

from vinelm.errors import StoreError
from vinelm.traces.lock import holder, run_lock
from vinelm.traces.sqlite import Database

OPEN_RUN = "open_run"
"""Key of ``meta``: a run holds the store, or died while it did."""


def recover(path: Path, *, accept: bool = False) -> None:
    """Take the mark of a dead run off the store at ``path``; nothing if the run is alive.

    :class:`StoreError`, and nothing written, if the log is missing (unless ``accept``: whatever rows the file has are taken as
    all there are) or does not fit the file.
    """
    if holder(path) is not None:
        return
    if not accept and not path.with_name(f"{path.name}-wal").exists():
        raise StoreError(
            f"{path}: copied while a run was writing to it, without its log, so that rows are missing: copy {path.name}-wal "
            f"beside it, or go on without them after `vinelm store check --accept {path.name}`"
        )
    with run_lock(path):
        database = Database(path)
        try:
            with database.transaction() as connection:
                wrong = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
                if wrong != "ok":
                    raise StoreError(f"{path}: file and log are not of the same moment: copy both while no run is writing")
                connection.exec_driver_sql("DELETE FROM meta WHERE key = ?", (OPEN_RUN,))
        finally:
            database.close()

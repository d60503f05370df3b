"""Loads the bundled tickets, each with its desk, the facts to look up, and the right reply."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from vinelm.requests.workflow import Request
from vinelm.workflows.nl2sql.bundled import BundledDataset, bundled_dataset

Desk = Literal["billing", "technical", "other"]
DESKS: tuple[str, ...] = get_args(Desk)
DB_ID = "helpdesk"
DATA = Path(__file__).parent / "data"


def tickets(data: BundledDataset | None = None) -> tuple[Request, ...]:
    """Return the tickets as requests; the desks take turns, so that the first n are a fair sample.

    The data of each request have the ``ticket`` and its labels ``desk`` and ``reply``. If there are facts to look up, they also
    have ``db_id`` and ``gold_sql``, or ``article``. ``misleading`` says whether the ticket begins as if it were for another
    desk.

    ``data`` has the dataset's rows; None loads the bundled dataset.
    """
    rows = (data or load_bundled()).questions
    return tuple(Request(row["id"], {key: value for key, value in row.items() if key != "id"}) for row in rows)


def load_bundled(cache_dir: Path | None = None) -> BundledDataset:
    """Return the order database, which is written to a cache folder on first use, and the tickets."""
    return bundled_dataset(cache_dir, name="support", data=DATA)

"""Addresses of stores in PostgreSQL: ``postgresql://user@host/database``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from vinelm.errors import StoreError
from vinelm.io.atomic import require_regular

_START = re.compile(r"postgres(?:ql)?:/+")


@dataclass(frozen=True)
class PostgresUrl:
    """The address of a store in PostgreSQL. ``str()`` of it leaves out password and options, so that messages can show it.

    Args:
        url: the URL for SQLAlchemy, with driver and password.
    """

    url: URL

    def __str__(self) -> str:
        shown = URL.create(
            "postgresql", username=self.url.username, host=self.url.host, port=self.url.port, database=self.url.database
        )
        return shown.render_as_string()

    @property
    def name(self) -> str:
        """The name of the database."""
        return self.url.database or str(self.url.username)


StoreAddress = Path | PostgresUrl
"""The location of a store: a file or a database."""


def address_of(where: str | Path | PostgresUrl) -> StoreAddress:
    """Return the address of the store that ``where`` names: a database if it begins with ``postgresql://``, else a file.

    A :class:`~pathlib.Path` made from such a URL is also accepted if the URL names a host, although ``Path`` turns ``//`` into
    ``/``.

    Raises:
        StoreError: the address cannot be parsed. The message omits its text, which may contain a password.
    """
    if isinstance(where, PostgresUrl):
        return where
    start = _START.match(str(where))
    if start is None:
        path = Path(where)  # for a link, the target file: its log and its lock are next to it
        return Path(os.path.realpath(path)) if path.is_symlink() else path
    try:
        url = make_url(f"postgresql+psycopg://{str(where)[start.end() :]}")
    except (ArgumentError, ValueError) as error:
        raise StoreError("not an address of PostgreSQL: write postgresql://user@host:port/database") from error
    return PostgresUrl(url)


def file_of(where: StoreAddress, what: str) -> Path:
    """Return the path of a store that is a file.

    Args:
        where: the store's address.
        what: the operation that needs a file, such as ``a merge``, for the error message.

    Raises:
        StoreError: the store is a PostgreSQL database.
    """
    address = address_of(where)
    if isinstance(address, PostgresUrl):
        raise StoreError(f"{address}: {what} takes files only: vinelm store export it, and store import that into a file")
    return address


def require_store_file(path: Path) -> None:
    """Raise :class:`StoreError` if ``path`` is a folder, device or pipe, which SQLite cannot use."""
    try:
        require_regular(path)
    except OSError as error:
        text = f"{path}: cannot read the store: {error.strerror}: use the path of an observation store, or of a new file"
        raise StoreError(text) from error

"""Prompts of a store's rows, as keyed hashes of text prefixes (called shapes), never as text.

Each store has a random key, so shapes of different stores never match. The first profile creates the table.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Column, Connection, Integer, LargeBinary, MetaData, String, Table, inspect, select
from sqlalchemy.dialects.postgresql import insert

from vinelm.errors import StoreError
from vinelm.prompts.layout import StagePrompts, stages_of
from vinelm.prompts.radix import PromptTree
from vinelm.prompts.shape import Shape
from vinelm.prompts.stored import KEY_BYTES, unpacked
from vinelm.rows.observation import Cell, Observation
from vinelm.traces.databases import schema
from vinelm.traces.store.rows import decode_prefix, encode_prefix
from vinelm.traces.store.store import ObservationStore

metadata = MetaData()
prompts = Table(
    "prompts",
    metadata,
    Column("prompt_id", Integer, primary_key=True, autoincrement=True, comment="order; the last one of a row holds"),
    Column("request_id", String, nullable=False, comment="the request"),
    Column("prefix", String, nullable=False, comment="the row's prefix, JSON list"),
    Column("shapes", LargeBinary, nullable=False, comment="keyed hashes of the prefixes of each call's prompt, by 128 tokens"),
    comment="Which prompts begin alike; no text. Made with the first profile of a version that has it.",
)
_ADD = insert(prompts)
PROMPT_KEY = "prompt_key"
"""The key of ``meta`` whose value is, in hex, the secret key of the hashes in the table ``prompts``."""


class StoredPrompts:
    """Reads and adds the shapes (hashes) of a store's prompts."""

    def __init__(self, store: ObservationStore) -> None:
        self._store, self._database = store, store.database

    def begin(self) -> bytes:
        """Return the secret key with which the store's prompts are hashed; create key and table if missing.

        The caller must have locked the store.
        """
        with self._database.transaction() as connection:
            metadata.create_all(connection)
            return _set_key(connection, os.urandom(KEY_BYTES))

    def add(self, request_id: str, prefix: Sequence[str], shapes: bytes) -> None:
        """Store the shapes (hashed prefixes) of the prompts of a row's calls. Joins the caller's transaction.

        ``shapes`` are bytes from :func:`~vinelm.prompts.stored.packed`, with the key that :meth:`begin` returns.
        """
        with self._database.transaction() as connection:
            connection.execute(_ADD, {"request_id": request_id, "prefix": encode_prefix(prefix), "shapes": shapes})

    def of_cached(self, rows: Sequence[Observation]) -> dict[Cell, tuple[Shape, ...]]:
        """Return the prompt shapes of all stored rows, keyed by (request, prefix), if any of ``rows`` used a prompt cache.

        Otherwise return an empty mapping. See :meth:`read`.
        """
        return self.read() if any(row.tokens_cached for row in rows) else {}

    def read(self) -> dict[Cell, tuple[Shape, ...]]:
        """Return the shapes of each row's calls, for rows that have them; empty if no shapes are recorded.

        Raises:
            StoreError: some shapes were encrypted with another key, or are damaged.
        """
        with self._database.transaction() as connection:
            found, key = _packed(connection), _key(connection)
        shapes = {}
        for (request_id, prefix), data in found.items():
            try:
                shapes[request_id, decode_prefix(prefix)] = unpacked(data, key or b"")
            except ValueError as error:
                raise StoreError(
                    f"{self._store.path}: the prompt shapes of request {request_id!r} are {error}: "
                    "join stores with `vinelm store merge`, or delete the table prompts",
                    code="store-damaged",
                ) from None
        return shapes


def copy_prompts(source: Connection, target: Connection, cells: Collection[Cell]) -> int:
    """Copy the prompt hashes (shapes) of these rows, given by (request, prefix), to another store.

    Joins the caller's transactions.

    Returns:
        The number of rows whose hashes are not copied, because the stores use different keys for hashing; otherwise 0.
    """
    wanted = {(request_id, encode_prefix(prefix)) for request_id, prefix in cells}
    found = {cell: data for cell, data in _packed(source).items() if cell in wanted}
    key = _key(source)
    if not found or key is None:
        return 0
    metadata.create_all(target)
    if _set_key(target, key) != key:
        return len(found)
    target.execute(_ADD, [{"request_id": r, "prefix": prefix, "shapes": data} for (r, prefix), data in found.items()])
    return 0


def prompt_stages(rows: Sequence[Observation], shapes: Mapping[Cell, Sequence[Shape]]) -> tuple[StagePrompts, ...]:
    """Return one item for each stage: how many tokens its prompts have in common with other prompts in ``shapes``."""
    return stages_of(_tree(rows, shapes))


def prompt_tokens(rows: Sequence[Observation], shapes: Mapping[Cell, Sequence[Shape]]) -> dict[Cell, tuple[int, int]]:
    """Return (static, shared), two numbers of prompt tokens, for each row whose shapes and tokens are known.

    The keys are (request, prefix). Static tokens are sent by most requests of the stage. Shared tokens are not static, but at
    least one other request sends them; see :class:`~vinelm.prompts.radix.TokensByLabel`. Their shares are measured on the texts
    and applied to the tokens that the provider counted.
    """
    labels = iter(_tree(rows, shapes).labels().tolist())
    found = {}
    for row in rows:
        calls = [next(labels) for _ in shapes.get((row.request_id, row.prefix), ())]
        total = sum(map(sum, calls))
        if total and row.tokens_in is not None:
            static, shared = (round(row.tokens_in * sum(call[k] for call in calls) / total) for k in (0, 1))
            found[row.request_id, row.prefix] = (static, shared)
    return found


def _tree(rows: Sequence[Observation], shapes: Mapping[Cell, Sequence[Shape]]) -> PromptTree:
    tree = PromptTree()
    for row in rows:
        for shape in shapes.get((row.request_id, row.prefix), ()):
            tree.add(row.stage, row.request_id, shape)
    return tree


def _key(connection: Connection) -> bytes | None:
    text = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == PROMPT_KEY)).scalar()
    return None if text is None else bytes.fromhex(text)


def _set_key(connection: Connection, key: bytes) -> bytes:
    """Return the key with which the store's prompts are hashed; if the store has no key, set ``key`` first."""
    values = {"key": PROMPT_KEY, "value": key.hex()}
    connection.execute(insert(schema.meta).on_conflict_do_nothing(), values)
    return _key(connection) or key


def _packed(connection: Connection) -> dict[tuple[str, str], bytes]:
    """Return the packed shapes of each row's prompts, keyed by (request id, prefix as JSON text)."""
    if not inspect(connection).has_table(prompts.name):
        return {}
    columns = (prompts.c.request_id, prompts.c.prefix, prompts.c.shapes)
    return {(row[0], row[1]): row[2] for row in connection.execute(select(*columns).order_by(prompts.c.prompt_id))}

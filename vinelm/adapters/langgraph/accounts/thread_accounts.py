"""The accounts of a thread's requests: which of them a run goes on with, and what it has paid.

A request begins with an input and goes on through interrupts, failures, ``Command(resume=...)``, ``update_state`` and older
checkpoints, in whichever process. Its account is found by the path that it continues, by its ``request_id``, or, before any
stage has finished, by the checkpoints that it descends from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import Any, NamedTuple
from uuid import UUID, uuid4, uuid5

from vinelm.adapters.langgraph.accounts.saver_rows import Row, SaverRows

_PAGES, _REQUESTS = "vinelm_paid", "vinelm_request"
"""Namespaces: pages with the accounts of many requests, and a row for each ``request_id``."""
_OF_REQUEST = "request-"
_NAMES = UUID("5f3c1b52-6d0e-4c1c-9a57-0f4d4be0a1c3")
_MOST_ON_PAGE = 400
"""Values on a page, after which the next account begins another one."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where in its thread a run makes its first invocation.

    Attributes:
        checkpoint_id: the root graph's checkpoint that the invocation follows.
        request_id: the request's id if the caller gave one.
        account: key of the account of the path that it continues; None if it continues none, or that has no account.
        after: key of the account of the path that it begins behind, empty without one; None if the path is not known.
        is_saved_late: whether LangGraph saves checkpoints only when the run ends.
    """

    checkpoint_id: str | None
    request_id: str | None = None
    account: str | None = None
    after: str | None = None
    is_saved_late: bool = False


class FoundAccount(NamedTuple):
    """An account, with the dollars that are written in it: settled calls, and those under way at their upper bounds."""

    key: str
    paid_usd: float
    is_new: bool = False


@dataclass(slots=True)
class _Known:
    """An account on a page."""

    after: str | None = None
    usd: list[float] = field(default_factory=list)
    checkpoint_ids: list[str] = field(default_factory=list)

    @property
    def paid_usd(self) -> float:
        return round(fsum(self.usd), 12)  # what was reserved and given back leaves no dust


class ThreadAccounts:
    """Finds the account of a run, and writes to it. Methods are coroutines as those of :class:`SaverRows`."""

    __slots__ = ("_last_page", "_made", "_rows")

    def __init__(self, rows: SaverRows) -> None:
        self._rows = rows
        self._last_page = _page(0)
        self._made: set[Row] = set()

    async def find(self, begun: Beginning, *, is_async: bool) -> FoundAccount:
        """Return the account that the run goes on with, or a new one."""
        if begun.account is not None:
            return await self._stored(begun.account, is_async=is_async)
        key = None if begun.request_id is None else f"{_OF_REQUEST}{uuid5(_NAMES, begun.request_id)}"
        if key is not None:
            found = await self._rows.read(_row_of(key), is_async=is_async)
            if found is not None:
                return self._read(key, found)
        page, values = await self._rows.latest(_PAGES, is_async=is_async) or (_page(0), None)
        if values is not None:
            self._made.add(page)
        self._last_page = page
        known = _accounts(values or ())
        if key is not None:  # a request that was given its id later
            known = {name: one for name, one in known.items() if not name.startswith(_OF_REQUEST)}
        match = await self._match(begun, known, is_async=is_async)
        if match is None:
            number = _number(page) + (len(values or ()) >= _MOST_ON_PAGE)
            return FoundAccount(key or f"{number}-{uuid4().hex[:12]}", 0.0, is_new=True)
        if match.startswith(_OF_REQUEST):
            return await self._stored(match, is_async=is_async)
        return FoundAccount(match, known[match].paid_usd)

    async def pay(self, account: FoundAccount, usd: float, begun: Beginning | None, *, is_async: bool) -> None:
        """Add dollars to an account, which may be negative. ``begun`` is given with the first ones of a run."""
        value: dict[str, Any] = {"account": account.key, "usd": usd}
        row = _row_of(account.key)
        if begun is not None:
            value["at"] = begun.checkpoint_id
            if account.is_new:
                value["after"] = begun.after
                if row.namespace == _REQUESTS:  # for a run that goes on with it and does not give the id
                    await self._write(self._last_page, {**value, "usd": 0.0}, is_async=is_async)
        await self._write(row, value, is_async=is_async)

    async def _write(self, row: Row, value: Mapping[str, Any], *, is_async: bool) -> None:
        if row not in self._made:
            await self._rows.create(row, is_async=is_async)
            self._made.add(row)
        await self._rows.append(row, value, is_async=is_async)

    async def _stored(self, key: str, *, is_async: bool) -> FoundAccount:
        return self._read(key, await self._rows.read(_row_of(key), is_async=is_async))

    def _read(self, key: str, values: list[Mapping[str, Any]] | None) -> FoundAccount:
        if values is None:
            return FoundAccount(key, 0.0)
        self._made.add(_row_of(key))
        return FoundAccount(key, _accounts(values).get(key, _Known()).paid_usd)

    async def _match(self, begun: Beginning, known: Mapping[str, _Known], *, is_async: bool) -> str | None:
        """The account that the run goes on with although it continues no path; None for a new one."""
        mine = {key: one for key, one in known.items() if begun.after is None or one.after in (None, begun.after)}
        if not mine:
            return None
        found = [key for key, one in mine.items() if begun.checkpoint_id in one.checkpoint_ids]
        if not found:
            line = await self._rows.lineage(begun.checkpoint_id, is_async=is_async, waits=not begun.is_saved_late)
            found = [key for key, one in mine.items() if not set(line.ids).isdisjoint(one.checkpoint_ids)]
            if not found:
                same, unknown = await self._of_birth(line.birth, mine, is_async=is_async)
                found = same or (unknown if begun.request_id is None else [])  # not known: the cap has to hold
        return max(found, key=lambda key: mine[key].paid_usd, default=None)

    async def _of_birth(self, birth: str | None, mine: Mapping[str, _Known], *, is_async: bool) -> tuple[list[str], list[str]]:
        """The accounts of the input with that checkpoint, and those that may be."""
        if birth is None:
            return [], list(mine)
        same, unknown = [], []
        for key, one in mine.items():
            later = [at for at in one.checkpoint_ids if at > birth]  # ids are ordered by time
            births = [(await self._rows.lineage(at, is_async=is_async, waits=False)).birth for at in later]
            if birth in births:
                same.append(key)
            elif None in births:
                unknown.append(key)
        return same, unknown


def _accounts(values: Iterable[Mapping[str, Any]]) -> dict[str, _Known]:
    found: dict[str, _Known] = {}
    for value in values:
        one = found.setdefault(str(value.get("account")), _Known())
        one.usd.append(float(value.get("usd", 0.0)))
        if value.get("at") is not None:
            one.checkpoint_ids.append(value["at"])
        if "after" in value:
            one.after = value["after"]
    return found


def _row_of(key: str) -> Row:
    if key.startswith(_OF_REQUEST):
        return Row(_REQUESTS, key.removeprefix(_OF_REQUEST))
    return _page(int(key.partition("-")[0]))


def _page(number: int) -> Row:
    """Ids of pages are of the form of LangGraph's own, so that those who read it out of them are not surprised."""
    return Row(_PAGES, f"00000000-0000-6000-8000-{number:012x}")


def _number(page: Row) -> int:
    return int(page.id.rpartition("-")[2], 16)


__all__ = ["Beginning", "FoundAccount", "ThreadAccounts"]

"""Finds the account of a thread's request that a run continues, and records what the run pays.

A request begins with an input and continues through interrupts, failures, ``Command(resume=...)``, ``update_state`` and older
checkpoints, in any process. Its account is found by its ``request_id``, or by the run's earlier checkpoints: the checkpoint at
which a run of the request first paid, or else the input's checkpoint. The path does not identify the account, since a stage
that does not finish leaves no entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import Any, NamedTuple
from uuid import UUID, uuid4, uuid5

from vinelm.adapters.langgraph.accounts.saver_rows import SaverRow, SaverRows

_PAGES, _REQUESTS = "vinelm_paid", "vinelm_request"
"""Namespaces: pages with the accounts of many requests, and a row for each ``request_id``."""
_OF_REQUEST = "request-"
_NAMES = UUID("5f3c1b52-6d0e-4c1c-9a57-0f4d4be0a1c3")
_MOST_ON_PAGE = 400
"""How many values a page holds before the next account begins a new page."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where in its thread (LangGraph's saved states) a run makes its first invocation.

    Attributes:
        checkpoint_id: the root graph's checkpoint that the invocation follows.
        request_id: the request's id, if the caller set it.
        account: the key of the account that the stored path names, if the run continues this path; otherwise None. Needed if
            checkpoints are not saved.
        after: if the run begins a new request, the key of the previous request's account. It is empty if that request has no
            account, None if this is unknown.
        is_saved_late: whether LangGraph saves checkpoints only when the run ends.
    """

    checkpoint_id: str | None
    request_id: str | None = None
    account: str | None = None
    after: str | None = None
    is_saved_late: bool = False


class FoundAccount(NamedTuple):
    """An account of a request, as found by :meth:`ThreadAccounts.find`.

    Attributes:
        key: the account's name.
        paid_usd: the sum of the recorded costs in dollars; calls in flight count at their maximum cost.
        is_new: whether the account has no records yet.
        birth: id of the checkpoint of the request's input; None if it was not looked up.
    """

    key: str
    paid_usd: float
    is_new: bool = False
    birth: str | None = None


@dataclass(slots=True)
class _Known:
    """The records of one account, read from a page, which is a stored row with the records of several accounts.

    Attributes:
        after: key of the account of the thread's previous request; empty if that request has no account, None if this is
            unknown.
        birth: id of the checkpoint of the request's input; None if it was not looked up.
        usd: the recorded amounts in dollars, negative for corrections.
        checkpoint_ids: for each run of the request, the id of the checkpoint at which it first paid.
    """

    after: str | None = None
    birth: str | None = None
    usd: list[float] = field(default_factory=list)
    checkpoint_ids: list[str] = field(default_factory=list)

    @property
    def paid_usd(self) -> float:
        return round(fsum(self.usd), 12)  # rounding removes the dust that reserving and giving back leaves


class ThreadAccounts:
    """Finds the account that a run pays from, and records payments in it.

    Methods are coroutines; with ``is_async=False`` they call the checkpointer's synchronous methods and never wait.
    """

    __slots__ = ("_last_page", "_made", "_rows")

    def __init__(self, rows: SaverRows) -> None:
        self._rows = rows
        self._last_page = _page(0)
        self._made: set[SaverRow] = set()

    async def find(self, begun: Beginning, *, is_async: bool) -> FoundAccount:
        """Return the account of the request that a run continues; a new account if there is none.

        ``begun`` is the position in the thread where the run begins.
        """
        key = None if begun.request_id is None else f"{_OF_REQUEST}{uuid5(_NAMES, begun.request_id)}"
        if key is not None:
            values = await self._rows.read(_row_of(key), is_async=is_async)
            if values is not None:
                self._made.add(_row_of(key))
                return FoundAccount(key, _accounts(values)[key].paid_usd)
        latest, known = await self._known(begun.account, is_async=is_async)
        if key is not None:  # a request that was given its id later
            known = {name: one for name, one in known.items() if not name.startswith(_OF_REQUEST)}
        match, birth = await self._match(begun, known, is_async=is_async)
        if match is None:
            return FoundAccount(key or f"{latest}-{uuid4().hex[:12]}", 0.0, is_new=True, birth=birth)
        if match.startswith(_OF_REQUEST):
            known = _accounts(await self._rows.read(_row_of(match), is_async=is_async) or ())
        return FoundAccount(match, known.get(match, _Known()).paid_usd, birth=birth)

    async def _known(self, account: str | None, *, is_async: bool) -> tuple[int, dict[str, _Known]]:
        """Return the number of the page to which a new account is added, and the stored accounts by key.

        A page is a stored row with several accounts. Only the accounts on the last page and on the page of ``account`` are
        read. ``account`` is the key that the run's path contains, None without one.
        """
        page, values = await self._rows.latest(_PAGES, is_async=is_async) or (_page(0), None)
        if values is None:
            return 0, {}
        self._made.add(page)
        known, number = _accounts(values), _number(page)
        if account is not None and _row_of(account) not in {page, *self._made} and not account.startswith(_OF_REQUEST):
            known |= _accounts(await self._rows.read(_row_of(account), is_async=is_async) or ())
        self._last_page = _page(number + (len(values) >= _MOST_ON_PAGE))
        return _number(self._last_page), known

    async def pay(self, account: FoundAccount, usd: float, begun: Beginning | None, *, is_async: bool) -> None:
        """Add dollars, which may be negative, to an account.

        ``begun`` is the position where the run begins; None after the run's first payment.
        """
        value: dict[str, Any] = {"account": account.key, "usd": usd}
        row = _row_of(account.key)
        if begun is not None:
            value |= {"at": begun.checkpoint_id, "birth": account.birth}
            if account.is_new:
                value["after"] = begun.after
                if row.namespace == _REQUESTS:  # for a run that continues the account without giving the id
                    await self._write(self._last_page, {**value, "usd": 0.0}, is_async=is_async)
        await self._write(row, value, is_async=is_async)

    async def _write(self, row: SaverRow, value: Mapping[str, Any], *, is_async: bool) -> None:
        if row not in self._made:
            await self._rows.create(row, is_async=is_async)
            self._made.add(row)
        await self._rows.append(row, value, is_async=is_async)

    async def _match(self, begun: Beginning, known: Mapping[str, _Known], *, is_async: bool) -> tuple[str | None, str | None]:
        """Return the key of the account in ``known`` that the run continues, and the id of the checkpoint with the request's
        input.

        The key is None if the run needs a new account; the id is None if it was not found or not needed.
        """
        if not known:
            return None, None
        begins = {at for one in known.values() for at in one.checkpoint_ids}
        line = await self._rows.lineage(begun.checkpoint_id, begins, is_async=is_async, waits=not begun.is_saved_late)
        ids = {begun.checkpoint_id, *line.ids}
        found = [key for key, one in known.items() if not ids.isdisjoint(one.checkpoint_ids)]
        if not found and line.birth is None and begun.account is not None:
            return begun.account, None
        if not found:
            same, unknown = await self._of_birth(line.birth, begun.after, known, is_async=is_async)
            found = same or (unknown if begun.request_id is None else [])  # unknown: the cap has to hold in any case
        # The account that has paid most: even if it is the wrong one, the cap holds.
        return max(found, key=lambda key: known[key].paid_usd, default=None), line.birth

    async def _of_birth(
        self, birth: str | None, after: str | None, known: Mapping[str, _Known], *, is_async: bool
    ) -> tuple[list[str], list[str]]:
        """Return two lists of keys of ``known``: accounts of the run's request, and accounts that may belong to it.

        The first list has the accounts of the request whose input is in the checkpoint ``birth``. The second list has the
        accounts of requests whose input checkpoint is unknown.

        If ``birth`` is None, the first list is empty, and the second has the accounts that may have been opened right after
        the account ``after``. If both are None, the second list has all accounts.
        """
        if birth is None:
            return [], [key for key, one in known.items() if after is None or one.after in {None, after}]
        same, unknown = [], []
        for key, one in known.items():
            later = [at for at in one.checkpoint_ids if at > birth and one.birth is None]  # ids are ordered by time
            births = (
                [one.birth]
                if one.birth
                else [(await self._rows.lineage(at, is_async=is_async, waits=False)).birth for at in later]
            )
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
        one.birth = value.get("birth") or one.birth
        if "after" in value:
            one.after = value["after"]
    return found


def _row_of(key: str) -> SaverRow:
    if key.startswith(_OF_REQUEST):
        return SaverRow(_REQUESTS, key.removeprefix(_OF_REQUEST))
    return _page(int(key.partition("-")[0]))


def _page(number: int) -> SaverRow:
    """Return the row of the page (a stored list of accounts) with this number.

    The row's id has LangGraph's format, because some checkpointers parse ids.
    """
    return SaverRow(_PAGES, f"00000000-0000-6000-8000-{number:012x}")


def _number(page: SaverRow) -> int:
    return int(page.id.rpartition("-")[2], 16)

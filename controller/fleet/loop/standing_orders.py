"""Keeps the fleet's orders in one process: fetches them in the background, so that calls read them from memory."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

from vinelm.controller.fleet.loop.leadership import ORDERS, ORDERS_FOR_S
from vinelm.controller.fleet.loop.order_bytes import COMMON, LocalOrders, local_orders, own_field
from vinelm.controller.fleet.member import Chore
from vinelm.controller.fleet.orders import MOST_PRIORITY
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.errors import VineLMError
from vinelm.foreign_code import answered

NOTHING = LocalOrders()


class CallStanding:
    """The current priority of one call under the fleet's orders, and the replica that its conversation is pinned to.

    Args:
        priority: the request's own priority, to which the orders add.
    """

    __slots__ = ("_orders", "_priority", "_session", "_stage", "_tenant")

    def __init__(self, orders: StandingOrders, session: int, tenant: str, stage: str, priority: float) -> None:
        self._orders, self._priority = orders, priority
        self._session, self._tenant, self._stage = session, tenant, stage

    def __float__(self) -> float:
        # Read in the line of an engine, where other requests wait, too.
        more = answered(lambda: self._orders.current.priority(self._session, self._tenant, self._stage), 0.0)
        return min(max(self._priority + more, -MOST_PRIORITY), MOST_PRIORITY)

    @property
    def engine(self) -> str | None:
        """The replica that gets the conversation's calls while the replica has room; None if any replica may get them."""
        return self._orders.current.pins.get(self._session)


class StandingOrders(Chore):
    """The fleet's orders for this process; the thread of the fleet's member fetches new orders in every round.

    Orders hold until new orders replace them, Redis has no orders, or Redis has not answered for ``ORDERS_FOR_S`` seconds.
    Reading them is fast and takes no lock.

    Args:
        on_change: called in the fleet's thread when the orders have changed; must not block.
        now: returns seconds that never decrease.

    Attributes:
        current: the orders in force; empty orders if there are none. Calls read it without a lock.
        version: the version of the orders in force; 0 if there are none.
    """

    def __init__(self, process: str, on_change: Callable[[], object], now: Callable[[], float] = time.monotonic) -> None:
        self.version = 0
        self._process, self._on_change, self._now = process, on_change, now
        self.current = NOTHING
        self._mark: tuple[bytes | None, ...] = ()
        self._heard_s = now()
        self._has_warned = False

    def do(self, link: RedisLink) -> None:
        """Fetch the orders through ``link`` if they have changed."""
        # Usually only the mark: the orders for a large fleet are long, and seldom new.
        mark = tuple(link.fields(ORDERS, "epoch", "fence", "version"))
        if None in mark:
            self._forget()
            return
        self._heard_s = self._now()
        if mark == self._mark:
            return
        # The mark again, in one command with the orders, since newer orders may have arrived.
        *again, common, own = link.fields(ORDERS, "epoch", "fence", "version", COMMON, own_field(self._process))
        try:
            if common is None or None in again:
                return  # they disappeared in between: the next round handles it
            orders = local_orders(common, own)
        except VineLMError as error:
            self._mark = mark  # so that they are not read again
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(f"{error}: this process goes on with the orders before", stacklevel=2)
            return
        self._mark, self.version = tuple(again), int(again[2] or 0)
        self._use(orders)

    def go_alone(self, link: RedisLink) -> None:
        """Drop the orders if Redis has not answered for ``ORDERS_FOR_S`` seconds, else keep them; ``link`` is not used."""
        if self._now() - self._heard_s > ORDERS_FOR_S:
            self._forget()

    def _forget(self) -> None:
        self._mark, self.version = (), 0
        if self.current is not NOTHING:
            self._use(NOTHING)

    def _use(self, orders: LocalOrders) -> None:
        # One assignment, since calls read it without a lock.
        self.current = orders
        self._on_change()

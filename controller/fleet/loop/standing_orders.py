"""The orders as one process keeps them: fetched in the background, read from memory by every call."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping

from vinelm.controller.fleet.loop.leadership import ORDERS, ORDERS_FOR_S
from vinelm.controller.fleet.loop.order_bytes import COMMON, LocalOrders, local_orders, own_field
from vinelm.controller.fleet.member import Chore
from vinelm.controller.fleet.orders import MOST_PRIORITY
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.errors import VineLMError

NOTHING = LocalOrders()


class CallStanding:
    """The priority of one call as the orders have it at the moment, and the replica that it is pinned to.

    Args:
        orders: those of the process.
        session, tenant, stage: of the call.
        priority: the request's own; what the orders say is added.
    """

    __slots__ = ("_orders", "_priority", "_session", "_stage", "_tenant")

    def __init__(self, orders: StandingOrders, session: int, tenant: str, stage: str, priority: float) -> None:
        self._orders, self._priority = orders, priority
        self._session, self._tenant, self._stage = session, tenant, stage

    def __float__(self) -> float:
        try:
            total = self._priority + self._orders.priority(self._session, self._tenant, self._stage)
        except Exception:  # read in the line of an engine, where other requests wait, too
            return self._priority
        return min(max(total, -MOST_PRIORITY), MOST_PRIORITY)

    @property
    def engine(self) -> str | None:
        """The replica that the conversation's calls go to while it has room; None for no matter."""
        try:
            return self._orders.engine(self._session)
        except Exception:
            return None


class StandingOrders(Chore):
    """The orders that hold for this process; a chore of the member's thread. Reading them takes no lock and no time.

    Orders hold until others replace them, Redis has none any more, or none were heard of for ``ORDERS_FOR_S`` seconds.

    Args:
        process: the name of this process.
        on_change: called in the thread of the fleet after other orders have come; must not block.
        now: returns seconds that never decrease.

    Attributes:
        version: of the orders that hold; 0 without any.
    """

    def __init__(self, process: str, on_change: Callable[[], object], now: Callable[[], float] = time.monotonic) -> None:
        self.version = 0
        self._process, self._on_change, self._now = process, on_change, now
        self._orders = NOTHING
        self._mark: tuple[bytes | None, ...] = ()
        self._heard_s = now()
        self._has_warned = False

    # -- what calls read ---------------------------------------------------------------------------------------

    def priority(self, session: int, tenant: str, stage: str) -> float:
        """Return the steps of priority that a call is given beside its request's own; 0 without orders."""
        return self._orders.priority(session, tenant, stage)

    def engine(self, session: int) -> str | None:
        """Return the replica that a conversation is pinned to; None if to none."""
        return self._orders.pins.get(session)

    def weights(self) -> Mapping[str, float]:
        """Return the weights by engine; engines that it does not name have 1."""
        return self._orders.weights

    def share(self) -> float | None:
        """Return the part of common limits that this process may count on, in (0, 1]; None for an equal one."""
        return self._orders.share

    # -- the chore ---------------------------------------------------------------------------------------------

    def do(self, link: RedisLink) -> None:
        """Fetch the orders if there are others.

        Raises:
            FleetUnreachable: Redis does not answer.
        """
        # The mark alone, as a rule: the orders for a large fleet are long, and seldom new.
        mark = tuple(link.fields(ORDERS, "epoch", "fence", "version"))
        if None in mark:
            self._forget()
            return
        self._heard_s = self._now()
        if mark == self._mark:
            return
        # The mark once more, in one command with the orders: others may have come since.
        *again, common, own = link.fields(ORDERS, "epoch", "fence", "version", COMMON, own_field(self._process))
        try:
            if common is None or None in again:
                return  # they went in between: the next round sees to it
            orders = local_orders(common, own)
        except VineLMError as error:
            self._mark = mark  # not read again
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(f"{error}: this process goes on with the orders before", stacklevel=2)
            return
        self._mark, self.version = tuple(again), int(again[2] or 0)
        self._use(orders)

    def go_alone(self, link: RedisLink) -> None:
        """Keep the orders for a while."""
        if self._now() - self._heard_s > ORDERS_FOR_S:
            self._forget()

    def _forget(self) -> None:
        self._mark, self.version = (), 0
        if self._orders is not NOTHING:
            self._use(NOTHING)

    def _use(self, orders: LocalOrders) -> None:
        # One assignment, since calls read it without a lock.
        self._orders = orders
        self._on_change()

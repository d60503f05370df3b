"""One of several loops leads. Who does not lead any more is refused by its fencing number, whatever it believes."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from vinelm.controller.fleet.loop.order_scripts import ELECT, INSTALL, RESIGN
from vinelm.controller.fleet.redis_link import RedisLink

LOCK, FENCE, ORDERS = "loop:lock", "loop:fence", "loop:orders"
LEADS_FOR_S = 3.0
"""A leader that was not heard of for so long is replaced."""
ORDERS_FOR_S = 30.0
"""Orders that no leader has confirmed for so long are forgotten."""


class Leadership:
    """A loop's claim to lead its fleet. For one thread.

    Each election has a fencing number above all before. Redis takes orders only under the number of the last election, in one
    step with the comparison: a leader that was away for a while (stopped, swapped out, cut off) cannot replace the orders of
    its successor. A Redis that has forgotten the number begins a new epoch, under which nobody leads until an election.

    Args:
        link: the connection.
        name: of the loop; unique.

    Attributes:
        leader: name of the loop that led when Redis was asked last; empty before.
        fence: the largest fencing number seen.
        version: of the orders that this loop installed last; 0 before.
    """

    def __init__(self, link: RedisLink, name: str) -> None:
        self.name = name
        self.leader = ""
        self.fence = self.version = 0
        self._link = link
        self._elected: tuple[str, int] = ("", 0)  # epoch and number of this loop's last election; no other loop has them

    @property
    def leads(self) -> bool:
        """Whether this loop led when Redis was asked last."""
        return self.leader == self.name

    def stand(self) -> bool:
        """Lead if nobody does, and go on leading; return whether this loop leads.

        Raises:
            FleetUnreachable: Redis does not answer.
        """
        lock_ms = int(LEADS_FOR_S * 1000)
        leader, epoch, fence = self._link.run_script(
            ELECT, [LOCK, FENCE], [self.name, lock_ms, self.fence, secrets.token_hex(8)]
        )
        self.leader, self.fence = leader.decode(), int(fence)
        if self.leads:
            self._elected = epoch.decode(), self.fence
        return self.leads

    def install(self, fields: Mapping[str, bytes]) -> bool:
        """Replace the fleet's orders, under the next version; without fields those that are there hold for longer.

        Returns False if another loop leads by now: nothing was changed then, and this loop leads no more.

        Raises:
            FleetUnreachable: Redis does not answer; the orders may have been replaced or not.
        """
        pairs = [item for pair in fields.items() for item in pair]
        accepted, version = self._link.run_script(
            INSTALL, [LOCK, FENCE, ORDERS], [*self._elected, self.version, int(ORDERS_FOR_S * 1000), *pairs]
        )
        if accepted:
            self.version = int(version)
        else:
            self.leader = ""
        return bool(accepted)

    def resign(self) -> None:
        """Let another loop lead at once.

        Raises:
            FleetUnreachable: Redis does not answer.
        """
        self._link.run_script(RESIGN, [LOCK], [self.name])
        self.leader = ""

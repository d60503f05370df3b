"""This process's share of an engine's limits a minute, leased from the fleet."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from vinelm.backends.remote.rate_share import RateAmounts, RateDemand, RateShare
from vinelm.controller.fleet.leases.rate_script import EXCHANGE
from vinelm.controller.fleet.redis_link import RedisLink

BUSY = 0.75
"""From this part of a share used in the last minute on, more is asked for before a call has to wait for it."""

ALONE_AFTER_S = 10.0
"""A process that has never reached Redis waits so long for a share, and then uses the limits alone. One that has reached it,
and has too small a share when it is lost, refuses calls after so long."""


class RateLease:
    """Keeps one engine's share in step with the fleet; a chore of the member's thread.

    What is held here is always at most what Redis counts for this process, so the processes together keep the limits, whichever
    of them dies and whatever answer is lost. The exception is a process that Redis has not heard of for a minute and that goes
    on: alone it keeps its share, which others may then have, too.

    Args:
        engine: the engine's name.
        share: that of its rate limiter.
        process: the name of this process.
        part: returns the part of the limits that this process may count on, in (0, 1]; None for an equal one.
        wall_ms: the time that the script goes by; None for the server's own. For tests.
    """

    def __init__(
        self,
        engine: str,
        share: RateShare,
        process: str,
        *,
        part: Callable[[], float | None] = lambda: None,
        wall_ms: int | None = None,
    ) -> None:
        self.engine, self._share, self._process = engine, share, process
        self._part, self.wall_ms = part, wall_ms
        self.epoch = ""
        """The last epoch in which Redis has answered; empty if it never has."""
        self._sequence, self._heard_s = 0, share.clock.now()
        self._keep = share.limits

    def do(self, link: RedisLink) -> None:
        """Tell the fleet what is held, give back what others need, and ask for what is lacking.

        Raises:
            FleetUnreachable: Redis does not answer. The share stays as it is.
        """
        held = self._share.give_back(self._keep)
        demand = self._share.demand()
        wanted = demand.lacks if any(demand.lacks) else _before_it_is_short(demand, self._share.limits)
        self._sequence += 1
        epoch, *answer = link.run_script(
            EXCHANGE,
            ["rates:clock", f"rates:{self.engine}"],
            [
                self._process,
                self._sequence,
                self.epoch,
                secrets.token_hex(8),
                "" if self.wall_ms is None else self.wall_ms,
                int(demand.waited_s * 1000) if any(demand.lacks) else -1,
                *(n for kind in zip(self._share.limits, held, wanted, demand.call, strict=True) for n in kind),
                part if (part := self._part()) is not None else "",
            ],
        )
        self.epoch, self._heard_s = epoch.decode(), self._share.clock.now()
        self._share.cut_off("")
        granted = RateAmounts(*answer[0:2])
        self._share.cut(granted)
        self._share.grow(granted)
        used = self._share.demand().used
        self._keep = RateAmounts(*map(_kept, answer[2:4], self._share.limits, used))
        self._share.give_back(self._keep)

    def go_alone(self, link: RedisLink) -> None:
        """Go on within the share.

        If Redis has never answered, there is none: after ``ALONE_AFTER_S`` seconds the process goes on within the limits, as it
        would without a fleet. If it has, others may hold the limits: after as long, calls that do not fit into the share fail.
        """
        if self._share.clock.now() - self._heard_s < ALONE_AFTER_S:
            return
        if not link.has_answered:
            self._share.grow(self._share.limits)
        else:
            self._share.cut_off(
                f"the fleet's Redis does not answer, and this process holds too small a share of the limits of engine "
                f"{self.engine!r} for the call: look after the Redis"
            )

    def close(self, link: RedisLink) -> None:
        """Give back what calls of the last minute have not used.

        Raises:
            FleetUnreachable: Redis does not answer.
        """
        self._keep = RateAmounts(0, 0)
        self.do(link)


def _kept(most: int, limit: int, used: int) -> int:
    """The amount of one kind to keep, by the script's answer."""
    if most == -1:
        return limit
    return most if most >= 0 else min(used + used // 4, limit)


def _before_it_is_short(demand: RateDemand, limits: RateAmounts) -> RateAmounts:
    """The wish beyond today's calls: one more, once most is in use."""
    used_up = any(used > BUSY * held for used, held, limit in zip(demand.used, demand.held, limits, strict=True) if limit)
    if not demand.used.requests or not used_up:
        return RateAmounts(0, 0)
    return RateAmounts(*(call if limit else 0 for call, limit in zip(demand.call, limits, strict=True)))

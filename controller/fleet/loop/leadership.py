"""Elects a leader among the loops of a fleet. Redis refuses orders from former leaders, by their fencing number."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from vinelm.controller.fleet.redis_link import RUN, RedisLink

LOCK, FENCE, ORDERS = "loop:lock", "loop:fence", "loop:orders"
LEADS_FOR_S = 3.0
"""A leader that was silent for this long is replaced."""
ORDERS_FOR_S = 30.0
"""Orders that no leader has confirmed for this long are forgotten."""

_KNOWN = f"""
{RUN}
local known = redis.call('HMGET', KEYS[2], 'run', 'epoch', 'fence')
local epoch, fence = known[2] or '', tonumber(known[3] or '0')
"""

ELECT = f"""
-- KEYS: the lock; the fence. ARGV: name of the loop, milliseconds that the lock is held, the largest fencing number that the
-- loop knows, an epoch to begin if Redis has none. Returns: name of the leader, epoch, fencing number.
{_KNOWN}
local holder = redis.call('GET', KEYS[1])
local is_known = known[1] == run
if holder and is_known and holder ~= ARGV[1] then
    return {{holder, epoch, fence}}
end
if not (holder and is_known) then
    -- Nobody leads, or this Redis was started anew, perhaps from an old file: who led before has to learn that it does not.
    epoch = is_known and epoch or ARGV[4]
    fence = math.max(fence, tonumber(ARGV[3])) + 1
    redis.call('HSET', KEYS[2], 'run', run, 'epoch', epoch, 'fence', string.format('%.0f', fence))
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {{ARGV[1], epoch, fence}}
"""

INSTALL = f"""
-- KEYS: the lock; the fence; the orders. ARGV: epoch, fencing number, the version that the loop installed last, milliseconds
-- that the orders hold, then pairs of a field and its value; without pairs the orders that are there hold for longer.
-- Returns: 1 and the version; 0 if another loop leads by now, or this Redis does not know this one.
{_KNOWN}
if known[1] ~= run or epoch ~= ARGV[1] or fence ~= tonumber(ARGV[2]) then
    return {{0, 0}}
end
local version = tonumber(redis.call('HGET', KEYS[3], 'version') or '0')
if #ARGV > 4 then
    version = math.max(version, tonumber(ARGV[3])) + 1
    redis.call('DEL', KEYS[3])
    redis.call('HSET', KEYS[3], 'epoch', epoch, 'fence', ARGV[2], 'version', string.format('%.0f', version))
    for i = 5, #ARGV, 2 do
        redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
    end
end
redis.call('PEXPIRE', KEYS[3], ARGV[4])
return {{1, version}}
"""

RESIGN = """
-- KEYS: the lock. ARGV: name of the loop. Frees the lock if this loop holds it.
if redis.call('GET', KEYS[1]) == ARGV[1] then
    redis.call('DEL', KEYS[1])
end
"""


class Leadership:
    """A loop's claim to lead its fleet. For one thread.

    Each election gets a larger fencing number than all earlier elections. Redis accepts orders only with the number of the last
    election, and checks this number in the atomic step that replaces the orders. So a leader that was away for a while
    (stopped, swapped out, cut off) cannot replace the orders of its successor. If Redis has lost the number, there is no leader
    until the next election.

    Args:
        name: the loop's name; unique.

    Attributes:
        leader: name of the leading loop when Redis was last asked; empty before the first time.
        fence: the largest fencing number seen.
        version: the version of the orders that this loop installed last; 0 if it has installed none.
    """

    def __init__(self, link: RedisLink, name: str) -> None:
        self.name = name
        self.leader = ""
        self.fence = self.version = 0
        self._link = link
        self._elected: tuple[str, int] = ("", 0)  # epoch and number of this loop's last election; no other loop has them

    @property
    def leads(self) -> bool:
        """True if this loop was the leader when Redis was last asked."""
        return self.leader == self.name

    def stand(self) -> bool:
        """Become the leader if there is none, or remain the leader; return whether this loop leads."""
        lock_ms = int(LEADS_FOR_S * 1000)
        # The largest number that this loop has seen is sent along: a Redis restored from an old file then continues from it,
        # and no number is given out twice.
        leader, epoch, fence = self._link.run_script(
            ELECT, [LOCK, FENCE], [self.name, lock_ms, self.fence, secrets.token_hex(8)]
        )
        self.leader, self.fence = leader.decode(), int(fence)
        # Separate from `fence`: a loop that only stood for election sees the winner's number, and must not install under it.
        if self.leads:
            self._elected = epoch.decode(), self.fence
        return self.leads

    def install(self, fields: Mapping[str, bytes]) -> bool:
        """Replace the fleet's orders with ``fields`` (field name to bytes) and increase their version; return True.

        If ``fields`` is empty, keep the present orders and only postpone their expiry. Return False, without changing anything,
        if another loop has become the leader.

        Raises:
            FleetUnreachable: Redis does not answer; it is unknown whether the orders were replaced.
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
        """Give up the lead, so that another loop can lead at once."""
        self._link.run_script(RESIGN, [LOCK], [self.name])
        self.leader = ""

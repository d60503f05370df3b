"""This process's share of an engine's per-minute limits, leased from the fleet."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from vinelm.backends.limits.rate_share import RateAmounts, RateDemand, RateShare
from vinelm.controller.fleet.member import Chore
from vinelm.controller.fleet.redis_link import RUN, SILENT_REDIS, RedisLink

BUSY = 0.75
"""Once this part of a share was used in the last minute, more is requested before a call has to wait for it."""

ALONE_AFTER_S = 10.0
"""A process that has never reached Redis waits this long for a share, and then uses the limits alone. A process that has
reached Redis, and has too small a share when it is lost, refuses calls after this time."""

DEAD_AFTER_MS = 5_000
"""A process that was silent for this long does not count among those that share."""
RECLAIM_AFTER_MS = 65_000
"""Its holdings are free again after this time, when its last call has left every window of a minute."""
GRACE_MS = 2_000
"""A Redis without an epoch grants nothing for this long, so that processes can first report earlier holdings."""
LONGEST_STEP_MS = 2_000
"""The most that the script's clock advances between two calls, so that a jump of the machine's clock frees nothing."""

EXCHANGE = f"""
-- KEYS: the clock of the fleet; the holdings of the engine.
-- ARGV: process, sequence number, epoch remembered ('' if none), epoch proposed, time in ms ('' for the server's),
--       ms that a call has waited (-1: none waits), then for requests and for tokens: limit (0 for none), held, wanted, and
--       what that one call needs; last the part of the limits that orders give to the process ('' for an equal one).
-- Returns: epoch, held and most to keep of requests and of tokens, processes, milliseconds that nothing is granted for.
-- Most to keep: -1 for all, -2 for what is in use.
local process, sequence, remembered, proposed = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local limit = {{tonumber(ARGV[7]), tonumber(ARGV[11])}}
local held = {{tonumber(ARGV[8]), tonumber(ARGV[12])}}
local wanted = {{tonumber(ARGV[9]), tonumber(ARGV[13])}}
local call = {{tonumber(ARGV[10]), tonumber(ARGV[14])}}

-- One clock for all that never goes back and never leaps. A server that was started anew has a new run: its file may be old.
local wall = tonumber(ARGV[5])
if not wall then
    local t = redis.call('TIME')
    wall = t[1] * 1000 + math.floor(t[2] / 1000)
end
{RUN}
local clock = redis.call('HMGET', KEYS[1], 'now', 'wall', 'born', 'epoch', 'run', 'suspect')
local now, born, epoch, suspect = 0, 0, clock[4], clock[6]
if clock[5] == run then
    now = tonumber(clock[1]) + math.max(0, math.min(wall - tonumber(clock[2]), {LONGEST_STEP_MS}))
    born = tonumber(clock[3])
else
    suspect = epoch and '1' or '0'  -- an older file: somebody was here before
    epoch = proposed
    redis.call('HSET', KEYS[1], 'born', 0, 'epoch', epoch, 'run', run)
end
if remembered ~= '' and remembered ~= epoch then
    suspect = '1'
end
if clock[5] ~= run and redis.call('EXISTS', KEYS[2]) == 1 then
    suspect = '1'  -- the clock is lost, what was held is not
end
redis.call('HSET', KEYS[1], 'now', now, 'wall', wall, 'suspect', suspect)

-- Each exchange leaves an entry, and entries have no time to live: an engine that had some and has none has lost its key.
-- Who lives says again what it holds; until those who do not must have finished, nothing is granted.
local engine = string.match(KEYS[2], 'rates:(.*)$')
local entries = redis.call('HGETALL', KEYS[2])
local before = redis.call('HMGET', KEYS[1], 'had:' .. engine, 'lost:' .. engine)
local lost = before[1] == epoch and tonumber(before[2])
if before[1] == epoch and #entries == 0 then
    lost = now
end
redis.call('HSET', KEYS[1], 'had:' .. engine, epoch, 'lost:' .. engine, lost or '')

-- What all hold: process -> epoch, sequence, heard at, held, held, waits since (-1: no), wanted, wanted, call, call, is rich,
-- and whether the call is larger than the part of its process, in requests and in tokens.
local members, others, total = 1, {{}}, {{0, 0}}
local waits_since = tonumber(ARGV[6]) >= 0 and math.max(now - tonumber(ARGV[6]), 0) or -1
for i = 1, #entries, 2 do
    local one = cjson.decode(entries[i + 1])
    if one[1] ~= epoch or now - one[3] > {RECLAIM_AFTER_MS} then
        redis.call('HDEL', KEYS[2], entries[i])
    elseif entries[i] == process then
        if sequence <= one[2] then
            return redis.error_reply('an exchange came late')
        end
    else
        total[1], total[2] = total[1] + one[4], total[2] + one[5]
        if now - one[3] <= {DEAD_AFTER_MS} then
            members = members + 1
            table.insert(others, one)
        end
    end
end

-- Nobody holds more than the others leave. Who wants to go beyond its part with a call that would fit into it is rich.
local rest, part, rich = {{}}, {{}}, 0
for k = 1, 2 do
    held[k] = math.max(math.min(held[k], limit[k] - total[k]), 0)
    rest[k] = limit[k] - total[k] - held[k]
    part[k] = math.floor(tonumber(ARGV[15]) and limit[k] * tonumber(ARGV[15]) or limit[k] / members)
    if wanted[k] > 0 and held[k] + wanted[k] > part[k] and call[k] <= part[k] then
        rich = 1
    end
end

-- The rich come last, and else who has waited longest comes first.
local function is_before(one, rich, since)
    return one[6] >= 0 and (since < 0 or one[11] < rich or (one[11] == rich and one[6] < since))
end
local first, large_waits = nil, false
for _, one in ipairs(others) do
    large_waits = large_waits or (one[6] >= 0 and (one[12] == 1 or one[13] == 1))
    if is_before(one, rich, waits_since) and (not first or is_before(one, first[11], first[6])) then
        first = one
    end
end
local closed_ms = 0
if now - born < {GRACE_MS} then
    closed_ms = {GRACE_MS} - (now - born)
elseif suspect == '1' and now - born < {RECLAIM_AFTER_MS} then
    closed_ms = {RECLAIM_AFTER_MS} - (now - born)
end
if lost and now - lost < {RECLAIM_AFTER_MS} then
    closed_ms = math.max(closed_ms, {RECLAIM_AFTER_MS} - (now - lost))
end
local fits = closed_ms == 0 and not first
for k = 1, 2 do
    fits = fits and (limit[k] == 0 or wanted[k] <= rest[k])
end
if fits then
    for k = 1, 2 do
        if wanted[k] > 0 then
            local slice = wanted[k]
            if not large_waits then  -- else what is granted now would hold it up for a minute
                slice = math.max(slice, math.min(part[k], math.floor(rest[k] / (2 * members))))
            end
            held[k], rest[k] = held[k] + slice, rest[k] - slice
        end
    end
    waits_since = -1
end

-- What another process waits for and the rest does not give, the others leave: what they do not use to a rich one, what is
-- beyond their part to others, and everything to a call that needs more than the part of its process.
local keep = {{-1, -1}}
if first then
    for k = 1, 2 do
        if limit[k] > 0 and first[6 + k] > rest[k] then
            keep[k] = first[11 + k] == 1 and 0 or (first[11] == 1 and -2 or part[k])
        end
    end
end
local mine = {{epoch, sequence, now, held[1], held[2], waits_since, wanted[1], wanted[2], call[1], call[2], rich}}
for k = 1, 2 do
    mine[11 + k] = call[k] > part[k] and 1 or 0
end
redis.call('HSET', KEYS[2], process, cjson.encode(mine))
redis.call('PERSIST', KEYS[2])
return {{epoch, held[1], held[2], keep[1], keep[2], members, closed_ms}}
"""


class RateLease(Chore):
    """Synchronizes this process's share of one engine's limits with the fleet; runs as a chore in the member's thread.

    This process never holds more than Redis has counted as this process's share. So the processes together keep the limits,
    even if processes die or answers are lost. There is one exception: a process that has not reached Redis for a minute
    keeps its share, but Redis may give that share to others.

    Args:
        engine: the engine's name.
        share: this process's share of the engine's limits, which this object increases and reduces.
        process: this process's name in the fleet.
        part: returns the fraction of the limits that this process can rely on, in (0, 1]; None if all processes get equal
            parts.
    """

    def __init__(
        self,
        engine: str,
        share: RateShare,
        process: str,
        *,
        part: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.engine, self._share, self._process = engine, share, process
        self._part = part
        self.wall_ms: int | None = None
        """The time in milliseconds that the script uses; None for the server's own time. For tests."""
        self.epoch = ""
        """The last epoch in which Redis has answered; empty if it never has."""
        self._sequence, self._heard_s = 0, share.clock.now()
        self._keep = share.limits

    def do(self, link: RedisLink) -> None:
        """Report this process's share, give back what other processes need, and ask for the requests and tokens that it lacks.

        Raises:
            FleetUnreachable: Redis does not answer. The share stays as it is.
        """
        # First, since Redis may grant it to others as soon as it hears that it is no longer held here.
        held = self._share.give_back(self._keep)
        demand = self._share.demand()
        wanted = demand.lacks if any(demand.lacks) else _before_it_is_short(demand, self._share.limits)
        # Before sending: an exchange whose answer is lost may have counted, and its number must not be used again.
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
        # A right means "at most this many calls in any minute", so it is used again as calls leave the window: the answer
        # contains the whole right, not an addition.
        granted = RateAmounts(*answer[0:2])
        # Both, to hold exactly what Redis counts, whatever a lost answer has left here.
        self._share.cut(granted)
        self._share.grow(granted)
        used = self._share.demand().used
        self._keep = RateAmounts(*map(_kept, answer[2:4], self._share.limits, used))
        self._share.give_back(self._keep)

    def go_alone(self, link: RedisLink) -> None:
        """Continue with the present share, because Redis does not answer on ``link``.

        If Redis has never answered, this process has no share; after ``ALONE_AFTER_S`` seconds it uses the whole limits, as
        it would without a fleet. If Redis has answered before, other processes may hold the rest of the limits; after the
        same time, calls that exceed this process's share fail.
        """
        if self._share.clock.now() - self._heard_s < ALONE_AFTER_S:
            return
        if not link.has_answered:
            self._share.grow(self._share.limits)
        else:
            self._share.cut_off(
                f"{link.why or SILENT_REDIS}, and this process holds too small a share of the limits of engine "
                f"{self.engine!r} for the call: look after the Redis"
            )

    def close(self, link: RedisLink) -> None:
        """Give back the part of the share that the last minute's calls have not used."""
        self._keep = RateAmounts(0, 0)
        self.do(link)


def _kept(most: int, limit: int, used: int) -> int:
    """Return how much of an engine's limit per minute (requests or tokens) this process should keep of its share.

    Args:
        most: the maximum to keep, as the Redis script answers; -1 stands for the whole limit, -2 for a quarter more than
            ``used``.
        limit: the engine's limit per minute, for all processes together.
        used: the number that this process's calls used in the last minute.
    """
    if most == -1:
        return limit
    return most if most >= 0 else min(used + used // 4, limit)


def _before_it_is_short(demand: RateDemand, limits: RateAmounts) -> RateAmounts:
    """Return the requests and tokens to ask for in advance, before the share runs short.

    This is enough for one more call if most of the share is used, else 0.
    """
    used_up = any(used > BUSY * held for used, held, limit in zip(demand.used, demand.held, limits, strict=True) if limit)
    if not demand.used.requests or not used_up:
        return RateAmounts(0, 0)
    return RateAmounts(*(call if limit else 0 for call, limit in zip(demand.call, limits, strict=True)))

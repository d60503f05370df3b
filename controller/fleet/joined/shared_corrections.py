"""Shares one budget correction among all processes: each reports its counts to Redis and gets back a common factor."""

from __future__ import annotations

import threading
from hashlib import blake2b
from weakref import WeakSet

from vinelm.controller.fleet.member import Chore
from vinelm.controller.fleet.redis_link import RedisLink
from vinelm.money.spend_control import EVERY, MEMORY, MOST, STEP, SpendControl

KEPT_MS = 86_400_000
"""Unused corrections are forgotten after this time."""

CORRECT = """
-- KEYS: the correction. ARGV: requests, planned dollars and spent dollars since the last time, the factor of the process, and
-- the constants of SpendControl: requests between corrections, memory, step, most; milliseconds to keep. Returns the factor.
local requests, planned, spent = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local every, memory, step, most = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local known = redis.call('HMGET', KEYS[1], 'planned', 'spent', 'since', 'factor')
local keep = (1 - 1 / memory) ^ requests
planned = tonumber(known[1] or '0') * keep + planned
spent = tonumber(known[2] or '0') * keep + spent
local since, factor = tonumber(known[3] or '0') + requests, tonumber(known[4] or ARGV[4])
if since >= every and planned > 0 and spent > 0 then
    factor = math.min(math.max(factor ^ (1 - step) * (planned / spent) ^ step, 1 / most), most)
    since = 0
end
redis.call('HSET', KEYS[1], 'planned', planned, 'spent', spent, 'since', since, 'factor', factor)
redis.call('PEXPIRE', KEYS[1], ARGV[9])
return tostring(factor)
"""


class SharedCorrections(Chore):
    """Synchronizes this process's budget corrections with those of the other processes, regularly and through Redis.

    A budget correction multiplies an objective's limit on the mean cost by planned divided by real spending. Corrections are
    held by weak references, so that they do not use up memory if callers choose many objectives.
    """

    def __init__(self) -> None:
        self._controls: WeakSet[SpendControl] = WeakSet()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of budget corrections that are shared."""
        return len(self._controls)

    def add(self, control: SpendControl) -> None:
        """From now on, correct the budget of ``control`` together with the other processes. Idempotent.

        These are the processes that serve the same objective.
        """
        with self._lock:
            self._controls.add(control)

    def do(self, link: RedisLink) -> None:
        """Report this process's counts of each budget through ``link``, and apply the common factor that Redis returns.

        Raises:
            FleetUnreachable: Redis does not answer. Then other processes never get the counts of this round.
        """
        with self._lock:
            controls = list(self._controls)
        for control in controls:
            key = blake2b(repr(control.objective).encode(), digest_size=8).hexdigest()
            counted = control.take_counted()
            constants = (EVERY, MEMORY, STEP, MOST, KEPT_MS)
            factor = link.run_script(CORRECT, [f"correction:{key}"], [*counted, control.factor, *constants])
            control.follow(float(factor))

    def go_alone(self, link: RedisLink) -> None:
        """Correct budgets by this process's own counts from now on, starting from the last common factor.

        ``link`` is not used.
        """
        with self._lock:
            for control in self._controls:
                control.follow(None)

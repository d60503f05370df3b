"""This process as a member of the fleet: one thread publishes its live calls, reads those of others, and keeps leases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread

from vinelm.controller.fleet.live_invocations import LiveInvocations
from vinelm.controller.fleet.neighbours import GONE_AFTER_S, Neighbours, load_summary
from vinelm.controller.fleet.redis_link import SILENT_REDIS, RedisLink
from vinelm.errors import FleetUnreachable
from vinelm.foreign_code import answered
from vinelm.threads import started

EVERY_S = 0.25
"""Seconds between two rounds."""
ERRANDS_S = 0.02
"""Shortest time from one requested run of the chores to the next, so that many calls at once do not keep Redis busy."""
LONGEST_PAUSE_S = 1.0
"""While Redis does not answer, it is asked again at least this often."""
ALONE = f"{SILENT_REDIS}: this process goes on alone, within its last share"


class Chore:
    """A task that the member's thread does in every round, in addition to publishing and reading live calls."""

    def do(self, link: RedisLink) -> None:
        """Do the task once; ``link`` is the connection to the fleet's Redis.

        Raises:
            FleetUnreachable: Redis does not answer.
        """
        raise NotImplementedError

    def go_alone(self, link: RedisLink) -> None:
        """Do what the task needs to do in a round in which Redis does not answer; this class does nothing.

        ``link.why`` says why Redis cannot be reached.
        """

    def close(self, link: RedisLink) -> None:
        """End the task, and tell Redis through ``link`` if needed; called when this process leaves the fleet regularly.

        Raises:
            FleetUnreachable: Redis does not answer.
        """


class FleetMember:
    """Publishes this process's live calls every ``every_s`` seconds, and reads those of other processes.

    One daemon thread does all this, so that no request waits for Redis. Requests read :attr:`others` and :attr:`is_alone`.

    Args:
        link: the connection; used only by this member.
        now: returns seconds that never decrease.
    """

    def __init__(
        self,
        link: RedisLink,
        live: LiveInvocations,
        *,
        every_s: float = EVERY_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.live = live
        self.is_alone = True
        """True if Redis did not answer in the last round; True before the first."""
        self.chores: list[Chore] = []
        """Done in every round, after publishing and before reading. To be set before :meth:`start`."""
        self.failure = ""
        """Type of the exception, if a defect (not a missing answer of Redis) made the process continue alone; else empty."""
        self.rounds = 0
        """Rounds that Redis has answered."""
        self.catalog = ""
        """The digest of this process's settings, which other processes compare with theirs; empty if not set."""
        self._link, self._every_s, self._now = link, every_s, now
        self._neighbours = Neighbours()
        self._version = self._rank = 0
        self._why = self._problem = ""
        self._is_stopped = False
        self._wake = Event()
        self._thread: Thread | None = None

    @property
    def others(self) -> Mapping[str, int]:
        """The number of other processes' live calls, by engine.

        It is empty once Redis has not answered for ``GONE_AFTER_S`` seconds.
        """
        return self._neighbours.live

    @property
    def processes(self) -> int:
        """The number of live processes, including this process."""
        return len(self._neighbours) + 1

    @property
    def rank(self) -> int:
        """This process's index among the live processes, in an order that is the same in all processes."""
        return self._rank

    def catalogs(self) -> dict[str, str]:
        """Return the digest of each other process's settings, keyed by the name of the process.

        The digest is "" if the process has not published any settings.
        """
        return self._neighbours.catalogs()

    @property
    def note(self) -> str:
        """A note for a request's trace, which says that this process continues without the fleet and why.

        It is empty while Redis answers.
        """
        if not self.is_alone:
            return ""
        if self.failure:
            return f"the fleet failed ({self.failure}): this process goes on alone"
        return f"{self._why or SILENT_REDIS}: this process goes on alone, within its last share"

    @property
    def problem(self) -> str:
        """A description of why this process cannot use Redis, and of how to fix the problem."""
        return self._problem or f"{SILENT_REDIS}: start it"

    def start(self) -> None:
        """Start the member's thread."""
        self._thread = started(self._run, "vinelm-fleet")

    def _run_errand(self) -> None:
        """Exchange shared data (:attr:`chores`) with Redis at once, because a call asked for it; then pause for a moment.

        If Redis does not answer, this process continues without the fleet.
        """
        if not self.is_alone:
            try:
                self._do_chores()
            except FleetUnreachable:
                self._go_alone()
        # No more often than this, however many calls ask, since every errand is a round trip to Redis.
        time.sleep(ERRANDS_S)

    def wake(self) -> None:
        """Make the thread exchange shared data (:attr:`chores`) with Redis now, because a call needs it."""
        self._wake.set()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Make the thread finish its current work and leave the fleet; wait at most ``timeout_s`` seconds for this.

        When it leaves, it closes all :attr:`chores` and deletes from Redis what this process has published.
        """
        self._is_stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def round(self) -> bool:
        """Publish live calls, do the additional tasks (:attr:`chores`), and read other processes' data; return whether Redis
        answered.

        Only the member's thread calls it.
        """
        self._version += 1
        try:
            snapshot = self.live.snapshot()
            self._link.publish(
                self.live.process, self._version, load_summary(snapshot, self.catalog), snapshot.to_bytes(), ttl_s=GONE_AFTER_S
            )
            self._do_chores()
            found = self._link.loads()
        except FleetUnreachable as error:
            self._problem = str(error)
            self._go_alone()
            return False
        found.pop(self.live.process, None)
        self._neighbours.update(found, self._now())
        self._rank = sum(name < self.live.process for name in self._neighbours.names())
        self.is_alone, self.failure = False, ""
        self.rounds += 1
        return True

    def survived_round(self) -> bool:
        """Call :meth:`round` and return whether Redis answered. Never raises: after a bug, return False.

        The process then continues without the fleet.
        """
        has_answered = False
        with self._surviving():
            has_answered = self.round()
        return has_answered

    @contextmanager
    def _surviving(self) -> Iterator[None]:
        """Run the block and catch any error that it raises, so that neither the thread nor a request fails.

        After an error, this process continues without the fleet.
        """
        try:
            yield
        except Exception as error:
            self.is_alone, self.failure = True, type(error).__name__
            answered(self._go_alone, None)

    def _do_chores(self) -> None:
        for chore in self.chores:
            chore.do(self._link)

    def _go_alone(self) -> None:
        self.is_alone, self._why = True, self._link.why
        self._neighbours.expire(self._now())
        self._rank = 0 if not len(self._neighbours) else self._rank
        for chore in self.chores:
            chore.go_alone(self._link)

    def _leave(self) -> None:
        """End the tasks in :attr:`chores`, each even if others fail, and delete what this process has published."""
        for chore in self.chores:
            answered(partial(chore.close, self._link), None)
        answered(partial(self._link.withdraw, self.live.process), None)
        self._link.close()

    def _run(self) -> None:
        pause_s = self._every_s
        while not self._is_stopped:
            has_failed = True
            with self._surviving():
                # Less and less often while Redis is away, since each attempt may take as long as its timeout.
                pause_s = self._every_s if self.round() else min(2 * pause_s, LONGEST_PAUSE_S)
                self._run_errands(time.monotonic() + pause_s)
                has_failed = False
            if has_failed:
                time.sleep(self._every_s)
        self._leave()

    def _run_errands(self, until_s: float) -> None:
        while (left_s := until_s - time.monotonic()) > 0.0 and self._wake.wait(left_s) and not self._is_stopped:
            # Before the chores: a wish that arrives while they run triggers the next errand.
            self._wake.clear()
            self._run_errand()

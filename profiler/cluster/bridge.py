"""Runs a separate process that talks to Ray, so that the run's process, which writes the store, need not load Ray.

:class:`RayLink` starts this process as ``python -c ... FD`` and talks to it over a socket. The process exits when the run's
process exits.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import IO

from vinelm.catalog.secrets import redacted
from vinelm.errors import InputError
from vinelm.profiler.cluster.messages import Disconnected, HostEvent, HostRefused, HostSetup, NodeProblem, ToHost
from vinelm.profiler.scheduling.settings import RayCluster

_CHARS = 300
_PLACE = re.compile(r"^\[[^\]]*\]\s+\S+:\d+:\s+")
_CLOSE_S = 15.0
_START = "from vinelm.profiler.cluster.bridge import main; main({})"
"""Not ``-m``: Ray gives the folder of a driver's script to its workers, where it would hide modules of the same names."""


class RayLink:
    """The connection between the process of a run and all its hosts (processes on nodes of a Ray cluster that execute jobs).

    One thread receives events; any thread may send messages.
    """

    def __init__(self, cluster: RayCluster, setup: HostSetup) -> None:
        self._lock = threading.Lock()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # read when the process has ended
        mine, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-c", _START.format(theirs.fileno())]
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=cluster.environment(), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=self._log, start_new_session=True,
            )  # fmt: skip
        self._connection: Connection = Connection(mine.detach())
        with suppress(OSError):  # it may have died at once, which the reader reports
            self._connection.send((list(sys.path), cluster, setup))

    def receive(self) -> HostEvent:
        """Wait for the next event and return it; after :meth:`close`, return :class:`Disconnected`."""
        try:
            event: HostEvent = self._connection.recv()
        except (EOFError, OSError):
            return self._ended()
        return event

    def send(self, host: int, message: ToHost) -> None:
        """Send a message to a host; drop the message if the host is lost."""
        self._send((host, message))

    def drop(self, host: int) -> None:
        """Kill a host that no longer works.

        :meth:`receive` then returns :class:`~vinelm.profiler.cluster.messages.HostLost` for this host.
        """
        self._send((host, None))

    def _send(self, order: tuple[int, ToHost | None]) -> None:
        # The reading thread notices when the process has died.
        with self._lock, suppress(OSError):
            self._connection.send(order)

    def close(self) -> None:
        """End all hosts and the process that talks to Ray. Idempotent."""
        with self._lock, suppress(OSError), socket.socket(fileno=os.dup(self._connection.fileno())) as channel:
            # This wakes the reading thread, which closing the descriptor would not.
            channel.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ended(self) -> Disconnected:
        """Close the connection, and return an event with the error that ended Ray's process, as found in its log."""
        with self._lock:
            self._connection.close()
        with self._log as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(size - 4096, 0))
            lines = log.read().decode("utf-8", "replace").splitlines()
        return Disconnected(redacted(said_by(lines))[:_CHARS])


def said_by(lines: Sequence[str]) -> str:
    """Return the error text in a log of Ray: the first sentence of the last line that is not empty.

    Ray's prefix (time and source location) is removed. Returns an empty text if all of ``lines`` are empty.
    """
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return _PLACE.sub("", last).partition(". ")[0]


def main(descriptor: int) -> None:
    """Connect to Ray, start hosts, and forward messages until the run closes the socket.

    ``descriptor`` is the file descriptor of the socket to the run's process.
    """
    connection: Connection = Connection(descriptor)
    lock = threading.Lock()

    def tell(event: HostEvent) -> None:
        with lock, suppress(OSError):
            connection.send(event)

    sys.path[:], cluster, setup = connection.recv()
    # Only after the run's own module path is set, since Ray must be found there.
    from vinelm.profiler.cluster.ray_hosts import RayHosts

    try:
        hosts = RayHosts(cluster, setup, tell)
    except InputError as error:
        tell(HostRefused(None, NodeProblem.of(error)))
        with suppress(EOFError, OSError):
            connection.recv()  # waits until the run has read it
        return
    try:
        while True:
            host, message = connection.recv()
            hosts.end(host) if message is None else hosts.send(host, message)
    except (EOFError, OSError):
        hosts.close()

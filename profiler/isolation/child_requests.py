"""Requests from child processes to the parent. Each request has a separate socket, so that it can wait for long.

A child creates a socket pair and sends one end to the parent with a line of JSON. If the child dies, the kernel closes the
child's end, which the parent notices wherever it is waiting.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from vinelm.threads import started

_LONGEST = 8192  # bytes of a request, which may contain a model's name and the shape of a prompt


class ChildRequests:
    """The parent's side of the requests. Children inherit ``theirs``, the other end of the parent's socket.

    Each open request has a daemon thread in the parent.

    Args:
        answer: called with a request's socket and the request; must close the socket.
        name: the name of the threads.
    """

    def __init__(self, answer: Callable[[socket.socket, Mapping[str, Any]], None], name: str) -> None:
        self._answer, self._name = answer, name
        self._mine, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        started(self._serve, f"vinelm {name}s")

    def close(self) -> None:
        """Stop accepting requests."""
        with suppress(OSError):
            self._mine.shutdown(socket.SHUT_RDWR)
        self._mine.close()
        self.theirs.close()

    def _serve(self) -> None:
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._mine, _LONGEST, 1)
            except OSError:
                return
            if not data:
                return
            asked = partial(self._answer, socket.socket(fileno=descriptors[0]), json.loads(data))
            started(asked, f"vinelm {self._name}")


def requested(theirs: socket.socket, request: Mapping[str, Any]) -> socket.socket:
    """Send a request to the parent, and return the socket on which the answer arrives.

    Raises:
        OSError: the parent process has exited.
    """
    mine, other = socket.socketpair()
    with other:
        try:
            socket.send_fds(theirs, [json.dumps(request).encode()], [other.fileno()])
        except OSError:
            mine.close()
            raise
    return mine

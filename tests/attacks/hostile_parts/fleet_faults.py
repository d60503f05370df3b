"""A fleet in trouble: faults in its thread, and a Redis that is gone, hangs, speaks nonsense or holds broken orders.

Requests go on meanwhile. With dollars of a day calls may be refused, but none is made that no account has authorized. After a
fault in the thread the process finds back to its fleet.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from vinelm.controller import RedisLink
from vinelm.errors import CallRefused

from .injection import entered, failing
from .staged_way import DollarsWay, FleetWay

PATIENCE_S = 8.0
REPLIES: Mapping[str, bytes | None] = {
    "hangs": None,
    "speaks nonsense": b"\x00\xff not Redis \r\n",
    "says OK to all": b"+OK\r\n",
    "has nothing": b"$-1\r\n",
    "gives endless lists": b"*1000000000\r\n",
}
"""What a server answers to whatever it receives; None: nothing, ever."""


def thread_faults(url: str, progress: Callable[[str], object], every: int) -> dict[str, Any]:
    """Let each function that the fleet's thread enters fail for a while."""
    found: dict[str, Any] = {"functions": 0, "injected": 0, "refused": 0, "app_failures": [], "unguarded": [], "behind": []}
    with tempfile.TemporaryDirectory() as folder:
        made: list[DollarsWay] = []

        def warm() -> None:
            made.append(DollarsWay(url, _name(), Path(folder)))
            made[0].serve("sync, no cap", "warm")
            time.sleep(0.6)

        targets = sorted(target for target in entered(warm) if ".fleet." in target[0] and "<" not in target[1])
        way = made[0]
        try:
            for module, name in [target for target in targets if target[1] not in way.boundaries][::every]:
                found["functions"] += 1
                progress(f"the fleet's thread: {name}")
                _thread_fault(way, module, name, found)
        finally:
            way.close()
    return found


def _thread_fault(way: DollarsWay, module: str, name: str, found: dict[str, Any]) -> None:
    member = way.fleet._member
    with failing(module, name, 1, True) as faults:
        member._wake.set()  # not by a function that may be the one that fails
        time.sleep(0.3)
        _serve(way, f"{name} fails", found)
    found["injected"] += faults[0] > 0
    before, until = member.rounds, time.monotonic() + PATIENCE_S
    while member.is_alone or member.rounds < before + 2:
        if time.monotonic() > until:
            found["behind"].append(f"{name}: the process does not find back to its fleet")
            return
        time.sleep(0.02)
    found["injected"] += 1
    while True:  # a refusal holds for a second
        refused = found["refused"]
        _serve(way, f"after {name}", found)
        if found["refused"] == refused or time.monotonic() > until + PATIENCE_S:
            break
    if found["refused"] > refused:
        found["behind"].append(f"{name}: calls are refused for good")
    found["refused"] = refused


def _serve(way: FleetWay, where: str, found: dict[str, Any]) -> None:
    unguarded = way.backend.unguarded
    try:
        way.serve("sync, no cap", where + uuid.uuid4().hex)
    except CallRefused:
        found["refused"] += 1
        if not way.is_capped:
            found["app_failures"].append(f"{where}: CallRefused")
    except Exception as error:
        found["app_failures"].append(f"{where}: {type(error).__name__}")
    if way.is_capped and way.backend.unguarded > unguarded:
        found["unguarded"].append(where)


def broken_redis(url: str | None, progress: Callable[[str], object]) -> dict[str, Any]:
    """Serve requests in fleets whose Redis is broken, with and without dollars of a day."""
    found: dict[str, Any] = {"functions": 0, "injected": 0, "refused": 0, "app_failures": [], "unguarded": [], "behind": []}
    with ExitStack() as stack:
        places = {f"Redis {how}": stack.enter_context(_server(reply)) for how, reply in REPLIES.items()}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            places["Redis is gone"] = f"redis://127.0.0.1:{free.getsockname()[1]}/0"
        if url is not None:
            places |= {f"orders are {kind}": url for kind in ORDERS}
        for what, where in places.items():
            progress(what)
            for is_capped in (False, True):
                _in_broken_fleet(what, where, found, is_capped=is_capped)
    return found


ORDERS: Mapping[str, Mapping[str, str]] = {
    "no orders": {"epoch": "1", "fence": "1", "version": "1"},
    "no numbers": {"epoch": "x", "fence": "y", "version": "z", "all": "{}"},
    "no JSON": {"epoch": "1", "fence": "1", "version": "1", "all": "\x00\xff{"},
}
"""Fields of the hash in which orders stand."""


def _in_broken_fleet(what: str, where: str, found: dict[str, Any], *, is_capped: bool) -> None:
    name = _name()
    if what.startswith("orders"):
        link = RedisLink(where, name)
        link._redis.hset(f"{link.prefix}loop:orders", mapping=dict(ORDERS[what.removeprefix("orders are ")]))
    with tempfile.TemporaryDirectory() as folder:
        way = DollarsWay(where, name, Path(folder)) if is_capped else FleetWay(where, name)
        try:
            for turn in range(3):
                found["injected"] += 1
                _serve(way, f"{what}, request {turn}", found)
                time.sleep(0.1)
        finally:
            way.close()


def _name() -> str:
    return f"hostile-{uuid.uuid4().hex[:8]}"


@contextmanager
def _server(reply: bytes | None) -> Iterator[str]:
    """A server that gives the same reply to all it receives."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=(listening, reply), daemon=True).start()
        yield f"redis://127.0.0.1:{listening.getsockname()[1]}/0"
        listening.shutdown(socket.SHUT_RDWR)


def _accept(listening: socket.socket, reply: bytes | None) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection, reply), daemon=True).start()


def _answer(connection: socket.socket, reply: bytes | None) -> None:
    with connection:
        try:
            while connection.recv(65536):
                if reply is not None:
                    connection.sendall(reply)
        except OSError:
            return


def attack(
    kinds: Sequence[str], url: str | None, progress: Callable[[str], object], every: int
) -> dict[str, Mapping[str, Any]]:
    """Run these kinds and return their counts; what needs a Redis is left out without one."""
    found: dict[str, Mapping[str, Any]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "broken Redis" in kinds:
            found["broken Redis"] = broken_redis(url, progress)
        if "fleet's thread" in kinds and url is not None:
            found["fleet's thread"] = thread_faults(url, progress, every)
    return found

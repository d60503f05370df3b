"""The `vinelm` command in forks of one process that has imported it: what a page runs need not import everything ninety times.

    python scripts/docs_parts/warm_vinelm.py FOLDER

It writes two programs into FOLDER, `vinelm` and `python-of-vinelm`, and runs until its stdin is closed. The first is put first
on PATH. Each hands its arguments, environment, folder and descriptors over; a fork of this process becomes the command, gets
the signals that the program gets, and its exit code becomes the program's. The second stands for ``sys.executable`` in such a
fork: with it a profile starts the process that its units are forked from, and `vinelm try` its commands. Any other Python is
run as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOCKET = "socket"
FORK_SERVER = "vinelm.profiler.isolation.fork_server"
FIRST_HIGH = 200  # received descriptors are moved up here, out of the way of the numbers that they are to have
HEADER = 8
PROGRAM = '''#!{python} -IS
"""Hand this command over to the warm process, pass on signals, and end as the command ends."""
import json, os, select, signal, socket, sys

is_known = sys.argv[1:3] == ["-m", {fork_server!r}] or (sys.argv[1:2] == ["-c"] and "vinelm" in sys.argv[2])
if {is_python} and not is_known:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
open_ones = [int(name) for name in os.listdir("/proc/self/fd")]
descriptors = []
for number in open_ones:
    try:
        if number < 3 or os.get_inheritable(number):
            os.fstat(number)
            descriptors.append(number)
    except OSError:
        pass
ends = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
ignored = [int(number) for number in ends if signal.getsignal(number) == signal.SIG_IGN]
there = socket.socket(socket.AF_UNIX)
there.connect({socket!r})
told = dict(argv=sys.argv[1:], env=dict(os.environ), folder=os.getcwd(), descriptors=descriptors, ignored=ignored)
text = json.dumps(dict(told, is_python={is_python})).encode()
socket.send_fds(there, [b"%8d" % len(text)], descriptors)
there.sendall(text)
there.setblocking(False)
for number in ends:  # also those that are ignored: the command may heed them
    signal.signal(number, lambda *_: None)
signal.set_wakeup_fd(there.fileno())  # the number of each signal is written there
select.select([there], [], [])
ended = there.recv(16)
signal.set_wakeup_fd(-1)
code = int(ended) if ended else 1
if code < 0:
    if -code in ends:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
'''


class Warm:
    """The warm process, and the folder that belongs first on PATH."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="vinelm-"))
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and not name.startswith("VINELM_")}
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**kept, "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "80", "TERM": "dumb"},
            start_new_session=True,  # Ctrl-C reaches the programs, which pass it on
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"the warm process ended with {self._process.wait()}")

    def end(self) -> None:
        """End the process and delete its folder; commands that still run are not waited for."""
        self._process.communicate()
        for file in self.folder.iterdir():
            file.unlink()
        self.folder.rmdir()


def main(folder: Path) -> int:
    """Import everything, say ``ready``, and fork on request until stdin is closed; in a fork, run the command."""
    _import_all()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / SOCKET))
    listening.listen(64)
    for name, is_python in (("vinelm", False), ("python-of-vinelm", True)):
        values = {"python": sys.executable, "socket": str(folder / SOCKET), "fork_server": FORK_SERVER, "is_python": is_python}
        (folder / name).write_text(PROGRAM.format(**values), encoding="utf-8")
        (folder / name).chmod(0o755)
    print("ready", flush=True)
    watchers: set[int] = set()
    gc.collect()
    gc.freeze()
    while True:
        readable, _, _ = select.select([listening, 0], [], [])
        watchers = {pid for pid in watchers if os.waitpid(pid, os.WNOHANG)[0] == 0}
        if 0 in readable:
            return 0
        there, _ = listening.accept()
        pid = os.fork()
        if pid:
            watchers.add(pid)
            there.close()
            continue
        listening.close()
        command = _watched(there, folder)
        return command()


def _import_all() -> None:
    """Import every module of VineLM, run a trivial graph, and import the libraries that are imported late."""
    import vinelm

    for found in pkgutil.walk_packages(vinelm.__path__, "vinelm."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    for name in ("jinja2", "matplotlib.figure", "psycopg", "rich.console", "rich.progress", "scipy.stats", "sqlglot"):
        importlib.import_module(name)
    importlib.import_module(FORK_SERVER).preload(())


def _watched(there: socket.socket, folder: Path) -> Callable[[], int]:
    """In the fork's fork: the command, ready to run. The fork itself passes on signals, then the exit code, and ends."""
    head, got, _, _ = socket.recv_fds(there, HEADER, 250)
    rest = int(head)
    text = b""
    while len(text) < rest:
        text += there.recv(rest - len(text))
    told = json.loads(text)
    pid = os.fork()
    if pid == 0:
        there.close()
        return _ready(told, got, folder)
    for number in got:
        os.close(number)
    handle = os.pidfd_open(pid)
    while True:
        readable, _, _ = select.select([handle, there], [], [])
        if handle in readable:
            break
        # Of several signals at once each kind counts once, as for a process. Without the program there is no command.
        for number in set(there.recv(64)) or {signal.SIGKILL}:
            signal.pidfd_send_signal(handle, number)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):  # the program was killed
        there.sendall(str(code).encode())
    os._exit(0)


def _ready(told: dict[str, Any], got: list[int], folder: Path) -> Callable[[], int]:
    """Become the process that the command would have had: descriptors, folder, environment, path, signals."""
    high = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, FIRST_HIGH) for number in got]
    for number in got:
        os.close(number)
    for number, wanted in zip(high, told["descriptors"], strict=True):
        os.dup2(number, wanted, inheritable=True)
        os.close(number)
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["env"])
    for number in told["ignored"]:
        signal.signal(number, signal.SIG_IGN)
    base = sys.path[1:]  # without the folder of this script
    own = [entry for entry in told["env"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    executable, sys.executable = sys.executable, str(folder / "python-of-vinelm")
    # The units of a profile run in threads where the page names nothing else: the rows are the same, and a page that buys 900
    # need not fork 900 processes. What processes add (limits, deaths, Ctrl-C) has tests of its own.
    importlib.import_module("vinelm.cli.commands.profile").command.context_settings["default_map"] = {"isolation": "thread"}
    if told["is_python"]:
        sys.path[:] = [told["folder"], *own, *base]
        if told["argv"][0] == "-c":
            sys.argv[:] = ["-c", *told["argv"][2:]]
            code = compile(told["argv"][1], "<string>", "exec")
            return lambda: exec(code, {"__name__": "__main__"}) or 0  # as `python -c` does
        numbers = map(int, told["argv"][2:])
        return lambda: importlib.import_module(FORK_SERVER).main(*numbers) or 0
    from vinelm.cli.main import main as vinelm_main

    sys.path[:] = [str(Path(executable).parent), *own, *base]
    sys.argv[:] = [str(Path(executable).parent / "vinelm"), *told["argv"]]
    if not os.environ.keys() & {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # as the import of the command line does
    return vinelm_main


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""Python processes of a test's own that need not import anything first: forks of one that has everything loaded.

Real processes all the same: they are killed, interrupted and waited for by their pid. Started once per test session.
"""

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[2]
PATHS = [str(TESTS), str(TESTS.parent / "scripts")]


class LoadedPython:
    """Starts them with that Python; ``modules`` are imported in place of what a profile needs. Linux and macOS."""

    def __init__(self, python, *modules):
        self._control, theirs = socket.socketpair()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "OPENBLAS_NUM_THREADS": "1"}
        with theirs:
            code = f"import sys; sys.executable = {sys.executable!r}; from {__name__} import main; main()  # of vinelm"
            command = [python, "-c", code, str(theirs.fileno()), *modules]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, start_new_session=True)

    def start(self, code, *arguments):
        """Run that code with these arguments."""
        reading, writing = os.pipe()
        order = json.dumps({"code": code, "arguments": arguments}).encode()
        socket.send_fds(self._control, [len(order).to_bytes(4, "little")], [writing])
        os.close(writing)
        self._control.sendall(order)
        return Started(self, _receive(self._control), os.fdopen(reading, encoding="utf-8"))

    def wait(self, pid, timeout_s):
        """Exit code; negative for a signal, None where it does not end."""
        order = json.dumps({"wait": pid, "timeout_s": timeout_s}).encode()
        self._control.sendall(len(order).to_bytes(4, "little") + order)
        return _receive(self._control)

    def close(self):
        """End it."""
        self._control.close()
        self._process.wait(10)


class Started:
    """As much of :class:`subprocess.Popen` as tests need; ``stdout`` is text."""

    def __init__(self, owner, pid, stdout):
        self._owner, self.pid, self.stdout = owner, pid, stdout
        self.returncode = None

    def send_signal(self, number):
        """To it, if it is there."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        """``kill -9``."""
        self.send_signal(signal.SIGKILL)

    def poll(self):
        """Exit code, None while it runs."""
        if self.returncode is None:
            self.returncode = self._owner.wait(self.pid, 0)
        return self.returncode

    def wait(self, timeout=60):
        """Exit code."""
        if self.returncode is None:
            self.returncode = self._owner.wait(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a loaded Python", timeout)
        return self.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.wait()
        self.stdout.close()


def _receive(channel):
    return json.loads(_exactly(channel, int.from_bytes(_exactly(channel, 4), "little")))


def _exactly(channel, size):
    data = b""
    while len(data) < size:
        part = channel.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _answer(channel, plain):
    data = json.dumps(plain).encode()
    channel.sendall(len(data).to_bytes(4, "little") + data)


def serve(channel):
    """Until the other side is gone."""
    while True:
        select.select([channel], [], [])
        size, descriptors, _, _ = socket.recv_fds(channel, 4, 1)
        if not size:
            return
        order = json.loads(_exactly(channel, int.from_bytes(size, "little")))
        if "wait" in order:
            _answer(channel, _wait(order["wait"], order["timeout_s"]))
            continue
        pid = os.fork()
        if pid == 0:
            channel.close()
            _run(order, descriptors[0])
        os.close(descriptors[0])
        _answer(channel, pid)


def _wait(pid, timeout_s):
    deadline = time.monotonic() + timeout_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.005)


def _run(order, stdout):
    os.dup2(stdout, 1)
    os.close(stdout)
    sys.argv = ["loaded", *order["arguments"]]
    code = 1
    try:
        exec(compile(order["code"], "<test>", "exec"), {"__name__": "__main__"})
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code)


def main():
    """Load what the command line names, and serve."""
    number, *modules = sys.argv[1:]
    for name in modules or ("bench_profiler", "kit.toys.profiling", "vinelm.profiler.execution.unit"):
        importlib.import_module(name)
    if not modules:
        sys.modules["vinelm.profiler.execution.unit"].warm_up()
    serve(socket.socket(fileno=int(number)))

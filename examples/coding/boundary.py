"""The boundary around generated code: a bubblewrap sandbox, or, where that was asked for in so many words, limits only.

In the sandbox a process has namespaces of its own (user, process, network, IPC, host name, cgroup), another user id without
capabilities, an empty environment, no ``/proc``, a system-call filter, and a read-only root with Python's standard library, the
system's shared libraries and ``/dev/null``: no home, no ``/etc``, no project, no shell. It can write 16 MB to a ``/tmp`` in
memory.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from examples.coding import solution_process, system_calls
from vinelm.errors import ConfigError

UNSAFE = "VINELM_UNSAFE_SANDBOX"
"""Environment variable; ``1`` runs generated code with limits only, without a boundary."""

_WARNED = f"{UNSAFE}_WARNED"
"""Set when the warning was printed: children inherit it, and a profile has many."""

TMP_BYTES = 16 << 20
NOBODY = 65534

_PREFIX = "/python"
"""Where the interpreter and its library lie inside: what the code sees and reports does not depend on the machine."""

_INSTALLED = ("site-packages", "dist-packages", "../python3/dist-packages")


def is_unsafe() -> bool:
    """Whether generated code was allowed to run without a boundary."""
    return os.environ.get(UNSAFE) == "1"


def allow_unsafe() -> None:
    """Let generated code of this process and its children run without a boundary, and say so on stderr."""
    os.environ[UNSAFE] = "1"
    _warn("--unsafe")


def warn_if_unsafe() -> None:
    """Say on stderr, once for this process and its children, that generated code was allowed to run without a boundary."""
    if is_unsafe():
        _warn(f"{UNSAFE}=1")


def _warn(asked_by: str) -> None:
    if os.environ.get(_WARNED) == "1":
        return
    os.environ[_WARNED] = "1"
    print(
        f"WARNING: {asked_by}: model-written code runs WITHOUT a sandbox: it can read your files and keys, use the network "
        "and start programs.",
        file=sys.stderr,
    )


def require_boundary() -> None:
    """Raise :class:`ConfigError` unless generated code can be sandboxed here, or is allowed to run without a boundary."""
    if not is_unsafe():
        _bubblewrap()


@lru_cache(maxsize=1)
def why_unavailable() -> str | None:
    """Return why there is no sandbox on this machine; None if there is one. Starts a process, once."""
    try:
        with _filter_descriptor() as descriptor:
            command = _sandboxed("", descriptor)
            done = subprocess.run(command, pass_fds=(descriptor,), env={}, capture_output=True, check=False, **_as_nobody())
    except ConfigError as error:
        return str(error)
    return None if done.returncode == 0 else failed(done.stderr)


def failed(said: bytes) -> str:
    """Return the error message for a sandbox that did not start, with what bubblewrap said."""
    lines = said.decode("utf-8", "replace").strip().splitlines() or ["no message"]
    return (
        f"model-written code needs a sandbox, and bubblewrap cannot make one here ({lines[-1][:200]}): allow user namespaces, "
        f"or set {UNSAFE}=1 to run it without one"
    )


def _bubblewrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise ConfigError(
            "model-written code needs a sandbox, and bubblewrap is not installed: install the package bubblewrap "
            f"(apt, dnf, pacman), or set {UNSAFE}=1 to run it without one",
            code="sandbox-missing",
        )
    if not system_calls.is_supported():
        raise ConfigError(
            f"model-written code needs a sandbox, and there is none for this processor: set {UNSAFE}=1 to run it without one",
            code="sandbox-missing",
        )
    return found


@contextmanager
def started(limits: Mapping[str, int], channel: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    """Start the process that runs generated code, with ``channel`` as its input; kill all that it started at the end."""
    source = Path(solution_process.__file__).read_text(encoding="utf-8")
    text = f"{source}\nmain({dict(limits)!r})\n"
    settings: dict[str, Any] = {
        "stdin": channel,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
        "env": {},
        "cwd": "/",
    }
    with ExitStack() as stack:
        if is_unsafe():
            command = _python_command(text, interpreter())
            settings |= {"start_new_session": True}
        else:
            descriptor = stack.enter_context(_filter_descriptor())
            command = _sandboxed(text, descriptor)
            settings |= {"pass_fds": (descriptor,), **_as_nobody()}
        process = subprocess.Popen(command, **settings)
    with process:
        try:
            yield process
        finally:
            if is_unsafe():
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            else:  # the death of bubblewrap ends everything in its sandbox
                process.kill()


def _python_command(text: str, python: str) -> list[str]:
    """The command that runs a program without installed packages."""
    return [python, "-I", "-S", "-B", "-c", text]


def interpreter() -> str:
    """Return the real path of the interpreter, outside any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _sandboxed(text: str, seccomp: int) -> list[str]:
    """The command that runs a program in the sandbox, with a descriptor of the system-call filter."""
    command = [_bubblewrap(), "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    command += ["--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"]
    for path in (*_libraries(), *_standard_library(), interpreter()):
        command += ["--ro-bind-try", path, _inside(path)]
    for path in map(_inside, _installed()):
        command += ["--tmpfs", path, "--remount-ro", path]
    command += ["--setenv", "LD_LIBRARY_PATH", f"{_PREFIX}/lib"]
    command += ["--dev-bind", os.devnull, os.devnull, "--size", str(TMP_BYTES), "--tmpfs", "/tmp", "--remount-ro", "/"]
    inner = _python_command(text, _inside(interpreter()))
    return [*command, "--chdir", "/tmp", "--seccomp", str(seccomp), "--", *inner]


def _inside(path: str) -> str:
    """Where a path of this machine is inside the sandbox."""
    return (
        path.replace(sys.base_prefix, _PREFIX, 1) if Path(path).is_relative_to(sys.base_prefix) and _is_python(path) else path
    )


def _is_python(path: str) -> bool:
    return path == interpreter() or path.startswith(_standard_library()) or "libpython" in path


def _standard_library() -> tuple[str, str]:
    paths = sysconfig.get_paths(vars={"base": sys.base_prefix, "platbase": sys.base_exec_prefix})
    return paths["stdlib"], paths["platstdlib"]


def _installed() -> list[str]:
    """The folders of installed packages inside the standard library's: they are shown empty."""
    paths = {os.path.normpath(os.path.join(folder, name)) for folder in _standard_library() for name in _INSTALLED}
    return sorted(path for path in paths if os.path.isdir(path) and path.startswith(_standard_library()))


def _libraries() -> list[str]:
    """The folders of the system's shared libraries, and those libraries of Python itself that lie elsewhere."""
    triplet = sysconfig.get_config_var("MULTIARCH") or ""
    folders = (
        [f"/lib/{triplet}", f"/usr/lib/{triplet}"] if triplet and os.path.isdir(f"/usr/lib/{triplet}") else ["/lib", "/usr/lib"]
    )
    own = [os.path.join(folder, name) for folder in _python_lib_folders() for name in _listed(folder) if ".so" in name]
    return [*folders, "/lib64", "/usr/lib64", "/etc/ld.so.cache", *own]


def _python_lib_folders() -> list[str]:
    return [folder for folder in (os.path.join(sys.base_prefix, "lib"), "/usr/local/lib") if folder not in ("/usr/lib", "/lib")]


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


@contextmanager
def _filter_descriptor() -> Iterator[int]:
    """Lend a descriptor from which bubblewrap reads the system-call filter."""
    reading, writing = os.pipe()
    try:
        os.write(writing, system_calls.filter_program())
        os.close(writing)
        yield reading
    finally:
        os.close(reading)


def _as_nobody() -> Mapping[str, Any]:
    """The ``Popen`` arguments that drop root: user ``nobody``, if it can reach the interpreter.

    Root that nobody can stand in for is mapped to another user id inside the sandbox all the same, without a capability.
    """
    if os.geteuid() != 0 or not _can_be_reached(Path(interpreter())):
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def _can_be_reached(path: Path) -> bool:
    has_way = all(os.stat(parent).st_mode & stat.S_IXOTH for parent in path.parents)
    return has_way and bool(os.stat(path).st_mode & stat.S_IROTH)

"""The boundary around generated code: a bubblewrap sandbox, or, where that was asked for in so many words, limits only.

In the sandbox a process has namespaces of its own (user, process, network, IPC, host name, cgroup), another user id without
capabilities, an empty environment, no ``/proc``, a system-call filter, and a read-only root with Python's standard library, the
system's shared libraries and ``/dev/null``: no home, no ``/etc``, no project, no shell. It can write 16 MB to a ``/tmp`` in
memory.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from vinelm.errors import ConfigError
from vinelm.workflows.examples.coding import limits, solution_process, system_calls, tests_process, wire

UNSAFE = "VINELM_UNSAFE_SANDBOX"
"""Environment variable; ``1`` runs generated code with limits only, without a boundary."""

_WARNED = f"{UNSAFE}_WARNED"
"""Set when the warning was printed: children inherit it, and a profile has many."""

TMP_BYTES = 16 << 20
NOBODY = 65534

_PREFIX = "/python"
"""Where the interpreter and its library lie inside: what the code sees and reports does not depend on the machine."""

_INSTALLED = ("site-packages", "dist-packages", "../python3/dist-packages")
_PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")
_LAUNCH = """
import sys, types
for name, text in SOURCES:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
module.main(*ARGUMENTS)
"""


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
        with filter_descriptor() as descriptor:
            command = sandboxed("", [], descriptor)
            done = subprocess.run(command, pass_fds=(descriptor,), env={}, capture_output=True, check=False, **as_nobody())
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


def program(role: str, arguments: Sequence[Any]) -> str:
    """Return the Python program of a process: ``role`` is ``solution`` or ``tests``."""
    modules = (wire, limits, {"solution": solution_process, "tests": tests_process}[role])
    sources = [(module.__name__, Path(str(module.__file__)).read_text(encoding="utf-8")) for module in modules]
    return f"SOURCES, ARGUMENTS = {sources!r}, {list(arguments)!r}\n{_LAUNCH}"


def python_command(text: str, python: str) -> list[str]:
    """Return the command that runs a program with the interpreter at ``python``, without installed packages."""
    return [python, "-I", "-S", "-B", "-c", text]


def interpreter() -> str:
    """Return the real path of the interpreter, outside any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def sandboxed(text: str, packages: Sequence[Path], seccomp: int) -> list[str]:
    """Return the command that runs a program in the sandbox.

    Args:
        text: the program.
        packages: folders and files that it sees as ``/packages/NAME``.
        seccomp: descriptor of the system-call filter.

    Raises:
        ConfigError: bubblewrap is not installed.
    """
    command = [_bubblewrap(), "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    command += ["--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"]
    for path in (*_libraries(), *_standard_library(), interpreter()):
        command += ["--ro-bind-try", path, _inside(path)]
    for path in map(_inside, _installed()):
        command += ["--tmpfs", path, "--remount-ro", path]
    command += ["--setenv", "LD_LIBRARY_PATH", f"{_PREFIX}/lib"]
    for package in packages:
        command += ["--ro-bind", str(package), f"/packages/{package.name}"]
    command += ["--dev-bind", os.devnull, os.devnull, "--size", str(TMP_BYTES), "--tmpfs", "/tmp", "--remount-ro", "/"]
    inner = python_command(text, _inside(interpreter()))
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


def pytest_packages() -> list[Path]:
    """Return where pytest and what it needs are installed; ``ModuleNotFoundError`` without pytest."""
    from importlib.metadata import distribution
    from importlib.util import find_spec

    import pytest  # noqa: F401 - fail here with a clear error, not in every child

    found = [spec for spec in map(find_spec, _PACKAGES) if spec is not None and spec.origin is not None]
    modules = [Path(str(spec.origin)).parent if spec.submodule_search_locations else Path(str(spec.origin)) for spec in found]
    metadata = [file for name in ("pytest", "pluggy") for file in distribution(name).files or () if file.name == "METADATA"]
    return modules + [Path(str(file.locate())).parent for file in metadata]  # it asks for its version


@contextmanager
def filter_descriptor() -> Iterator[int]:
    """Yield a descriptor from which bubblewrap reads the system-call filter."""
    reading, writing = os.pipe()
    try:
        os.write(writing, system_calls.filter_program())
        os.close(writing)
        yield reading
    finally:
        os.close(reading)


def as_nobody(packages: Sequence[Path] = ()) -> Mapping[str, Any]:
    """Return the ``Popen`` arguments that drop root: user ``nobody``, if it can reach the interpreter and the packages.

    Root that nobody can stand in for is mapped to another user id inside the sandbox all the same, without a capability.
    """
    if os.geteuid() != 0 or not all(map(_can_be_reached, (Path(interpreter()), *packages))):
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def _can_be_reached(path: Path) -> bool:
    has_way = all(os.stat(parent).st_mode & stat.S_IXOTH for parent in path.parents)
    return has_way and bool(os.stat(path).st_mode & stat.S_IROTH)

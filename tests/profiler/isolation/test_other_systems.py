"""On systems without fork, waitid, resource, fcntl and most signals: nothing fails at import, and a profile runs in threads.

There is no such machine here: what they lack is taken away before anything is imported, as far as the standard library of
this system does without it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"

WINDOWS = """
import os, select, signal, socket, sys
for module, names in (
    (os, "fork forkpty waitid killpg setpgid"),
    (socket, "AF_UNIX send_fds recv_fds"),
    (signal, "SIGKILL SIGHUP SIGCHLD set_wakeup_fd pause"),
    (select, "poll"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
sys.modules["resource"] = sys.modules["fcntl"] = None
"""
NO_WAITID = """
import os
del os.waitid
"""
PROFILE = """
import sys
from kit.toys.profiling import *
from vinelm.profiler import ExecutionConfig, ProfileSettings, WorkflowSource, profile
from vinelm.traces import ObservationStore
source = WorkflowSource(function="kit.toys.profiling:load", arguments={"n_requests": 4, "mischief": MISCHIEF})
loaded = source.load()
notes = []
with new_store(sys.argv[1], loaded.workflow) as store:
    result = profile(loaded.workflow, loaded.catalog, loaded.backends, store, ProfileSettings(
        sampler="exhaustive", execution=ExecutionConfig(isolation="process", workers=3, source=source), on_note=notes.append))
    for row in store.observations():
        wanted = expected(row.request_id, row.prefix)
        if row.failure is None:
            assert {name: getattr(row, name) for name in wanted} == wanted
    print(result.stopped_by, result.executed, result.failures)
    print(*notes, sep="|")
"""


def run(code, folder, lacking, *arguments):
    """That code in a process where all of this is missing from the start, also in the processes that it starts."""
    (folder / "sitecustomize.py").write_text(lacking)
    path = os.pathsep.join(map(str, (folder, TESTS)))
    environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
def test_a_profile_runs_in_threads_where_nothing_can_be_forked(tmp_path):
    stopped, note = run(PROFILE.replace("MISCHIEF", "{}"), tmp_path, WINDOWS, str(tmp_path / "s.db"))
    there, none = run(PROFILE.replace("MISCHIEF", "{}"), tmp_path, "", str(tmp_path / "here.db"))
    assert stopped == there
    assert stopped.startswith("complete ")
    assert none == ""
    assert note == (
        "this system cannot fork processes: the units run in threads of this one, so that a crash ends the run, and a unit's "
        "time and memory are not limited"
    )


@pytest.mark.long
def test_processes_are_forked_and_their_ends_told_without_waitid(tmp_path):
    mischief = '{"q0/m0": "os._exit", "q1/m0": "segfault", "q2/m1": "abort"}'
    stopped, none = run(PROFILE.replace("MISCHIEF", mischief), tmp_path, NO_WAITID, str(tmp_path / "s.db"))
    assert none == ""
    assert stopped.startswith("complete ")
    assert stopped.endswith("{'crash': 3}")


IMPORT_ALL = """
import importlib, pkgutil, vinelm
left = []
for found in pkgutil.walk_packages(vinelm.__path__, "vinelm."):
    if found.name.startswith(("vinelm.profiler.isolation.", "examples")) or "__main__" in found.name:
        continue
    try:
        importlib.import_module(found.name)
    except ModuleNotFoundError as error:  # an extra that is not installed
        left.append(error.name)
print(sorted({name.partition(".")[0] for name in left if name} & {"resource", "fcntl", "vinelm"}))
"""


@pytest.mark.long
def test_nothing_fails_at_import(tmp_path):
    assert run(IMPORT_ALL, tmp_path, WINDOWS) == ["[]"]


@pytest.mark.long
def test_the_command_line_says_so_in_one_line(tmp_path):
    code = "import sys; from vinelm.cli.main import main; sys.exit(main(sys.argv[1:]))"
    (tmp_path / "sitecustomize.py").write_text(WINDOWS)
    path = os.pathsep.join(map(str, (tmp_path, EXAMPLES)))
    environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
    settings = ("--models", str(EXAMPLES / "models.toml"), "--limit", "2", "--budget-calls", "6")
    arguments = ["profile", "my_app:workflow", *settings, "--store", str(tmp_path / "s.db")]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 3), done.stderr
    assert sum("cannot fork processes" in line for line in done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


POSIX = re.compile(
    r"\bos\.(fork|waitid|waitpid|killpg|setpgid|getppid|kill)\b|\bimport (resource|fcntl)\b|\bselect\.poll\b|\bpass_fds\b"
    r"|signal\.SIG(KILL|HUP|CHLD)|\b(send|recv)_fds\b|\bAF_UNIX\b|\bset_wakeup_fd\b|\bprctl\b"
)
PORTABLE = ("profiler", "vinelm", "controller", "estimator", "traces", "workflows")
ONE_PLACE = (
    "vinelm/io/operating_system.py",
    "profiler/isolation/",
    "vinelm/backends/remote/idle_connections.py",  # left to the library where the system has no such call
    "profiler/cluster/bridge.py",  # refused where processes cannot be forked
    "examples/coding/",  # the sandbox: Linux only, and refused elsewhere
    "workflows/limited/",  # used only where processes can be forked
)


def test_system_calls_are_in_one_place():
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for part in PORTABLE
        for path in (ROOT / part).rglob("*.py")
        if not str(path.relative_to(ROOT)).startswith(ONE_PLACE)
        for match in POSIX.finditer(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize("lacking", ["resource", "fork"])
def test_each_of_them_is_needed(lacking, monkeypatch):
    from vinelm.io import operating_system
    from vinelm.io.operating_system import can_fork

    assert can_fork()
    if lacking == "fork":
        monkeypatch.delattr(os, "fork")
    else:
        monkeypatch.setattr(operating_system, "resource", None)
    assert not can_fork()

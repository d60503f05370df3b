"""Run generated code and its tests with pytest in a restricted child process.

Protects against accidents, not against attacks: the child has no environment, no network and no subprocesses, writes only to a
folder of its own, and has limits on time, memory and file size. Run untrusted code in a container.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

TIMEOUT_S = 20.0
REPORT_CHARS = 1500

_CHILD = """
import sys, os
home, cpu_s = os.path.realpath(sys.argv[1]), int(sys.argv[2])
import resource
for name, limit in (("RLIMIT_CPU", cpu_s), ("RLIMIT_AS", 2 << 30), ("RLIMIT_FSIZE", 1 << 20), ("RLIMIT_CORE", 0)):
    resource.setrlimit(getattr(resource, name), (limit, limit))
import pytest, ctypes
FORBIDDEN = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "os.kill", "ctypes.",
             "os.remove", "os.rename", "os.rmdir", "os.chmod", "os.chown", "os.link", "os.symlink", "shutil.", "pty.")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
def guard(event, args):
    if event == "open":
        path, _, flags = args
        if flags & WRITING and isinstance(path, (str, bytes)) and os.fsdecode(path) != os.devnull:
            if not os.path.realpath(os.fsdecode(path)).startswith(home + os.sep):
                raise PermissionError("the sandbox writes only into its own folder")
    elif event.startswith(FORBIDDEN):
        raise PermissionError("the sandbox forbids " + event)
class Notes:
    passed, problems = 0, []
    def pytest_runtest_logreport(self, report):
        self.passed += report.when == "call" and report.passed
        self.pytest_collectreport(report)
    def pytest_collectreport(self, report):
        if report.failed:
            lines = [line[1:].strip() for line in str(report.longrepr).splitlines() if line.startswith("E ")]
            where = report.nodeid.rpartition("::")[2]
            self.problems.append(where + ": " + " / ".join(lines[:4] or ["failed"]))
notes, token = Notes(), sys.argv.pop()
sys.addaudithook(guard)
pytest.main(["-x", "--tb=short", "--capture=sys", "-p", "no:cacheprovider", "-p", "no:faulthandler",
             "--rootdir", home, "-c", os.devnull, os.path.join(home, "test_solution.py")], plugins=[notes])
import json
os.write(1, (token + json.dumps([notes.passed, notes.problems])).encode())
os._exit(0)
"""


@lru_cache(maxsize=4096)
def run_pytest(code: str, tests: str, timeout_s: float = TIMEOUT_S) -> tuple[bool, str]:
    """Return whether all ``tests`` pass with ``code`` as their module ``solution``, and a report of the first failure.

    Results are cached per process; reports do not depend on the machine. ``ModuleNotFoundError`` if pytest is not installed.
    """
    import pytest  # noqa: F401 - fail here with a clear error, not in every child

    with tempfile.TemporaryDirectory(prefix="vinelm-sandbox-") as folder:
        (Path(folder) / "solution.py").write_text(code, encoding="utf-8")
        (Path(folder) / "test_solution.py").write_text(tests, encoding="utf-8")
        environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1", "HOME": folder, "TMPDIR": folder}
        token = secrets.token_hex(16)  # code that ends the process early has not passed
        command = [sys.executable, "-I", "-B", "-c", _CHILD, folder, str(int(timeout_s) + 1), token]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False, f"the tests took longer than {timeout_s:g} s"
    said = done.stdout.decode("utf-8", "replace").replace(f"{folder}/", "")
    return _verdict(*said.rpartition(token)[1:])


def _verdict(token: str, text: str) -> tuple[bool, str]:
    if not token:
        return False, "the code ended the process before its tests were through"
    passed, problems = json.loads(text)
    if problems:
        return False, "\n".join(problems)[:REPORT_CHARS]
    return passed > 0, f"{passed} passed" if passed else "no test was found"

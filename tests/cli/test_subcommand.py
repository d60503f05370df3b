"""`vinelm try` is several processes, and stopping it stops all of them: nothing is bought behind its back."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MODELS = Path(__file__).parents[2] / "docs" / "examples" / "models.toml"

APP = """
import os, signal, time
from pathlib import Path
Path("pid").write_text(str(os.getpid()))
{}
while True:
    try:
        time.sleep(0.05)
    except Exception:
        pass
"""
# The tests themselves may run under nohup, or in the background of a shell, which ignores Ctrl-C.
HEEDED = (
    "import signal; hasattr(signal, 'SIGHUP') and signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    "signal.signal(signal.SIGINT, signal.default_int_handler)"
)
TRY = f"import sys; {HEEDED}; from vinelm.cli.main import main; sys.exit(main())"


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def wait_for(what, seconds=60.0):
    """Polls; the limit only ends a test that hangs."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


@pytest.fixture
def started(tmp_path):
    """`vinelm try` on an application that never ends its import, and the id of the process that imports it."""
    running = []

    def start(code=""):
        (tmp_path / "workflow.py").write_text(APP.format(code), encoding="utf-8")
        shutil.copy(MODELS, tmp_path)
        line = [sys.executable, "-c", TRY, "try", "workflow.py:build", "--budget-usd", "1"]
        process = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True)
        running.append(process)
        wait_for((tmp_path / "pid").exists)
        wait_for(lambda: (tmp_path / "pid").read_text() != "")
        return process, int((tmp_path / "pid").read_text())

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("code", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"], ids=["plain", "ignores SIGTERM"])
def test_a_signal_to_try_ends_what_it_has_started(started, number, code):
    process, child = started(code)
    assert child != process.pid
    os.kill(process.pid, number)
    assert process.wait(60) == 130
    wait_for(lambda: not is_running(child))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_try_that_is_killed_takes_what_it_has_started_with_it(started):
    process, child = started()
    process.kill()
    process.wait(60)
    wait_for(lambda: not is_running(child))


def test_an_import_that_never_ends_is_one_line(tmp_path):
    shutil.copy(MODELS, tmp_path)
    for name, rest in (("workflow.py", []), ("app_that_waits.py", ["--dataset", "q.csv"])):
        (tmp_path / name).write_text(APP.format(""), encoding="utf-8")
        (tmp_path / "q.csv").write_text("question,answer\n1,1\n", encoding="utf-8")
        line = [sys.executable, "-c", TRY, "try", f"{name}:graph", "--budget-usd", "1", *rest]
        done = subprocess.run(
            line, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "VINELM_IMPORT_LIMIT_S": "1"}
        )
        (tmp_path / name).unlink()
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "takes longer than 1 s" in done.stderr

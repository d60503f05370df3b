"""`vinelm try` can be stopped at any time, and then nothing is bought behind its back; the same line goes on."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from kit.waiting import wait_for

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


@pytest.fixture
def started(tmp_path):
    """`vinelm try` on an application that never ends its import, and the id of the process that imports it."""
    running = []

    def start(code="", name="workflow", *more):
        (tmp_path / f"{name}.py").write_text(APP.format(code), encoding="utf-8")
        (tmp_path / "q.csv").write_text("question,answer\n1,1\n", encoding="utf-8")
        shutil.copy(MODELS, tmp_path)
        line = [sys.executable, "-c", TRY, "try", f"{name}.py:build", "--budget-usd", "1", *more]
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
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_try_whose_application_never_ends_its_import(started, number):
    process, importing = started()
    assert importing == process.pid
    os.kill(process.pid, number)
    assert process.wait(60) == 130
    assert process.stderr.read().splitlines()[-1] == "interrupted: what was bought is kept: the same command continues"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_ctrl_c_ends_one_that_ignores_other_signals(started):
    process, _ = started("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) == 130


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_signal_ends_the_process_that_changes_the_application_too(started, number):
    process, importing = started("", "app_that_waits", "--dataset", "q.csv", "--apply")
    assert importing != process.pid
    os.kill(process.pid, number)
    assert process.wait(60) == 130
    wait_for(lambda: not is_running(importing))


def _row_count(folder):
    try:
        return sqlite3.connect(folder / "app.db").execute("SELECT count(*) FROM observations").fetchone()[0]
    except sqlite3.Error:  # not written yet
        return 0


@pytest.mark.skipif(sys.platform != "linux", reason="sends signals to a process group")
@pytest.mark.parametrize(
    ("number", "enough", "verdict"),
    [
        (signal.SIGINT, 10, r"(SWITCH|KEEP|UNDECIDED|NOT ENOUGH DATA)\b"),
        pytest.param(signal.SIGTERM, 10, r"(SWITCH|KEEP|UNDECIDED|NOT ENOUGH DATA)\b", marks=pytest.mark.long),
        pytest.param(signal.SIGINT, 0, "", marks=pytest.mark.long),
    ],
)
def test_a_try_that_is_stopped_while_it_buys_shows_the_verdict_so_far_and_the_same_line_goes_on(
    tmp_path, number, enough, verdict
):
    shutil.copy(MODELS, tmp_path)
    questions = MODELS.with_name("questions.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "questions.jsonl").write_text("".join(questions[:40]), encoding="utf-8")
    text = MODELS.with_name("my_app.py").read_text(encoding="utf-8")
    slow = text.replace(
        "def solve(state: State, model):", "def solve(state: State, model):\n    time.sleep(float(os.environ['SOLVE_S']))"
    )
    assert slow != text
    (tmp_path / "workflow.py").write_text(slow.replace('"""\n', '"""\n\nimport os\nimport time\n', 1), encoding="utf-8")
    line = [sys.executable, "-c", TRY, "try", "workflow.py:build", "--budget-usd", "0.05", "--workers", "2"]
    settings = {"cwd": tmp_path, "text": True}
    waits, hurries = ({**os.environ, "SOLVE_S": seconds} for seconds in ("0.3", "0"))
    process = subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=waits, **settings)
    try:
        wait_for(lambda: (tmp_path / "app.db").exists() and _row_count(tmp_path) > enough)
        os.kill(process.pid, number)
        out, said = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert re.match(verdict, out), said
    assert (tmp_path / "app.vine").exists() or not out
    assert not (tmp_path / "report").exists()
    assert re.search(r"^stopped: \d+ new rows are in app.db, \$[\d.]+ so far$", said, re.MULTILINE)
    assert said.splitlines()[-1] == "interrupted: what was bought is kept: the same command continues"
    before = _row_count(tmp_path)
    assert 0 < before < 60
    done = subprocess.run(line, capture_output=True, check=False, env=hurries, **settings)
    assert done.returncode == 0, done.stderr
    assert _row_count(tmp_path) > before


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
        assert "takes longer than 1 s" in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


def test_an_application_that_ends_the_process_is_one_line(tmp_path):
    shutil.copy(MODELS, tmp_path)
    (tmp_path / "app_that_ends.py").write_text("import os\nos._exit(7)\n", encoding="utf-8")
    (tmp_path / "q.csv").write_text("question,answer\n1,1\n", encoding="utf-8")
    line = [sys.executable, "-c", TRY, "try", "app_that_ends.py:graph", "--dataset", "q.csv", "--apply", "--budget-usd", "1"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "importing it ended the process (exit code 7)" in done.stderr.splitlines()[-1]

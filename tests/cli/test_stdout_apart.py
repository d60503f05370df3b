"""Our data and what the owner's code prints are two streams, whatever imports, builds or runs an application."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vinelm.cli import console
from vinelm.cli.main import main

pytestmark = pytest.mark.usefixtures("warm_python")

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

NOISE = """
import atexit, ctypes, os, subprocess, sys, threading
print("imported")
os.write(1, b"by descriptor\\n")
ctypes.CDLL(None).puts(b"by a library in C")
ctypes.CDLL(None).fflush(None)
subprocess.run([sys.executable, "-c", "print('a process of its own')"], check=True)
thread = threading.Thread(target=lambda: print("a thread"))
thread.start()
thread.join()
atexit.register(print, "at exit")
if os.fork() == 0:
    os.write(1, b"a fork\\n")
    os._exit(0)
os.wait()
"""


@pytest.fixture
def noisy(tmp_path):
    """The example of the docs, with an application that prints in all ways wherever its code runs."""
    for name in ("models.toml", "questions.jsonl"):
        lines = (EXAMPLES / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / name).write_text("".join(lines[:10] if name.endswith(".jsonl") else lines), encoding="utf-8")
    text = (EXAMPLES / "my_app.py").read_text(encoding="utf-8")
    for stage in ("solve", "fix"):
        text = text.replace(f'vine.stage("{stage}", {stage})', f'vine.stage("{stage}", {stage}, default="large")')
    first, *rest = text.partition("def build(vine):\n")
    assert rest[0]
    text = first + NOISE + rest[0] + '    print("built")\n' + rest[1]
    (tmp_path / "workflow.py").write_text(text, encoding="utf-8")
    return tmp_path


def _vinelm(folder, *arguments):
    """Run the command in a process of its own, as a shell does."""
    line = [sys.executable, "-c", "import sys; from vinelm.cli.main import main; sys.exit(main())", *arguments]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    "line",
    [
        ("check", "workflow:workflow", "--models", "models.toml", "--json"),
        ("profile", "workflow:workflow", "--models", "models.toml", "--budget-calls", "3", "--isolation", "inline", "--json"),
        ("profile", "workflow:workflow", "--models", "models.toml", "--budget-calls", "3", "--quiet", "--json"),
        ("profile", "workflow:workflow", "--models", "models.toml", "--budget-usd", "0.01", "--dry-run", "--json"),
    ],
    ids=["check", "profile inline", "profile in processes", "dry run"],
)
def test_stdout_has_our_json_only_whatever_the_application_prints(noisy, line):
    done = _vinelm(noisy, *line)
    json.loads(done.stdout)
    for said in ("imported", "by descriptor", "by a library in C", "a process of its own", "a thread", "at exit", "a fork"):
        assert said in done.stderr


def test_init_keeps_its_object_from_what_the_import_prints(tmp_path):
    (tmp_path / "noisy_app.py").write_text(
        NOISE + "from langgraph.graph import START, MessagesState, StateGraph\n"
        "def make(llm):\n"
        "    print('made')\n"
        "    graph = StateGraph(MessagesState)\n"
        "    graph.add_node('a', lambda state: {'messages': [llm.invoke(state['messages'])]})\n"
        "    graph.add_edge(START, 'a')\n"
        "    return graph.compile()\n",
        encoding="utf-8",
    )
    done = _vinelm(tmp_path, "init", "noisy_app.py:make", "--models", "simulated", "--json")
    assert json.loads(done.stdout)["stages"] == ["a"], done.stderr
    assert "made" in done.stderr


def test_help_and_the_version_are_still_on_stdout(tmp_path):
    assert "--apply" in _vinelm(tmp_path, "try", "--help").stdout
    assert "vinelm" in _vinelm(tmp_path, "--version").stdout


def test_a_reader_that_closes_the_pipe_ends_the_command_quietly(noisy):
    line = [sys.executable, "-c", "import sys; from vinelm.cli.main import main; sys.exit(main())"]
    process = subprocess.Popen(
        [*line, "check", "workflow:workflow", "--models", "models.toml"],
        cwd=noisy,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait(60)


def test_a_program_that_calls_main_has_its_own_stdout_again_behind_it(noisy, monkeypatch, capfd):
    monkeypatch.chdir(noisy)
    stream, target = sys.stdout, os.fstat(1).st_ino
    assert main(["check", "workflow:workflow", "--models", "models.toml", "--json"]) == 0
    assert '"is_ok": true' in capfd.readouterr().out
    assert sys.stdout is stream
    assert os.fstat(1).st_ino == target
    assert console.output() is stream

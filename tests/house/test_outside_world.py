"""How tests that leave their process are found: `--stay-inside` skips them, and `--left-out` runs them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SUITE = """
import socket, subprocess, sys, threading
import pytest

@pytest.fixture(scope="module")
def server():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one

def test_uses_a_server(server):
    assert server

def test_uses_the_same_server(server):
    assert server

@pytest.mark.parametrize("number", [0, 1])
def test_starts_a_process(number):
    try:
        subprocess.run([sys.executable, "-c", ""], check=True)
    except Exception:
        pass

def test_starts_a_process_in_a_thread():
    done = []
    thread = threading.Thread(target=lambda: done.append(subprocess.run([sys.executable, "-c", ""])))
    thread.start()
    thread.join()
    assert done

def test_is_slow():
    "two seconds"

def test_stays_inside():
    assert True
"""
CONFTEST = """
import pytest
pytest_plugins = ("kit.outside_world",)

@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):  # the clock of a machine that is busy says nothing
    report = yield
    report.duration = 2.0 if item.function.__doc__ == "two seconds" else 0.0
    return report
"""
WORKERS = ("-p", "xdist", "-n", "2")


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "kit").mkdir()
    shutil.copy(TESTS / "kit" / "outside_world.py", tmp_path / "kit")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(SUITE)
    (tmp_path / "test_all.py").write_text("import os\n\ndef test_forks():\n    assert os.system('true') == 0\n")
    (tmp_path / "test_none.py").write_text("def test_adds():\n    assert 1 + 1 == 2\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\nfilterwarnings = error\n")

    def run(*arguments):
        environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take seconds to import
        command = [sys.executable, "-m", "pytest", "-q", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.stdout

    return run


def test_each_test_runs_once_and_what_was_slow_is_left_to_the_rest_the_next_time(suite):
    said = suite("--stay-inside", "-rs", *WORKERS)
    assert "3 passed, 6 skipped" in said
    assert "opens a socket" in said
    assert "starts a process" in said
    assert "6 passed" in suite("--left-out", *WORKERS)
    assert "2 passed, 6 skipped" in suite("--stay-inside", *WORKERS)
    assert "7 passed" in suite("--left-out", *WORKERS)


def test_what_became_of_a_test_is_noted_when_it_runs(suite, tmp_path):
    suite("--stay-inside")
    (tmp_path / "test_some.py").write_text(
        "def test_is_slow():\n    pass\n\ndef test_starts_a_process_in_a_thread():\n    pass\n"
    )
    assert "2 passed, 1 skipped, 1 deselected" in suite("--stay-inside")
    assert "2 passed" in suite("--left-out")
    assert "3 passed, 1 skipped" in suite("--stay-inside")


def test_without_an_option_everything_runs_and_the_slowest_are_told_on_request(suite, tmp_path):
    assert "9 passed" in suite()
    assert not (tmp_path / "slowest.md").exists()
    assert "9 passed" in suite("--times")
    assert "`test_some.py::test_starts_a_process[1]`" in (tmp_path / "slowest.md").read_text()

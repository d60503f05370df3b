"""How tests that leave their process are found: `make test-fast` leaves them out, and fails where one is not listed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SUITE = """
import socket, subprocess, sys
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

def test_stays_inside():
    assert True
"""


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "kit").mkdir()
    shutil.copy(TESTS / "kit" / "outside_world.py", tmp_path / "kit")
    (tmp_path / "conftest.py").write_text('pytest_plugins = ("kit.outside_world",)\n')
    (tmp_path / "test_some.py").write_text(SUITE)
    (tmp_path / "test_all.py").write_text("import os\n\ndef test_forks():\n    assert os.system('true') == 0\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    outside\n    slow\npythonpath = .\n")

    def run(*arguments):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plugins take seconds to import
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.stdout

    return run


def lines(tmp_path):
    return [line for line in (tmp_path / "not_fast.txt").read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")])
def test_those_that_leave_their_process_are_listed_and_left_out(suite, tmp_path, workers):
    assert "6 passed" in suite("--watch-outside", *workers)
    assert lines(tmp_path) == [
        "outside test_all.py",
        "outside test_some.py::test_starts_a_process",
        "outside test_some.py::test_uses_a_server",
        "outside test_some.py::test_uses_the_same_server",
    ]
    assert "`test_some.py::test_starts_a_process[1]`" in (tmp_path / "slowest.md").read_text()
    assert "1 passed, 5 deselected" in suite("--stay-inside", "-m", "not outside and not slow")


def test_one_that_is_not_listed_fails_even_where_the_application_catches_the_error(suite):
    said = suite("--stay-inside")
    assert "this test starts a process: add `outside` and its name to tests/not_fast.txt" in said
    assert "this test opens a socket: add `outside`" in said
    assert "1 passed" in said


def test_without_a_list_or_an_option_nothing_is_marked_or_refused(suite):
    assert "6 passed" in suite()

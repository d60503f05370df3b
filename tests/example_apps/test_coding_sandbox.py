"""The sandbox of the coding example: what its tests can say, and what code in it cannot do."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hostile_parts import sandbox as hostile

from examples.coding import boundary, solution_process
from examples.coding.app import TASKS
from examples.coding.sandbox import MAX_CODE_CHARS, raises, run_tests
from vinelm.errors import ConfigError

TESTS = "f(1) == 2"
needs_boundary = pytest.mark.skipif(boundary.why_unavailable() is not None, reason=str(boundary.why_unavailable()))


def verdict(body, timeout_s=20.0):
    return run_tests(f"def f(x):\n    {body}\n", TESTS, timeout_s)


def test_right_and_wrong_code():
    assert verdict("return x + 1") == (True, "1 passed")
    assert verdict("return x") == (False, "f(1) == 2 is not true; f(1) returned 1")


@needs_boundary
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
def test_no_hostile_snippet_gets_through(every):
    result = hostile.run(lambda done, total: None, every)
    assert [attack for attack in result["attacks"] if not attack["stopped"]] == []
    assert (result["got_through"], result["processes_left"]) == (0, 0)
    assert result["count"] >= 60 // every
    assert len({attack["name"] for attack in result["attacks"]}) == result["count"]


@pytest.mark.parametrize("name", ["proc-environ", "canary-file", "system", "connect-loopback", "abstract-socket", "walk"])
def test_the_snippets_get_through_where_there_is_no_boundary(name, monkeypatch):
    """Otherwise it would prove nothing that none of them gets through."""
    monkeypatch.setenv(boundary.UNSAFE, "1")
    run_tests.cache_clear()
    [snippet] = [snippet for snippet in hostile.SNIPPETS if snippet.name == name]
    with hostile.victim() as target:
        if name == "walk":  # the whole machine is too large
            snippet = hostile.Snippet(name, snippet.tries, snippet.code.replace('"/"', repr(str(target.secret.parent))))
        assert not hostile.attack(snippet, target)["stopped"]
    run_tests.cache_clear()


@needs_boundary
def test_it_sees_no_secret_of_ours(monkeypatch):
    monkeypatch.setenv("VINELM_CANARY", "2")
    seen = "__import__('os').environ"
    assert verdict(f"return 2 if set({seen}) <= {{'PWD', 'LD_LIBRARY_PATH'}} else dict({seen})") == (True, "1 passed")


@needs_boundary
def test_many_at_once_have_no_part_in_one_another():
    answers = {}

    def run(number):
        code = f"open('/tmp/{number}', 'w').close()\ndef f(x): return len(__import__('os').listdir('/tmp'))\n"
        answers[number] = run_tests(code, f"f(1) == 1  # {number}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == dict.fromkeys(range(6), (True, "1 passed"))


@needs_boundary
def test_it_ends_with_the_process_that_started_it(tmp_path):
    """Killed in the middle, the parent leaves nothing running."""
    program = (
        "from examples.coding.sandbox import run_tests\n"
        "run_tests('import time\\nprint(1)\\ntime.sleep(3600)', 'f(1)', 3600.0)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program])
    try:
        found = waited(lambda: descendants(parent.pid))
        assert found
    finally:
        parent.kill()
        parent.wait()
    assert waited(lambda: not any(Path(f"/proc/{pid}").exists() for pid in found))


def waited(is_so, turns=200):
    for _ in range(turns):
        got = is_so()
        if got:
            return got
        time.sleep(0.1)
    return None


def descendants(pid):
    """The ids of the processes below, once there are all of the sandbox: bubblewrap, its first process, and the code's."""
    below, todo = [], [pid]
    while todo:
        for task in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            mine = [int(child) for child in task.read_text().split()]
            below += mine
            todo += mine
    return below if len(below) >= 3 else None


def test_without_bubblewrap_it_refuses_in_one_line(monkeypatch):
    monkeypatch.delenv(boundary.UNSAFE, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    run_tests.cache_clear()
    with pytest.raises(ConfigError, match=r"^[^\n]*bubblewrap is not installed: install the package[^\n]*$") as caught:
        verdict("return x + 1")
    assert caught.value.code == "sandbox-missing"


@pytest.fixture
def open_folder():
    """A folder that everybody can reach: root starts bubblewrap as nobody, who cannot see pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_bubblewrap_that_fails_is_no_failed_test(monkeypatch, open_folder):
    monkeypatch.delenv(boundary.UNSAFE, raising=False)
    fake = open_folder / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{open_folder}:/bin:/usr/bin")
    run_tests.cache_clear()
    with pytest.raises(ConfigError, match=r"cannot make one here .*No permissions to create new namespace"):
        verdict("return x + 1")


def test_unsafe_is_said_loudly(monkeypatch, capsys):
    monkeypatch.setenv(boundary.UNSAFE, "0")
    monkeypatch.setenv("VINELM_UNSAFE_SANDBOX_WARNED", "0")
    assert not boundary.is_unsafe()
    boundary.warn_if_unsafe()
    assert capsys.readouterr().err == ""
    boundary.allow_unsafe()
    assert boundary.is_unsafe()
    assert "WITHOUT a sandbox" in capsys.readouterr().err
    boundary.warn_if_unsafe()
    assert capsys.readouterr().err == ""


@pytest.mark.long
def test_unsafe_by_the_variable_is_said_as_loudly_and_once(tmp_path):
    app = "examples.coding.app"
    again = f"import {app}, subprocess, sys; subprocess.run([sys.executable, '-c', 'import {app}'], check=True)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(boundary.UNSAFE)}
    for unsafe in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", again], env=environment | {boundary.UNSAFE: unsafe}, cwd=tmp_path, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        assert done.stderr.count("WARNING: VINELM_UNSAFE_SANDBOX=1: model-written code runs WITHOUT a sandbox") == int(unsafe)


@pytest.mark.long
def test_the_command_refuses_without_bubblewrap(tmp_path):
    command = [sys.executable, "-m", "examples.coding.app", "--limit", "1"]
    environment = {name: value for name, value in os.environ.items() if name != boundary.UNSAFE} | {"PATH": "/nowhere"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "bubblewrap" in done.stderr


@pytest.mark.parametrize("unsafe", ["0", "1"])
@pytest.mark.parametrize(
    ("code", "expression"),
    [
        (
            "def f(x): return [x, (1, 2.5, None, True), {'a': {3}}, b'x', 1j]",
            "f(1) == [1, (1, 2.5, None, True), {'a': {3}}, b'x', 1j]",
        ),
        ("def f(x): x.append(4); x.sort(reverse=True)", "(lambda v: (f(v), v)[1])([1, 9]) == [9, 4, 1]"),
        ("def f(x): x['b'] = 2", "(lambda v: (f(v), v)[1])({'a': 1}) == {'a': 1, 'b': 2}"),
        ("def f(*a, k=0): return sum(a) + k", "f(1, 2, k=3) == 6"),
        ("def f(x): yield from range(x)", "list(f(3)) == [0, 1, 2]"),
        ("f = 7", "f == 7"),
        ("def f(x): raise ValueError('no')", "raises(ValueError, f, 1)"),
        ("class Odd(KeyError): pass\ndef f(x): raise Odd('no')", "raises(KeyError, f, 1)"),
        ("def f(x): return float('inf')", "f(1) == float('inf')"),
        ("print('x' * 10**6)\ndef f(x): return input", "raises(Exception, f, 1)"),
    ],
)
def test_what_tests_can_say(code, expression, unsafe, monkeypatch):
    if unsafe == "0" and boundary.why_unavailable() is not None:
        pytest.skip(str(boundary.why_unavailable()))
    monkeypatch.setenv(boundary.UNSAFE, unsafe)
    run_tests.cache_clear()
    assert run_tests(code, expression) == (True, "1 passed")


def test_endless_code_is_ended():
    assert verdict("while True: pass", timeout_s=1.0) == (False, "the tests took longer than 1 s")


def test_code_that_leaves_has_not_passed():
    passed, report = run_tests("import os\nos._exit(0)\n", TESTS)
    assert (passed, report) == (False, "the code ended the process before its tests were through")


def test_code_without_end_is_not_run():
    assert run_tests("x = 1\n" * MAX_CODE_CHARS, TESTS) == (False, f"the code is longer than {MAX_CODE_CHARS} characters")


def test_a_report_names_no_folder():
    passed, report = run_tests("def f(x:\n", TESTS)
    assert not passed
    assert "SyntaxError" in report
    assert "/" not in report.replace(" / ", "")


@pytest.mark.parametrize(
    "value", [None, True, -1, 2.5, "x", b"\0", bytearray(b"y"), [1, [2]], (), {1, 2}, frozenset("a"), {(1,): [2]}, 3j]
)
def test_values_come_back_as_they_were(value):
    back = solution_process.value_of(json.loads(json.dumps(solution_process.plain(value))))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "packed", [{}, ["list"], ["nothing", []], ["bytes", ["zz"]], ["dict", [["tuple", [["list", []], 1]]]], ["set", 3], []]
)
def test_what_is_no_value_is_refused(packed):
    with pytest.raises(solution_process.NotPlainError):
        solution_process.value_of(packed)


def test_the_tasks_are_what_they_say():
    """Each right solution passes everything, `passing_visible` only the visible checks. Our own code: run in this process."""

    def passes(code, checks):
        names = {}
        exec(code, names)
        try:
            return all(eval(check, {**names, "raises": raises}) for check in checks.splitlines())
        except Exception:
            return False

    assert len({task.name for task in TASKS}) == len(TASKS)
    for task in TASKS:
        assert [passes(task.right, checks) for checks in (task.visible, task.hidden)] == [True, True], task.name
        assert not passes(task.failing_visible, task.visible), task.name
        assert [passes(task.passing_visible, checks) for checks in (task.visible, task.hidden)] == [True, False], task.name


@pytest.mark.parametrize("task", [TASKS[0], TASKS[-1]], ids=lambda task: task.name)
def test_the_sandbox_rules_as_the_tasks_say(task):
    both = (task.visible, task.hidden)
    assert [run_tests(task.right, tests)[0] for tests in both] == [True, True]
    assert run_tests(task.failing_visible, task.visible)[0] is False
    assert [run_tests(task.passing_visible, tests)[0] for tests in both] == [True, False]

"""The sandbox of the coding example: real children that try what they must not do."""

import pytest

from vinelm.workflows.examples.coding.sandbox import run_pytest
from vinelm.workflows.examples.coding.tasks import TASKS

TESTS = "from solution import f\n\ndef test_f():\n    assert f(1) == 2\n"


def verdict(body, timeout_s=20.0):
    return run_pytest(f"def f(x):\n    {body}\n", TESTS, timeout_s)


def test_right_and_wrong_code():
    assert verdict("return x + 1") == (True, "1 passed")
    passed, report = verdict("return x")
    assert not passed
    assert "assert 1 == 2" in report


@pytest.mark.parametrize(
    ("body", "forbidden"),
    [
        ("__import__('socket').create_connection(('127.0.0.1', 9))", "socket."),
        ("__import__('os').system('true')", "os.system"),
        ("open('/tmp/vinelm-escaped', 'w')", "own folder"),
        ("__import__('os').remove('solution.py')", "os.remove"),
        ("__import__('subprocess').run(['true'])", "subprocess.Popen"),
    ],
)
def test_what_is_forbidden_fails_the_test(body, forbidden):
    passed, report = verdict(f"{body}\n    return x + 1")
    assert not passed
    assert forbidden in report


def test_it_sees_no_secret_of_ours(monkeypatch):
    monkeypatch.setenv("VINELM_CANARY", "2")
    assert verdict("return int(__import__('os').environ.get('VINELM_CANARY', 0))") == (False, run_report(0))


def run_report(value):
    passed, report = verdict(f"return {value}")
    assert not passed
    return report.replace(f"{value} = f(1)", "0 = f(1)")


def test_endless_code_is_ended():
    assert verdict("while True: pass", timeout_s=1.0) == (False, "the tests took longer than 1 s")


def test_code_that_leaves_has_not_passed():
    passed, report = run_pytest("import os\nos._exit(0)\n", TESTS)
    assert (passed, report) == (False, "the code ended the process before its tests were through")


def test_a_report_names_no_folder():
    passed, report = run_pytest("def f(x:\n", TESTS)
    assert not passed
    assert "SyntaxError" in report
    assert "/" not in report.replace(" / ", "")


def test_the_tasks_are_what_they_say():
    """Each right solution passes everything, `passing_visible` only the visible checks. Our own code: run in this process."""

    def passes(code, checks):
        names = {}
        exec(code, names)
        try:
            return all(eval(check, names) for check in checks)
        except (Exception, pytest.fail.Exception):
            return False

    assert len({task.name for task in TASKS}) == len(TASKS)
    for task in TASKS:
        assert [passes(task.right, checks) for checks in (task.visible, task.hidden)] == [True, True], task.name
        assert not passes(task.failing_visible, task.visible), task.name
        assert [passes(task.passing_visible, checks) for checks in (task.visible, task.hidden)] == [True, False], task.name


@pytest.mark.parametrize("task", [TASKS[0], TASKS[-1]], ids=lambda task: task.name)
def test_the_sandbox_rules_as_the_tasks_say(task):
    visible, hidden = task.tests(task.visible), task.tests(task.hidden)
    assert [run_pytest(task.right, tests)[0] for tests in (visible, hidden)] == [True, True]
    assert run_pytest(task.failing_visible, visible)[0] is False
    assert [run_pytest(task.passing_visible, tests)[0] for tests in (visible, hidden)] == [True, False]

import json
import os
import subprocess
import sys

import click
import pytest

from vinelm.cli import main as edge
from vinelm.cli.console import print_json
from vinelm.errors import BudgetExhausted, ConfigError, EvidenceError
from vinelm.version import __version__

HEAVY = ("langgraph", "langchain_core", "sqlalchemy", "matplotlib", "scipy", "numpy", "pydantic", "rich", "sqlglot", "jinja2")


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **env}, timeout=60
    )


def failing(monkeypatch, error: BaseException) -> None:
    """Every subcommand raises ``error``."""

    @click.command()
    def command() -> None:
        raise error

    monkeypatch.setattr(edge.LazyGroup, "get_command", lambda *_: command)


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["plan", "--help"], ["demo", "--help"]])
def test_help_imports_nothing_heavy(args):
    code = (
        "import sys\nfrom vinelm.cli.main import main\n"
        f"assert main({args!r}) == 0\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"


def test_help_lists_every_command_and_the_exit_codes(capsys):
    assert edge.main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in edge.COMMANDS:
        assert f"  {name} " in text
    assert "3 budget reached" in " ".join(text.split())


@pytest.mark.parametrize("name", edge.COMMANDS)
def test_every_help_has_an_example(name, capsys):
    assert edge.main([name, "--help"]) == 0
    assert f"vinelm {name}" in capsys.readouterr().out.split("Options:")[-2].split("Usage:", 1)[1].split("\n", 1)[1]


def test_version(capsys):
    assert edge.main(["--version"]) == 0
    assert capsys.readouterr().out == f"vinelm {__version__}\n"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("models.toml: no price: add one"), 2, "error: models.toml: no price: add one"),
        (EvidenceError("3 observations"), 1, "error: 3 observations"),
        (BudgetExhausted("$5 spent: the same line resumes"), 3, "stopped: $5 spent: the same line resumes"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("a\nb"), 1, "error: unexpected ZeroDivisionError: a b (set VINELM_TRACEBACK=1 for the traceback)"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(monkeypatch, capsys, error, code, line):
    failing(monkeypatch, error)
    monkeypatch.delenv("VINELM_TRACEBACK", raising=False)
    assert edge.main(["plan"]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.strip() == line


def test_the_traceback_comes_on_request(monkeypatch, capsys):
    failing(monkeypatch, ZeroDivisionError("x"))
    monkeypatch.setenv("VINELM_TRACEBACK", "1")
    assert edge.main(["plan"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("tracebacks", ["", "1"])
def test_no_key_reaches_the_terminal(monkeypatch, capsys, tracebacks):
    canary = "sk-canary-0123456789"
    monkeypatch.setenv("ACME_API_KEY", canary)
    monkeypatch.setenv("VINELM_TRACEBACK", tracebacks)
    failing(monkeypatch, RuntimeError(f"401 for key {canary}"))
    assert edge.main(["plan"]) == 1
    said = capsys.readouterr().err
    assert canary not in said
    assert "$ACME_API_KEY" in said


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["frobnicate"], ("No such command 'frobnicate'", "vinelm --help")),
        (["plan", "x.vine", "--frobnicate"], ("No such option", "--frobnicate", "vinelm plan --help")),
        (["plan"], ("Missing argument", "vinelm plan --help")),
    ],
)
def test_a_usage_error_is_one_line(capsys, args, words):
    assert edge.main(args) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert all(word in said.err for word in words)


@pytest.mark.parametrize(
    ("args", "question"),
    [
        (["profle", "x"], "Did you mean 'profile'? See `vinelm --help`"),
        (["info", "x.db"], "Did you mean 'store info'? See `vinelm --help`"),
        (["launch", "x"], "Did you mean 'engine launch'? See `vinelm --help`"),
        (["store", "inof"], "Did you mean 'info'? See `vinelm store --help`"),
        (["plan", "x.vine", "--signls"], "Did you mean '--signals'? See `vinelm plan --help`"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(capsys, args, question):
    assert edge.main(args) == 2
    assert capsys.readouterr().err.strip().endswith(question)


# -- failures under --json ---------------------------------------------------------------------------------------------


def failed(capsys, *args: str) -> tuple[int, dict]:
    """The exit code and the whole of stdout."""
    code = edge.main(list(args))
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConfigError("no price: add one"), {"kind": "config", "message": "no price: add one", "exit_code": 2}),
        (
            ConfigError("no budget", code="budget-required"),
            {"kind": "budget-required", "message": "no budget", "hint": "use --budget-usd", "exit_code": 2},
        ),
        (EvidenceError("3 observations"), {"kind": "evidence", "message": "3 observations", "exit_code": 1}),
        (BudgetExhausted("$5 spent"), {"kind": "budget", "message": "$5 spent", "exit_code": 3}),
        (KeyboardInterrupt(), {"kind": "interrupted", "message": "interrupted", "exit_code": 130}),
        (
            ZeroDivisionError("a\nb"),
            {
                "kind": "unexpected", "message": "unexpected ZeroDivisionError: a b",
                "hint": "set VINELM_TRACEBACK=1 for the traceback", "exit_code": 1,
            },
        ),
    ],
)  # fmt: skip
def test_a_failure_under_json_is_one_object(monkeypatch, capsys, error, expected):
    @click.command()
    @click.option("--json", is_flag=True)
    def command(json: bool) -> None:
        raise error

    monkeypatch.setattr(edge.LazyGroup, "get_command", lambda *_: command)
    assert failed(capsys, "plan", "--json") == (expected["exit_code"], {"error": expected})


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["profle", "--json"], "No such command 'profle'. Did you mean 'profile'?"),
        (["plan", "--json"], "Missing argument 'TRIE'"),
        (["store", "--json"], "No such option '--json'"),
        (["plan", "", "--json"], "an argument is empty: give a value, or leave it out"),
    ],
)
def test_a_wrong_command_line_under_json_is_one_object(capsys, args, message):
    code, said = failed(capsys, *args)
    assert code == 2
    assert said["error"].keys() == {"kind", "message", "hint", "exit_code"}
    assert (said["error"]["kind"], said["error"]["message"]) == ("usage", message)


def test_a_result_and_the_failure_that_follows_it_are_one_object(monkeypatch, capsys):
    @click.command()
    @click.option("--json", is_flag=True)
    def command(json: bool) -> None:
        print_json({"rows": 3})
        raise BudgetExhausted("$5 spent")

    monkeypatch.setattr(edge.LazyGroup, "get_command", lambda *_: command)
    code, said = failed(capsys, "plan", "--json")
    assert (code, said["rows"], said["error"]["kind"]) == (3, 3, "budget")


def test_json_behind_two_dashes_is_no_option(monkeypatch, capsys):
    failing(monkeypatch, ConfigError("x"))
    assert edge.main(["plan", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_a_secret_is_in_no_object(monkeypatch, capsys):
    monkeypatch.setenv("ACME_API_KEY", "sk-canary-0123456789")
    failing(monkeypatch, RuntimeError("401 for key sk-canary-0123456789"))
    assert "sk-canary" not in json.dumps(failed(capsys, "plan", "--json"))


def test_a_reader_that_leaves_early_is_no_error():
    code = "import sys\nfrom vinelm.cli.main import main\nsys.exit(main(['--help']))"
    shell = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "$0" | true', code], capture_output=True, text=True, check=False, timeout=60
    )
    assert "Traceback" not in shell.stderr


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3"), ({"OMP_NUM_THREADS": "2"}, None)],
)
def test_numeric_libraries_run_on_one_thread_unless_told_otherwise(given, expected):
    """Set before numpy is imported, or it has no effect."""
    code = "import os, sys, vinelm.cli.main; print('numpy' in sys.modules, os.environ.get('OPENBLAS_NUM_THREADS'))"
    clean = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", code], env=clean | given, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", str(expected)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion_script(capsys, monkeypatch, shell):
    monkeypatch.setenv("_VINELM_COMPLETE", f"{shell}_source")
    with pytest.raises(SystemExit, match="0"):  # click ends the process behind a completion
        edge.main([])
    said = capsys.readouterr().out
    assert f"_VINELM_COMPLETE={shell}_complete" in said
    assert "vinelm" in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("vinelm pro", ["profile"]),
        ("vinelm store in", ["info"]),
        ("vinelm profile --budget-", ["--budget-usd", "--budget-calls"]),
    ],
)
def test_completion_names_commands_and_options(capsys, monkeypatch, words, expected):
    monkeypatch.setenv("_VINELM_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit, match="0"):  # click ends the process behind a completion
        edge.main([])
    assert [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()] == expected


@pytest.mark.parametrize("group", edge.GROUPS)
def test_every_help_of_a_group_has_an_example_and_fits_80_columns(capsys, monkeypatch, group):
    monkeypatch.setenv("COLUMNS", "80")
    for name in edge.cli.get_command(click.Context(edge.cli), group).commands:
        assert edge.main([group, name, "--help"]) == 0
        said = capsys.readouterr().out
        assert f"Example: vinelm {group} {name}" in said
        assert max(map(len, said.splitlines())) <= 80

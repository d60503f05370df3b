"""Names of earlier commands work as the options and commands that they are now, and are not shown."""

import pytest
from kit.tables import random_table

from vinelm.cli.main import COMMANDS, OLD, main
from vinelm.vinefile import save_trie

NAMES = {
    "explain t.vine --minimize cost --prefix m1": "plan t.vine --explain --minimize cost --prefix m1",
    "explain t.vine --minimize cost --json": "plan t.vine --explain --minimize cost --json",
    "trie show t.vine --json": "plan t.vine --show --json",
    "trie show t.vine": "plan t.vine --show",
    "trie t.vine": "plan t.vine --show",
    "trie diff t.vine u.vine": "plan u.vine --diff t.vine",
    "trie diff t.vine u.vine --json": "plan u.vine --diff t.vine --json",
    "export t.vine -o t.csv": "store export t.vine -o t.csv",
    "reprice t.vine --models none.toml -o u.vine": "store reprice t.vine --models none.toml -o u.vine",
    "engine my/model --print --tp 2": "engine launch my/model --print --tp 2",
    "engine --print my/model --tp 2": "engine launch --print my/model --tp 2",
    "calibrate gpu-1 --models none.toml": "engine calibrate gpu-1 --models none.toml",
}


@pytest.fixture(autouse=True)
def tries(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name, seed in (("t.vine", 3), ("u.vine", 4)):
        save_trie(name, random_table(seed, n_requests=60, n_models=3, depth=3).annotate())


@pytest.mark.parametrize("old", NAMES)
def test_an_old_name_does_what_the_new_one_does(old, capsys):
    code = main(old.split())
    first = capsys.readouterr()
    assert first.out or first.err
    assert (main(NAMES[old].split()), capsys.readouterr()) == (code, first)


def test_old_names_are_not_shown(capsys):
    assert main(["--help"]) == 0
    shown = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ") and line.strip()}
    assert not shown & set(OLD)
    assert shown >= set(COMMANDS)
    assert all(any(line.startswith(name) for line in NAMES) for name in OLD)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("plan t.vine --show --explain", "--show and --explain exclude each other"),
        ("plan t.vine --minimize cost --arm x", "say what --explain explains"),
        ("plan t.vine --show --minimize cost", "--show plans nothing"),
        ("plan t.vine --diff u.vine --signals", "--diff plans nothing"),
        ("plan t.vine --explain", "give exactly one target"),
    ],
)
def test_what_has_no_effect_is_refused(line, says, capsys):
    assert main(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err

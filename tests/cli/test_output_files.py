"""Where commands write to: pipes, devices, folders and links are one line, at once, and nothing is replaced."""

import os
import signal
import stat

import pytest
from kit.tables import random_table

from vinelm.cli.main import main
from vinelm.traces import ObservationStore
from vinelm.traces.testing import a_row, an_identity
from vinelm.vinefile import save_trie

MODELS = """
[[model]]
name = "small"
provider = "openai"
model = "tiny"
engine = "gpu-1"
api_base = "http://127.0.0.1:9/v1"
api_key_env = "ACME_API_KEY"
price = { input = 1.0, output = 2.0, source = "a test", as_of = 2026-01-01 }
"""
COMMANDS = {
    "estimate": ("t.vine", ["estimate", "s.db", "-o"]),
    "store export": ("t.csv", ["export", "s.db", "-o"]),
    "store export .gz": ("t.csv.gz", ["export", "s.db", "-o"]),
    "store merge": ("t.db", ["store", "merge", "s.db", "-o"]),
    "store import": ("t.db", ["store", "import", "rows.csv", "-o"]),
    "calibrate": ("t.json", ["calibrate", "gpu-1", "--models", "models.toml", "-o"]),
    "profile": ("t.db", ["profile", "nl2sql", "--limit", "3", "--budget-calls", "3", "--quiet", "--store"]),
    "report": ("t", ["report", "s.db", "good.vine", "-o"]),
    "demo": ("t", ["demo", "sql", "--limit", "40", "--quiet", "--output-dir"]),
}
FOLDERS = {"report", "demo"}
KINDS = ("pipe", "link to a pipe", "device", "folder")


@pytest.fixture(autouse=True)
def no_waiting():
    """A command that waits for the other end of a pipe is ended; nothing here takes a second."""

    def ends(*_):
        raise AssertionError("the command hangs")

    before = signal.signal(signal.SIGALRM, ends)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACME_API_KEY", "x")
    (tmp_path / "models.toml").write_text(MODELS)
    with ObservationStore.create("s.db", an_identity()) as store:
        store.add(a_row())
    assert main(["export", "s.db", "-o", "rows.csv"]) == 0
    save_trie(tmp_path / "good.vine", random_table(0, n_requests=5, n_models=2, depth=2).annotate())
    return tmp_path


def make(kind, path):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to a pipe":
        os.mkfifo(path.with_name("pipe"))
        path.symlink_to("pipe")
    elif kind == "device":
        path.symlink_to(os.devnull)  # never replaced: it would be a file for everybody
    else:
        path.mkdir()


def what_lies_there(folder):
    return {
        str(path.relative_to(folder)): (stat.S_IFMT(path.lstat().st_mode), path.lstat().st_ino) for path in folder.rglob("*")
    }


def refused(folder, args, capsys):
    before, device = what_lies_there(folder), os.stat(os.devnull)
    capsys.readouterr()
    assert main(args) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: ")
    assert "unexpected" not in said.err
    assert said.err.count("\n") == 1
    assert what_lies_there(folder) == before
    assert (os.stat(os.devnull).st_mode, os.stat(os.devnull).st_rdev) == (device.st_mode, device.st_rdev)
    return said.err


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_file_is_refused_and_stays(folder, capsys, command, kind):
    name, args = COMMANDS[command]
    if command in FOLDERS and kind == "folder":
        pytest.skip("a folder is what it wants")
    make(kind, folder / name)
    refused(folder, [*args, name], capsys)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("command", "inside"), [("report", "report.html"), ("demo", "report.html"), ("demo", "demo.db")])
@pytest.mark.long
def test_nor_is_anything_replaced_inside_a_folder(folder, capsys, command, inside, kind):
    name, args = COMMANDS[command]
    (folder / name).mkdir()
    make(kind, folder / name / inside)
    refused(folder, [*args, name], capsys)


@pytest.mark.parametrize("kind", KINDS)
def test_nor_beside_a_table(folder, capsys, kind):
    make(kind, folder / "t.csv.store.json")
    refused(folder, ["export", "s.db", "-o", "t.csv"], capsys)


def test_a_record_of_served_requests_is_a_file(folder, capsys):
    """`vinelm verify --log` writes to it, and would wait for a reader."""
    from vinelm.errors import StoreError
    from vinelm.running.serving_record import serving_record
    from vinelm.traces.testing import an_identity

    for kind in KINDS:
        path = folder / kind.replace(" ", "")
        make(kind, path)
        with pytest.raises(StoreError, match=r"cannot read the store"), serving_record(path, an_identity(), 1.0):
            pass
        if kind == "pipe":
            path.unlink()


@pytest.mark.parametrize(
    "args",
    [
        *([*args, ""] for _, args in COMMANDS.values()),
        ["estimate", ""],
        ["profile", "nl2sql", "--store="],
        ["profile", ""],
        ["check", ""],
        ["reprice", ""],
        ["plan", "", "--maximize", "accuracy"],
        ["explain", "", "--maximize", "accuracy"],
        ["report", "", ""],
        ["store", "info", ""],
        ["store", "merge", "", "-o", "t.db"],
        ["trie", "show", ""],
        ["verify", "", "good.vine"],
        ["calibrate", "", "--models", "models.toml"],
        ["check", "nl2sql", "--dataset", ""],
    ],
    ids=" ".join,
)
def test_an_empty_argument_is_one_line(folder, capsys, args):
    assert "is empty: give a value" in refused(folder, args, capsys)

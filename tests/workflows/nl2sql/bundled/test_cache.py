"""How the bundled dataset is built once and then only read."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from vinelm.errors import DatasetError
from vinelm.workflows.nl2sql.bundled import build, bundled_dataset
from vinelm.workflows.nl2sql.bundled.cache import DATA, digest_of

CONTENT = "3d226c20960af20ad1cca56b57b4cddfa380eb059c92165bd02c46d2c5b7323c"
"""SHA-256 over all files of the dataset: the same on every machine, Python and SQLite. Changes only with the data."""


def digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*.*")):
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


@pytest.fixture
def small(tmp_path_factory):
    """Two of the databases, for speed."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("airline.sql", "league.sql", "questions.jsonl"):
        shutil.copy(DATA / name, folder)
    return folder


def test_the_content_is_the_same_everywhere(tmp_path):
    assert digest(bundled_dataset(tmp_path).databases.parent) == CONTENT


def test_two_builds_are_alike(tmp_path, small):
    first, second = (bundled_dataset(tmp_path / name, data=small) for name in ("first", "second"))
    assert first.questions == second.questions
    assert first.databases != second.databases
    assert digest(first.databases) == digest(second.databases)


def test_other_data_stand_in_another_folder(tmp_path, small):
    first = bundled_dataset(tmp_path, data=small)
    (small / "questions.jsonl").write_text("{}\n")
    second = bundled_dataset(tmp_path, data=small)
    assert first.databases.parent != second.databases.parent
    assert second.questions == ({},)


def test_later_calls_only_read(tmp_path, small, monkeypatch):
    first = bundled_dataset(tmp_path, data=small)
    monkeypatch.setattr(build, "write_all", lambda *_: pytest.fail("built again"))
    assert bundled_dataset(tmp_path, data=small) == first
    assert first.databases.parent == tmp_path / f"nl2sql-{digest_of(small)}"


def test_later_calls_need_no_sql_parser(tmp_path, small):
    folder = bundled_dataset(tmp_path, data=small).databases
    assert folder.is_dir()
    code = (
        "import sys; from pathlib import Path; from vinelm.workflows.nl2sql.bundled import bundled_dataset; "
        "bundled_dataset(Path(sys.argv[1]), data=Path(sys.argv[2])); assert 'sqlglot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path), str(small)], check=True)


@pytest.mark.parametrize("harm", ["missing", "cut", "no manifest"])
def test_a_damaged_dataset_is_built_again(tmp_path, small, harm):
    first = bundled_dataset(tmp_path, data=small)
    before = digest(first.databases.parent)
    victim = first.databases.parent / "manifest.json" if harm == "no manifest" else next(first.databases.glob("*.sqlite"))
    content = victim.read_bytes()
    victim.unlink()
    if harm == "cut":
        victim.write_bytes(content[: len(content) // 2])
    again = bundled_dataset(tmp_path, data=small)
    assert digest(again.databases.parent) == before
    assert [path.name for path in tmp_path.iterdir()] == [again.databases.parent.name]


def test_a_build_that_fails_leaves_nothing(tmp_path, small, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(build, "_seal", lambda path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bundled_dataset(tmp_path, data=small)
    assert list(tmp_path.iterdir()) == []
    assert bundled_dataset(tmp_path, data=small).questions


def test_what_a_killed_build_left_is_swept_later(tmp_path, small):
    old, young = tmp_path / ".building-old", tmp_path / ".building-young"
    for leftover in (old, young):
        (leftover / "databases").mkdir(parents=True)
    os.utime(old, (1e9, 1e9))
    bundled_dataset(tmp_path, data=small)
    assert not old.exists()
    assert young.exists()


def test_processes_may_build_at_once(tmp_path, small):
    code = (
        "import sys; from pathlib import Path; from vinelm.workflows.nl2sql.bundled import bundled_dataset; "
        "print('ready', flush=True); sys.stdin.readline(); "
        "data = bundled_dataset(Path(sys.argv[1]), data=Path(sys.argv[2])); print(len(data.questions), data.databases.is_dir())"
    )
    command = [sys.executable, "-c", code, str(tmp_path), str(small)]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    said = {worker.communicate(timeout=60)[0] for worker in workers}
    assert [worker.returncode for worker in workers] == [0, 0]
    assert len(said) == 1
    assert [path.name for path in tmp_path.iterdir()] == [f"nl2sql-{digest_of(small)}"]


def test_the_users_cache_folder_is_the_default(tmp_path, small, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert bundled_dataset(data=small).databases.is_relative_to(tmp_path / "xdg" / "vinelm")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert bundled_dataset(data=small).databases.is_relative_to(tmp_path / "home" / ".cache" / "vinelm")


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match=r"cannot write the bundled databases: .*: set XDG_CACHE_HOME") as caught:
        bundled_dataset(tmp_path / "file")
    assert "\n" not in str(caught.value)

"""The files of a project are written as a whole, also if the process is killed at any point, and keep their permissions."""

import json
import os
import signal
import stat
import subprocess
import sys

import pytest

from vinelm.errors import ConfigError
from vinelm.scaffold.applied import JOURNAL, finish, write_all

BEFORE = {"app.py": "old app", "other.py": "old other"}
NEW = {"workflow.py": "w" * 9, "models.toml": "m", "app.py": "new app", "other.py": "new other"}
KILLED = """
import os, signal, sys
from pathlib import Path
import vinelm.io.atomic as atomic
from vinelm.scaffold.applied import write_all
left, replace, unlink = [int(sys.argv[2])], os.replace, Path.unlink
def count():
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
def replacing(*args):
    count(); replace(*args); count()
def unlinking(self, missing_ok=False):
    if self.name == ".vinelm-init.json":
        count()
    unlink(self, missing_ok)
os.replace, Path.unlink = replacing, unlinking
folder = Path(sys.argv[1])
write_all(folder, {folder / name: text for name, text in NEW.items()})
"""


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir() if path.suffix != ".json" and ".draft" not in path.name}


@pytest.mark.parametrize("steps", range(12))
def test_a_kill_at_any_point_leaves_all_or_nothing_for_the_next_run(tmp_path, steps):
    for name, text in BEFORE.items():
        (tmp_path / name).write_text(text)
    program = KILLED.replace("NEW.items()", f"{NEW!r}.items()")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path), str(steps)], check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    was_begun = (tmp_path / JOURNAL).exists()
    assert bool(finish(tmp_path)) == was_begun
    assert content(tmp_path) in (NEW, BEFORE)
    assert (content(tmp_path) == NEW) or not was_begun
    assert not (tmp_path / JOURNAL).exists()
    assert finish(tmp_path) == []


def test_permissions_stay_and_a_read_only_file_is_refused_before_anything_is_written(tmp_path):
    app = tmp_path / "app.py"
    app.write_text("old")
    app.chmod(0o755)
    write_all(tmp_path, {app: "new"})
    assert stat.S_IMODE(app.stat().st_mode) == 0o755
    app.chmod(0o444)
    with pytest.raises(ConfigError, match="is read-only"):
        write_all(tmp_path, {tmp_path / "workflow.py": "w", app: "newer"})
    assert content(tmp_path) == {"app.py": "new"}


def test_a_file_that_cannot_be_written_undoes_the_others(tmp_path):
    (tmp_path / "app.py").write_text("old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_all(tmp_path, {tmp_path / "app.py": "new", tmp_path / "workflow.py": "w", tmp_path / "folder": "x"})
    assert (tmp_path / "app.py").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["app.py", "folder"]


def test_what_was_changed_meanwhile_is_not_overwritten(tmp_path):
    app = tmp_path / "app.py"
    app.write_text("old")
    program = KILLED.replace("NEW.items()", "{'app.py': 'new'}.items()")
    subprocess.run([sys.executable, "-c", program, str(tmp_path), "2"], check=False)
    app.write_text("by hand")
    with pytest.raises(ConfigError, match="was changed after a run that was killed"):
        finish(tmp_path)
    assert app.read_text() == "by hand"


@pytest.mark.parametrize(
    "name", ["../home/start.py", "home/.bashrc", "app/.git/hooks/post-checkout", "app/.hidden/a.py", "app/link.py"]
)
def test_a_journal_that_came_with_a_folder_writes_no_file_elsewhere(tmp_path, monkeypatch, name):
    """A repository that is cloned may hold one: it names any file and any text."""
    app = tmp_path / "work" / "app"
    app.mkdir(parents=True)
    for folder in ("home", "work/home", "work/app/.git/hooks", "work/app/.hidden"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (app / "link.py").symlink_to(tmp_path / "home" / "start.py")
    monkeypatch.chdir(app)
    target = tmp_path / "work" / name
    (app / JOURNAL).write_text(json.dumps({"files": [{"path": str(target), "text": "mine", "before": None}]}))
    with pytest.raises(ConfigError, match="no file of this project"):
        finish(app)
    assert not target.exists()

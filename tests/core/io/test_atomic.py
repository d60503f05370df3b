"""Files appear whole or not at all, and nothing but a regular file is replaced."""

import os
import socket

import pytest

from vinelm.io.atomic import atomic_path, draft_path, write_atomic


def test_the_content_replaces_the_old_file_and_leaves_no_draft(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    write_atomic(target, b"new")
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_an_error_in_the_block_keeps_the_old_file(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_path(target) as draft:
        draft.write_text(f"half {1 / 0}")
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_a_pipe_and_a_device_are_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name in ("folder", "pipe", "null"):
        with pytest.raises(OSError, match=r"directory|regular"):
            write_atomic(tmp_path / name, b"new")
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "pipe", "null"}


def test_a_missing_folder_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "nowhere" / "a.txt", b"new")


def test_two_drafts_of_one_process_differ_and_those_of_dead_processes_go(tmp_path):
    target = tmp_path / "a[1].txt"
    host = socket.gethostname()
    (tmp_path / f".a[1].txt.{host}.999999999-00ff.draft.txt").write_text("half")
    (tmp_path / f".a[1].txt.{host}.{os.getpid()}-00ff.draft.txt").write_text("another thread's")
    assert draft_path(target) != draft_path(target)
    assert [path.name for path in tmp_path.iterdir()] == [f".a[1].txt.{host}.{os.getpid()}-00ff.draft.txt"]


def test_a_link_to_a_file_stays_a_link(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_atomic(tmp_path / "link.txt", b"new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"real.txt", "link.txt"}

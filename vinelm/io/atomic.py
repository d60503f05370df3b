"""Atomic file writes: a file appears under its name complete or not at all.

The content goes to a draft in the same folder, which is synced to disk and then renamed over the target. Errors of the
file system are raised unchanged (:class:`OSError`), so the caller has to translate them.
"""

from __future__ import annotations

import errno
import glob
import os
import secrets
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vinelm.io.operating_system import is_running


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield the path of a draft file to write to. The draft replaces ``path`` when the block ends, and is removed if the block
    raises an error.

    The file and its folder are synced to disk before the block is left. A file that is replaced keeps its permissions.

    Raises:
        OSError: the draft cannot be written, or ``path`` exists and is not a regular file (a folder, a device, a pipe).
    """
    require_regular(path)
    path = Path(os.path.realpath(path))  # a link stays a link: the file it points to is replaced
    draft = draft_path(path)
    try:
        yield draft
        with suppress(FileNotFoundError):  # a new file gets the usual permissions
            os.chmod(draft, stat.S_IMODE(path.stat().st_mode))
        sync_to_disk(draft)
        os.replace(draft, path)
        sync_to_disk(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` atomically. Raises the same errors as :func:`atomic_path`."""
    with atomic_path(path) as draft:
        draft.write_bytes(content)


def require_regular(path: Path) -> None:
    """Raise :class:`OSError` if ``path`` exists and is not a regular file, which a rename would destroy."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "Not a regular file", str(path))


def draft_path(path: Path) -> Path:
    """Return an unused draft name next to ``path``, and remove drafts left by dead processes of this machine."""
    host = socket.gethostname()
    for left in path.parent.glob(f".{glob.escape(path.name)}.{glob.escape(host)}.*.draft*"):
        pid = left.name.split(".draft")[0].rpartition(".")[2].partition("-")[0]
        if pid.isdigit() and int(pid) != os.getpid() and not is_running(int(pid)):
            left.unlink(missing_ok=True)
    return path.with_name(f".{path.name}.{host}.{os.getpid()}-{secrets.token_hex(4)}.draft{path.suffix}")


def sync_to_disk(path: Path) -> None:
    """Flush a file or a folder to disk. Does nothing for a folder if the system cannot open folders."""
    with suppress(PermissionError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

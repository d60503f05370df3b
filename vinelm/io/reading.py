"""Reads files that users name. Refuses pipes, devices and folders, which would block or never end."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

from vinelm.errors import DatasetError

MIB = 1 << 20
MOST_TEXT = 256 * MIB
"""The largest text file that is read whole; no configuration or list of prompts or requests in one file is longer."""


def open_regular(path: str | Path) -> BufferedReader:
    """Open a regular file for reading, also through a symbolic link.

    Raises:
        OSError: the file does not exist, it may not be read, or it is a pipe, a device, a socket or a folder.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_text(path: str | Path, *, most_bytes: int = MOST_TEXT) -> str:
    """Return the text of a regular file in UTF-8.

    Raises:
        OSError: the file cannot be opened (see :func:`open_regular`), or has more than ``most_bytes`` bytes.
        UnicodeDecodeError: it is not UTF-8.
    """
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes // MIB} MiB", str(path))
    return content.decode("utf-8").replace("\r\n", "\n")


def json_objects(lines: Iterable[str], path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, JSON object) of every line that is not blank. A :class:`DatasetError` names ``path`` and the
    invalid line.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DatasetError(f"{path}:{number}: not valid JSON: {error.msg} at column {error.colno}") from error
        if not isinstance(row, dict):
            raise DatasetError(f"{path}:{number}: expected a JSON object, found {type(row).__name__}")
        yield number, row

"""The application's own code, told from Python's, an installed package's and VineLM's."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any


def is_user_code(module: str, filename: str) -> bool:
    """Return whether code of that module and file is the application's; the workflows that VineLM brings count as one."""
    if module.partition(".")[0] == "vinelm" and not module.startswith("vinelm.workflows."):
        return False
    return _is_users_file(filename)


def user_place(error: BaseException) -> str | None:
    """Return ``file:line`` of the last line of the application that the exception went through; None if there is none."""
    found = user_line(error)
    return None if found is None else f"{_shown(found[0])}:{found[1]}"


def user_line(error: BaseException) -> tuple[str, int] | None:
    """Return file and number of that line."""
    found: tuple[str, int] | None = None
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if is_user_code(str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename):
            found = frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return found


def closure_values(function: FunctionType) -> Iterator[Any]:
    """Yield what the function's closure holds; a variable that has no value yet is left out."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # empty
            yield cell.cell_contents


def _shown(filename: str) -> str:
    path, here = Path(filename), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


@cache
def _is_users_file(filename: str) -> bool:
    if not filename or filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    return not any(path.is_relative_to(folder) for folder in _installed())


@cache
def _installed() -> frozenset[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return frozenset(Path(sysconfig.get_path(name)).resolve() for name in names)

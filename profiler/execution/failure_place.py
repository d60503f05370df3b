"""Where in the application's own code an exception was raised."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from pathlib import PurePath
from types import TracebackType

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def place_of(error: BaseException) -> str | None:
    """Return ``FILE:LINE`` of the innermost frame of the application, without the folder; None if there is none.

    Frames of installed packages, of the standard library and of VineLM are not the application's.
    """
    found = None
    for traceback in _steps(error.__traceback__):
        code = traceback.tb_frame.f_code
        module = str(traceback.tb_frame.f_globals.get("__name__", ""))
        is_ours = module == "vinelm" or module.startswith("vinelm.")
        if not is_ours and not code.co_filename.startswith((*_INSTALLED, "<")):
            found = f"{PurePath(code.co_filename).name}:{traceback.tb_lineno}"
    return found


def with_place(detail: str, error: BaseException) -> str:
    """Return the detail with the place of the exception, as far as it is known."""
    place = place_of(error)
    return detail if place is None else f"{detail} at {place}"


def _steps(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next

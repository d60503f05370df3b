"""The error for missing optional libraries, each of which belongs to an extra of ``vinelm``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from vinelm.errors import MissingExtra
from vinelm.whole_imports import whole_import


@contextmanager
def required_extra(extra: str, what: str) -> Iterator[None]:
    """Convert import errors inside the block to :class:`MissingExtra`, and delay Ctrl-C until the block ends.

    Args:
        extra: The name in ``vinelm[...]`` that installs the libraries.
        what: What needs the libraries: the subject of the message.

    Raises:
        MissingExtra: A library is not installed, or cannot be imported. The message names it and the command that installs it.
    """
    try:
        with whole_import():
            yield
    except MissingExtra:
        raise
    except ImportError as error:
        name = (error.name or str(error)).partition(".")[0]
        is_missing = isinstance(error, ModuleNotFoundError)
        wrong = f"{what} needs {name}" if is_missing else f"{what} needs {name}, which cannot be imported ({error})"
        raise MissingExtra(f"{wrong}: pip install 'vinelm[{extra}]'") from error


def require_extra(extra: str, what: str, *libraries: str) -> None:
    """Raise an error if a library is not installed, without importing it.

    Used before an expensive step, or for a whole package.

    Args:
        extra: The name in ``vinelm[...]`` that installs the libraries.
        what: What needs the libraries: the subject of the message.
        libraries: Names of top-level modules.

    Raises:
        MissingExtra: A library is not installed.
    """
    with required_extra(extra, what):
        for name in libraries:
            if find_spec(name) is None:
                raise ModuleNotFoundError(name=name)

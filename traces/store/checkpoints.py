"""Stores checkpoint contents outside of the store: in a folder, or at any address that fsspec supports.

Each content is a file, named by its digest and never changed, so that several stores may share a folder. The file is written
before the row that refers to it; a killed run may leave a harmless file without a row.
"""

from __future__ import annotations

import hashlib
import threading
import zlib
from collections import OrderedDict
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vinelm.errors import ConfigError, MissingExtra, StoreError
from vinelm.extras import required_extra
from vinelm.foreign_code import explained
from vinelm.io.atomic import write_atomic

ELSEWHERE = b""
"""The content in the store if the real content is stored elsewhere; a compressed content is never empty."""
_HELD_BYTES = 2**25  # of the contents used last, which are soon read again
_MARK = "vinelm-checkpoints"


class CheckpointPlace:
    """A folder or address for checkpoint contents. Thread-safe; files are written immediately, and durably if local.

    Args:
        url: an fsspec address such as ``s3://bucket/folder``, or the path of a folder. It is recorded in the store, so it must
            not contain a password: credentials come from the environment or from fsspec's own configuration.

    Attributes:
        url: the address; for a folder, its absolute path.

    Raises:
        ConfigError: the address cannot be used, or the library for it is missing.
    """

    def __init__(self, url: str) -> None:
        self.url = _address(url)
        with required_extra("fsspec", f"checkpoints under {self.url}"):
            from fsspec.core import url_to_fs
        try:
            self._files, self._root = url_to_fs(self.url)
        except ImportError as error:  # fsspec names the library
            raise MissingExtra(f"checkpoints under {self.url}: {_first_line(error)}") from error
        except ValueError as error:
            raise ConfigError(f"checkpoints under {self.url}: {_first_line(error)}: give a folder or another URL") from error
        self._is_local = type(self._files).__name__ == "LocalFileSystem"
        self._lock = threading.Lock()
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._held_bytes = 0

    def require_writable(self) -> None:
        """Write a small file to the folder or address, as a check before money is spent.

        Raises:
            StoreError: the file cannot be written.
        """
        self._write(_MARK, b"Contents of the checkpoints of VineLM stores, each named by the sha256 of what it holds.\n")

    def write(self, content: bytes) -> str:
        """Store the content of a checkpoint, and return its digest.

        Raises:
            StoreError: the content cannot be written.
        """
        digest = hashlib.sha256(content).hexdigest()
        # Written without the lock: two threads that store one content write the same bytes under the same name.
        if not self._is_held(digest):
            packed = zlib.compress(content)
            self._write(_name(digest), packed)
            self._hold(digest, packed)
        return digest

    def read(self, digest: str) -> bytes:
        """Return the compressed content with this digest, without verifying the digest.

        Raises:
            StoreError: the content does not exist, or cannot be read.
        """
        with self._lock:
            packed = self._held.get(digest)
            if packed is not None:
                self._held.move_to_end(digest)
        if packed is None:
            with self._translated("read"):
                packed = bytes(self._files.cat_file(self._path(_name(digest))))
            self._hold(digest, packed)
        return packed

    def _write(self, name: str, packed: bytes) -> None:
        path = self._path(name)
        with self._translated("write"):
            if not self._is_local:
                self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._files.pipe_file(path, packed)
                return
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(Path(path), packed)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _is_held(self, digest: str) -> bool:
        with self._lock:
            return digest in self._held

    def _hold(self, digest: str, packed: bytes) -> None:
        with self._lock:
            if digest not in self._held:
                self._held[digest] = packed
                self._held_bytes += len(packed)
            while self._held_bytes > _HELD_BYTES:
                _, dropped = self._held.popitem(last=False)
                self._held_bytes -= len(dropped)

    def _translated(self, verb: str) -> AbstractContextManager[None]:
        """Inside the block, convert file system errors, whose classes vary by library, to a one-line :class:`StoreError`."""

        def said(error: Exception) -> StoreError:
            if isinstance(error, FileNotFoundError):
                return StoreError(f"{self.url}: a checkpoint of the store is not there: copy it back", code="store-damaged")
            why = getattr(error, "strerror", None) or _first_line(error)
            return StoreError(
                f"{self.url}: cannot {verb} checkpoints: {why}: repair it and run the same line again", code="store-disk"
            )

        return explained(said)


def unpacked(digest: str, packed: bytes, place: CheckpointPlace | None) -> bytes | None:
    """Return the content of a checkpoint, given its row in the table ``blobs``; None if it is damaged.

    Args:
        digest: the content's digest.
        packed: the row's bytes: the compressed content, or a mark that the content is outside of the store.
        place: the folder or address of contents outside of the store; None if there is none.

    Raises:
        StoreError: the content cannot be read from its place.
    """
    if packed == ELSEWHERE:
        if place is None:
            return None
        packed = place.read(digest)
    try:
        content = zlib.decompress(packed)
    except zlib.error:
        return None
    return content if hashlib.sha256(content).hexdigest() == digest else None


def _name(digest: str) -> str:
    return f"{digest[:2]}/{digest}"


def _address(url: str) -> str:
    if not url:
        raise ConfigError("the place of the checkpoints is empty: give a folder or a URL")
    if "://" not in url:
        return Path(url).absolute().as_uri()
    parts: Any = urlsplit(url)
    if parts.password:
        raise ConfigError(
            "the address of the checkpoints holds a password, and the store would keep it: leave it out, and give it in the "
            "environment or in fsspec's configuration"
        )
    return url.rstrip("/")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

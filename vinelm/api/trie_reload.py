"""Replace the trie that serves by a new version of its file, between requests."""

from __future__ import annotations

import logging
import os
import signal as signals
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from vinelm.errors import ConfigError, VineLMError

_LOG = logging.getLogger(__name__)


class TrieReload:
    """Loads one ``.vine`` file again: on demand, on a signal, or when it has changed. Thread-safe.

    A file that cannot be loaded changes nothing: the trie that serves goes on, and one line of the log says why.

    Args:
        path: the file.
        load: makes it serve; raises a :class:`~vinelm.errors.VineLMError` if it cannot.
    """

    def __init__(self, path: Path, load: Callable[[Path], None]) -> None:
        self.path, self._load = path, load
        self._lock = Lock()
        self._version = self._seen()
        self._stop = Event()
        self._thread: Thread | None = None

    def reload(self) -> None:
        """Load the file now.

        Raises:
            VineLMError: it cannot be loaded; the old trie goes on serving.
        """
        with self._lock:
            self._version = self._seen()
            self._load(self.path)

    def try_reload(self) -> bool:
        """Load the file now; False, and one line in the log, if it cannot be loaded."""
        try:
            self.reload()
        except (VineLMError, OSError) as error:
            _LOG.warning("the old trie goes on serving: %s", " ".join(str(error).split()))
            return False
        _LOG.info("%s: the new trie serves", self.path)
        return True

    def on_signal(self, number: int) -> None:
        """Load the file whenever the process receives this signal. Of the main thread only.

        Raises:
            ConfigError: this is not the main thread.
        """

        def handler(_number: int, _frame: Any) -> None:
            Thread(target=self.try_reload, name="vinelm-reload", daemon=True).start()

        try:
            signals.signal(number, handler)
        except ValueError as error:
            raise ConfigError("a signal can be handled in the main thread only: call it there, or use watch()") from error

    def watch(self, every_s: float) -> None:
        """Look every so many seconds, > 0, whether the file has changed, and load it then.

        Raises:
            ConfigError: the time is not positive.
        """
        if not every_s > 0.0:
            raise ConfigError(f"every_s is {every_s}: give seconds > 0")
        self.stop()
        self._stop = stop = Event()
        self._thread = Thread(target=self._watch, args=(every_s, stop), name="vinelm-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer. Idempotent."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch(self, every_s: float, stop: Event) -> None:
        while not stop.wait(every_s):
            if self._seen() not in (None, self._version):
                self.try_reload()

    def _seen(self) -> tuple[int, int, int] | None:
        """The mark of the file's version; None if there is no file."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

"""Tasks of a process that serves for weeks: writes rows of requests, reloads the trie, and shuts down without losing rows."""

from __future__ import annotations

import logging
import os
import signal as signals
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from vinelm.errors import ConfigError, VineLMError
from vinelm.requests.names import scoped
from vinelm.requests.protocols import BesideService
from vinelm.telemetry import ObserverGroup
from vinelm.threads import Repeated, started
from vinelm.trie.annotated_trie import AnnotatedTrie

if TYPE_CHECKING:
    from types import TracebackType

    from vinelm.api.canary import Canary
    from vinelm.api.served_evidence import EvidenceConfig, ServedEvidence
    from vinelm.traces import StoreIdentity
    from vinelm.traces.tools.tool_writer import ToolWriter

_LOG = logging.getLogger(__name__)


class LongRunning:
    """The part of :class:`~vinelm.VineLM` that outlives single requests: feedback, evidence, reloading and shutdown.

    Attributes:
        evidence: keeps the rows of served requests; None until a trie is loaded, and without ``evidence=``.
        tool_record: writes the calls of tools, and counts written, dropped and waiting calls; None without ``tool_store=``.
    """

    def __init__(self, evidence: EvidenceConfig | str | Path | None) -> None:
        self.evidence: ServedEvidence | None = None
        self.tool_record: ToolWriter | None = None
        self.autopilot: BesideService | None = None
        self._canary: Canary | None = None
        self._kept = evidence
        self._reload: TrieReload | None = None

    def _load_trie(self, trie: AnnotatedTrie | str | Path) -> None:
        """Use this trie for the plans of new requests. The patterns that predict tool calls stay as they are."""
        raise NotImplementedError

    def _loaded(self, annotated: AnnotatedTrie, path: Path | None, observers: ObserverGroup) -> None:
        """Prepare for the trie that now serves: rows of its requests will be written, and its file ``path``, if any, can be
        reloaded.
        """
        if self._kept is not None:
            if self.evidence is None:
                from vinelm.api.served_evidence import EvidenceConfig, ServedEvidence  # needs an extra

                kept = self._kept if isinstance(self._kept, EvidenceConfig) else EvidenceConfig(self._kept)
                self.evidence = ServedEvidence(kept, annotated, observers)
            else:
                self.evidence.follow(annotated)
        if path is not None and (self._reload is None or self._reload.path != path):
            if self._reload is not None:
                self._reload.stop()
            self._reload = TrieReload(path, self._load_trie)

    def _keep_tools(self, store: str | Path, identity: Callable[[], StoreIdentity]) -> ToolWriter:
        """Write all calls of tools to a store from now on, and return the writer."""
        from vinelm.traces.tools.tool_writer import ToolWriter  # needs an extra

        self.tool_record = ToolWriter(Path(store), identity)
        return self.tool_record

    def feedback(self, run_id: str, success: bool | float, *, tenant: str = "", caller: str = "") -> None:
        """Record whether the answer of a request was right, as soon as that is known, in the row of the request's last answer.

        Returns at once: the row is changed off the request path. If the request has no rows, the log says so. A canary counts
        only feedback on requests that this process served, once for each request or conversation.

        The first feedback counts. Later feedback on the same request is only accepted from the same tenant and caller, and
        changes only the row.

        Args:
            run_id: the ``request_id`` that :meth:`context` was given, or the ``evidence.run_id`` of the session.
            success: True, False or a score in [0, 1].
            tenant: the request's tenant, as in its run's ``configurable``. You must have authenticated the tenant.
            caller: the person of that tenant who gives the feedback, authenticated by you; "" if your own software gives it.

        Raises:
            ConfigError: there is no ``evidence=``, no canary and no autopilot, or a value is invalid.
        """
        names = (("run_id", run_id), ("tenant", tenant), ("caller", caller))
        for what, name in names:
            if not isinstance(name, str) or (what == "run_id" and not name):
                raise ConfigError(f"feedback: {what} is {_shown(name)}: give a text")
        if not isinstance(success, int | float | np.number | np.bool_) or not 0.0 <= success <= 1.0:
            raise ConfigError(f"success is {_shown(success)}: give True, False or a score in [0, 1]")
        success = bool(success) if isinstance(success, bool | np.bool_) else float(success)
        if self.autopilot is not None:
            self.autopilot.feedback(scoped(run_id, tenant), float(success))
        elif self.evidence is None and self._canary is None:
            raise ConfigError("feedback needs the rows of served requests: pass VineLM(evidence='served.db') and load a trie")
        if self.evidence is not None:
            self.evidence.feedback(scoped(run_id, tenant), success, scoped(caller, tenant))
        if self._canary is not None:
            self._canary.feedback(scoped(run_id, tenant), success, caller)

    def reload(self) -> None:
        """Load the trie's file again; requests in progress keep the old trie.

        Raises:
            ConfigError: the trie was not loaded from a file, or the new trie cannot serve.
            TrieFileError: the file is missing or damaged. The old trie keeps serving.
        """
        self._file().reload()

    def reload_on(self, number: int) -> None:
        """Load the trie's file again whenever the process receives this signal; if the file is broken, that is logged and the
        old trie keeps serving.

        Args:
            number: the number of a signal that no other code handles, such as SIGHUP.

        Raises:
            ConfigError: the trie was not loaded from a file, or this is not the main thread.
        """
        self._file().on_signal(number)

    def watch(self, every_s: float = 5.0) -> None:
        """Check every ``every_s`` seconds whether the trie's file has changed, and reload it if so. A broken file is logged.

        Raises:
            ConfigError: the trie was not loaded from a file, or the time is not positive.
        """
        self._file().watch(every_s)

    def close(self) -> bool:
        """Stop watching the trie's file, and write the records of requests that are not written yet.

        Return False if some records are lost. Idempotent; also done when the process ends. Requests that are served afterwards
        write records again.
        """
        if self._reload is not None:
            self._reload.stop()
        kept = [one.close() for one in (self.evidence, self.tool_record, self.autopilot) if one is not None]
        return all(kept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _file(self) -> TrieReload:
        if self._reload is None:
            raise ConfigError("the trie was not loaded from a file: pass trie='app.vine', or call vine.load('app.vine')")
        return self._reload


def _shown(value: object) -> str:
    """Return the beginning of a value that a caller sent, as text for a log line."""
    return repr(value)[:40]


class TrieReload:
    """Loads one ``.vine`` file again: on demand, on a signal, or when it has changed. Thread-safe.

    If a file cannot be loaded, the current trie keeps serving, and one log line gives the reason.

    Args:
        load: called with the path of the file, to make the file's trie serve; raises a :class:`~vinelm.errors.VineLMError` if
            that fails.
    """

    def __init__(self, path: Path, load: Callable[[Path], None]) -> None:
        self.path, self._load = path, load
        self._lock = Lock()
        self._version = self._seen()
        self._watching: Repeated | None = None

    def reload(self) -> None:
        """Load the file now.

        Raises:
            VineLMError: the file cannot be loaded; the old trie keeps serving.
        """
        with self._lock:
            self._version = self._seen()
            self._load(self.path)

    def try_reload(self) -> bool:
        """Load the file now and return True; if that fails, log one line and return False."""
        try:
            self.reload()
        except (VineLMError, OSError) as error:
            _LOG.warning("the old trie goes on serving: %s", " ".join(str(error).split()))
            return False
        _LOG.info("%s: the new trie serves", self.path)
        return True

    def on_signal(self, number: int) -> None:
        """Load the file whenever the process receives this signal. Call it in the main thread.

        Raises:
            ConfigError: this is not the main thread.
        """

        def handler(_number: int, _frame: Any) -> None:
            started(self.try_reload, "vinelm-reload")

        try:
            signals.signal(number, handler)
        except ValueError as error:
            raise ConfigError("a signal can be handled in the main thread only: call it there, or use watch()") from error

    def watch(self, every_s: float) -> None:
        """Check every ``every_s`` seconds whether the file has changed, and load it if so.

        Raises:
            ConfigError: the time is not positive.
        """
        if not every_s > 0.0:
            raise ConfigError(f"every_s is {every_s}: give seconds > 0")
        self.stop()
        self._watching = Repeated(self._look, every_s, name="vinelm-watch")

    def stop(self) -> None:
        """Stop watching. Idempotent."""
        if self._watching is not None:
            self._watching.stop()
            self._watching = None

    def _look(self) -> None:
        if self._seen() not in (None, self._version):
            self.try_reload()

    def _seen(self) -> tuple[int, int, int] | None:
        """Return numbers that change whenever the file changes (time, size and inode); None if there is no file."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

"""Chores of a process that serves for weeks: rows of its requests, new versions of the trie, a clean end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from vinelm.api.trie_reload import TrieReload
from vinelm.errors import ConfigError
from vinelm.telemetry import ObserverGroup
from vinelm.trie.annotated_trie import AnnotatedTrie

if TYPE_CHECKING:
    from types import TracebackType

    from vinelm.api.served_evidence import EvidenceConfig, ServedEvidence


class LongRunning:
    """The part of :class:`~vinelm.VineLM` that outlives a request.

    Attributes:
        evidence: keeps the rows of served requests; None until a trie is loaded, and without ``evidence=``.
    """

    def __init__(self, evidence: EvidenceConfig | str | Path | None) -> None:
        self.evidence: ServedEvidence | None = None
        self._kept = evidence
        self._reload: TrieReload | None = None

    def load(self, trie: AnnotatedTrie | str | Path) -> None:
        """Plan over this trie from now on."""
        raise NotImplementedError

    def _loaded(self, annotated: AnnotatedTrie, path: Path | None, observers: ObserverGroup) -> None:
        """Follow a trie that has just begun to serve."""
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
            self._reload = TrieReload(path, self.load)

    def feedback(self, run_id: str, success: bool | float) -> None:
        """Say whether the answer of a request was right, when that becomes known; the row of its last answer then says so.

        Returns at once: the row is changed off the request path. A run of which there is no row is told in the log.

        Args:
            run_id: the ``request_id`` that :meth:`context` was given, or the ``evidence.run_id`` of the session.
            success: True, False or a score in [0, 1].

        Raises:
            ConfigError: no evidence is kept, or the score is out of range.
        """
        if self.evidence is None:
            raise ConfigError("feedback needs the rows of served requests: pass VineLM(evidence='served.db') and load a trie")
        self.evidence.feedback(run_id, success)

    def reload(self) -> None:
        """Load the trie's file again; requests in progress keep the old trie.

        Raises:
            ConfigError: the trie was not loaded from a file, or the new one cannot serve.
            TrieFileError: the file is missing or damaged. The old trie goes on serving.
        """
        self._file().reload()

    def reload_on(self, number: int) -> None:
        """Load the trie's file again whenever the process receives this signal; a broken file is told in the log.

        Args:
            number: of a signal that nothing else handles, such as the one for a hang-up.

        Raises:
            ConfigError: the trie was not loaded from a file, or this is not the main thread.
        """
        self._file().on_signal(number)

    def watch(self, every_s: float = 5.0) -> None:
        """Load the trie's file again when it has changed, looked at every so many seconds; a broken file is told in the log.

        Raises:
            ConfigError: the trie was not loaded from a file, or the time is not positive.
        """
        self._file().watch(every_s)

    def close(self) -> bool:
        """Stop watching and write the rows that wait; False if some are lost. The end of the process does the same.

        Idempotent; requests that are served afterwards write rows again.
        """
        if self._reload is not None:
            self._reload.stop()
        return self.evidence is None or self.evidence.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _file(self) -> TrieReload:
        if self._reload is None:
            raise ConfigError("the trie was not loaded from a file: pass trie='app.vine', or call vine.load('app.vine')")
        return self._reload

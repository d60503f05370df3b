"""The outcomes shown by one request's invocations, in the terms of the trie that its plans are made over."""

from __future__ import annotations

from collections.abc import Callable

from vinelm.signals import Outcome
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.outcomes import Seen

Path = tuple[str, ...]
_NOTHING = Outcome(None, None)


class SeenOutcomes:
    """The outcomes of one request. Not thread-safe: its session holds its lock while it calls.

    Args:
        annotated: the trie; one whose arms are outcomes.
        node: returns the node of a path; ``KeyError`` if the trie has none.
    """

    __slots__ = ("_node", "_outcomes", "_passed", "_shown", "_stages")

    def __init__(self, annotated: AnnotatedTrie, node: Callable[[Path], int]) -> None:
        assert annotated.outcomes is not None
        self._outcomes, self._stages, self._node = annotated.outcomes, annotated.trie.stages, node
        self._shown: dict[Path, Outcome] = {}
        self._passed: dict[Path, bool] = {}

    @property
    def goes_on(self) -> bool:
        """Whether requests may go on after the workflow's own check has passed an answer."""
        return self._outcomes.goes_on

    def note(self, path: Path, outcome: Outcome) -> bool:
        """Note what the invocation at the end of ``path`` has shown; return whether that is new."""
        is_new = self._shown.get(path) != outcome
        self._shown[path] = outcome
        return is_new

    def judge(self, path: Path, passed: bool) -> bool:
        """Note the verdict of the workflow's own check on the answer at the end of ``path``; return whether that is new."""
        is_new = self._passed.get(path) != passed
        self._passed[path] = passed
        return is_new

    def arm(self, path: Path) -> tuple[str | None, str]:
        """Return the arm of the trie that the request goes on by after ``path``, and a note.

        None where the trie says that requests end there. Before the first invocation the arm is the first stage.
        """
        if not path:
            return self._stages[0], ""
        seen = self._seen(path)
        if seen.place < 0 or self._outcomes.arm[seen.place] < 0:
            return None, "requests that show this end here"
        name = self._stages[int(self._outcomes.arm[seen.place])]
        return name, "" if seen.is_exact else f"the profile never saw this outcome: planned as {name[name.find('[') :]}"

    def returned_class(self, path: Path) -> int | None:
        """Return the class of the answer that a request ending after ``path`` should return; None for the last answer."""
        found = self._outcomes.returned_class(self._seen(path).place)
        held = {self._shown[path[:k]].answer_class for k in range(1, len(path) + 1) if path[:k] in self._shown}
        return found if found in held else None

    def _seen(self, path: Path) -> Seen:
        shown = self._shown.get(path, _NOTHING)
        return self._outcomes.seen(self._node(path), shown, passed=self._passed.get(path, False))

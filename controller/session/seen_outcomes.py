"""The outcomes of one request's invocations, in terms of its trie."""

from __future__ import annotations

from collections.abc import Callable, Collection

from vinelm.signals import Outcome
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.outcomes import Outcomes, Seen

Path = tuple[str, ...]
_NOTHING = Outcome(None, None)


class SeenOutcomes:
    """The outcomes of one request. Not thread-safe: its session holds its lock while it calls.

    Args:
        outcomes: of the trie.
        annotated: the trie.
        node: returns the node of a path; ``KeyError`` if the trie has none.
    """

    __slots__ = ("_arms", "_names", "_node", "_numbers", "_outcomes", "_passed", "_shown", "_stages", "_writes_answer")

    def __init__(self, outcomes: Outcomes, annotated: AnnotatedTrie, node: Callable[[Path], int]) -> None:
        self._outcomes, self._stages, self._node = outcomes, annotated.trie.stages, node
        self._writes_answer, self._names = annotated.writes_answer, annotated.stage_names
        template, self._arms = annotated.template, annotated.trie.arms
        # The stage that the application chose is a part of what was seen. Where it has no choice the verdict is.
        chosen = () if template.knows_past_ends else template.stages
        self._numbers = {stage.name: number for number, stage in enumerate(chosen)}
        self._shown: dict[Path, Outcome] = {}
        self._passed: dict[Path, bool] = {}

    @property
    def goes_on(self) -> bool:
        """True if requests may continue after the workflow's own check has passed an answer."""
        return self._outcomes.goes_on

    def note(self, path: Path, outcome: Outcome) -> bool:
        """Record the outcome of the last invocation of ``path``; returns whether it is new."""
        is_new = self._shown.get(path) != outcome
        self._shown[path] = outcome
        return is_new

    def judge(self, path: Path, passed: bool) -> bool:
        """Record the workflow's own check of the last answer of ``path``; returns whether it is new."""
        is_new = self._passed.get(path) != passed
        self._passed[path] = passed
        return is_new

    def arm(self, path: Path, stage: str | None = None) -> tuple[str | None, str]:
        """Return the trie's branch on which the request continues after ``path``, and a note.

        None where the trie says that requests end there. Before the first invocation the arm is the first stage, None if there
        are several and it is not known which.

        Args:
            path: models of the invocations so far.
            stage: the one that comes next, where the application chooses it.
        """
        if not path:
            if stage is None and len(firsts := self._arms(0)) == 1:
                (stage,) = firsts
            return stage, ""
        seen = self._seen(path, None if stage is None else self._numbers.get(stage))
        if seen.place < 0 or self._outcomes.arm[seen.place] < 0:
            return None, "requests that show this end here"
        arm = int(self._outcomes.arm[seen.place])
        shown = self._stages[arm].removeprefix(f"{self._names[arm]} ")
        return self._stages[arm], "" if seen.is_exact else f"the profile never saw this outcome: planned as {shown}"

    def ends_at(self, path: Path) -> bool:
        """Return whether requests with these outcomes end after ``path``; False if the application decides."""
        return not self._numbers and self.arm(path)[0] is None

    def returned_class(self, path: Path) -> int | None:
        """Return the class of the answer that a request ending after ``path`` should return; None for the last answer."""
        found = self._outcomes.returned_class(self._seen(path).place)
        held = {self._shown[path[:k]].answer_class for k in range(1, len(path) + 1) if path[:k] in self._shown}
        return found if found in held else None

    def titles(self, path: Path, stages: Collection[str]) -> tuple[frozenset[str], str]:
        """Return the trie's branches on which the request may continue to these stages, and a note."""
        found = [self.arm(path, stage) for stage in sorted(stages)]
        return frozenset(arm for arm, _ in found if arm is not None), next((note for _, note in found if note), "")

    def _seen(self, path: Path, stage: int | None = None) -> Seen:
        node, shown = self._node(path), self._shown.get(path, _NOTHING)
        if not self._writes_answer(node):  # the state still holds an earlier answer
            shown = shown._replace(answer_class=None)
        return self._outcomes.seen(node, shown, passed=stage is None and self._passed.get(path, False), stage=stage)

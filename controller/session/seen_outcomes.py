"""Translates the outcomes of one request's calls into branches of the trie that plans are made over."""

from __future__ import annotations

from collections.abc import Callable

from vinelm.signals import Outcome
from vinelm.trie.annotated_trie import AnnotatedTrie, SignalTrie
from vinelm.trie.outcomes import Seen

Path = tuple[str, ...]
_NOTHING = Outcome(None, None)


class Belief:
    """The progress of one request, for a trie whose branches do not depend on the outcomes of calls.

    The application alone chooses the next stage.
    """

    __slots__ = ()

    goes_on = False
    """True if plans may continue requests after the workflow's own check has passed an answer."""

    @staticmethod
    def over(annotated: AnnotatedTrie, node: Callable[[Path], int]) -> Belief:
        """Return the state of a new request.

        Args:
            annotated: The trie over which the request's plans are made.
            node: Returns the node of a path; ``KeyError`` if the trie has none.
        """
        return SeenOutcomes(annotated, node) if isinstance(annotated, SignalTrie) else Belief()

    def note(self, path: Path, outcome: Outcome) -> bool:
        """Record the outcome of the call at the end of ``path``; return True if the outcome is new and plans depend on it."""
        return False

    def note_check(self, path: Path, passed: bool) -> bool:
        """Record whether the answer at the end of ``path`` passed the workflow's check.

        Return True if this is new and plans depend on it.
        """
        return False

    def arm(self, path: Path, stage: str | None = None) -> tuple[str | None, str]:
        """Return (the trie's branch on which the request continues after ``path``, a note for the trace).

        The branch is None if requests with these outcomes end after ``path``. Before the first call, the branch is the first
        stage, or None if it is unknown which of several first stages comes. The note says that requests end here, or that the
        profile lacks the outcome and which outcome is assumed instead. Otherwise it is empty.

        Args:
            path: models of the calls so far.
            stage: the next stage, if the application chooses it.
        """
        return stage, ""

    def titles(self, path: Path, stages: str | frozenset[str]) -> tuple[str | frozenset[str], str]:
        """Return (the trie's names for the next ``stages``, given the outcomes so far; a note for the trace).

        The trie may have several stages for one stage of the application: one for each outcome of the call before. The note
        says that requests with these outcomes end after ``path``, or that the profile lacks the outcome. Otherwise it is empty.
        """
        return stages, ""

    def ends_at(self, path: Path) -> bool:
        """Return whether, according to the trie, requests with the outcomes so far end after ``path``.

        False if the application alone decides when to end.
        """
        return False

    def returned_class(self, path: Path) -> int | None:
        """Return which answer a request that ends after ``path`` should return; None means its last answer.

        The result is the number of a class: answers of the request that agree.
        """
        return None


class SeenOutcomes(Belief):
    """The progress of one request, for a trie whose branches depend on the outcomes of calls.

    Not thread-safe: the session calls it with the session's lock held.

    Args:
        annotated: the trie.
        node: returns the node of a path; ``KeyError`` if the trie has none.
    """

    __slots__ = (
        "_arms",
        "_names",
        "_node",
        "_numbers",
        "_outcomes",
        "_passed",
        "_shown",
        "_stages",
        "_writes",
        "goes_on",
    )

    def __init__(self, annotated: SignalTrie, node: Callable[[Path], int]) -> None:
        self._outcomes, self._stages, self._node = annotated.outcomes, annotated.trie.stages, node
        self.goes_on = annotated.outcomes.goes_on
        self._writes, self._names = annotated.writes_answer, annotated.stage_names
        template, self._arms = annotated.template, annotated.trie.arms
        # The stage that the application chose is part of what was seen. If it has no choice, the check's verdict is.
        chosen = template.base.form.chosen(template.stages)
        self._numbers = {stage.name: number for number, stage in enumerate(chosen)}
        self._shown: dict[Path, Outcome] = {}
        self._passed: dict[Path, bool] = {}

    def note(self, path: Path, outcome: Outcome) -> bool:
        """Record the outcome of the call at the end of ``path``; return whether it is new."""
        is_new = self._shown.get(path) != outcome
        self._shown[path] = outcome
        return is_new

    def note_check(self, path: Path, passed: bool) -> bool:
        """Record whether the answer at the end of ``path`` passed the workflow's check; return whether this is new."""
        is_new = self._passed.get(path) != passed
        self._passed[path] = passed
        return is_new

    def arm(self, path: Path, stage: str | None = None) -> tuple[str | None, str]:
        """Return (the trie's branch on which the request continues after ``path``, a note for the trace); see
        :meth:`Belief.arm`.
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
        """Return whether, according to the trie, requests with the outcomes so far end after ``path``.

        False if the application alone decides when to end.
        """
        return not self._numbers and self.arm(path)[0] is None

    def returned_class(self, path: Path) -> int | None:
        """Return which answer a request that ends after ``path`` should return; None means its last answer.

        The result is the number of a class: answers of the request that agree.
        """
        found = self._outcomes.returned_class(self._seen(path).place)
        held = {self._shown[path[:k]].answer_class for k in range(1, len(path) + 1) if path[:k] in self._shown}
        return found if found in held else None

    def titles(self, path: Path, stages: str | frozenset[str]) -> tuple[str | frozenset[str], str]:
        """Return (the trie's names for the next ``stages``, given the outcomes so far; a note for the trace).

        The trie may have several stages for one stage of the application: one for each outcome of the call before. The note
        says that requests with these outcomes end after ``path``, or that the profile lacks the outcome. Otherwise it is empty.
        """
        found = [self.arm(path, stage) for stage in ([stages] if isinstance(stages, str) else sorted(stages))]
        arms = frozenset(arm for arm, _ in found if arm is not None)
        return next(iter(arms), "") if len(arms) < 2 else arms, next((note for _, note in found if note), "")

    def _seen(self, path: Path, stage: int | None = None) -> Seen:
        node, shown = self._node(path), self._shown.get(path, _NOTHING)
        if not self._writes(node):  # the state still contains an earlier answer
            shown = shown._replace(answer_class=None)
        return self._outcomes.seen(node, shown, passed=stage is None and self._passed.get(path, False), stage=stage)

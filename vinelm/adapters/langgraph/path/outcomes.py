"""The outcomes of a run's invocations.

Each outcome is computed when the state is visible, reported to the policy once, and stored in the path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from threading import RLock
from typing import Any

from langchain_core.runnables import RunnableConfig

from vinelm.adapters.langgraph.path.graph_values import channels_of, graph_values
from vinelm.adapters.langgraph.path.path_channel import Note, PathValue, ShownOutcome, models_of, shown_of
from vinelm.foreign_code import answered
from vinelm.signals import Outcome, Signals
from vinelm.template import Template

Path = tuple[str, ...]
NOTHING: ShownOutcome = {"signal": None, "answer_class": None}


class RunOutcomes:
    """The outcomes (signal, and which answers are equal) of one run's invocations. Thread-safe.

    The first edge or stage that sees the state after an invocation computes the invocation's outcome. If the next invocation
    begins before that, as with two invocations in one node or with parallel stages, the outcome stays empty.

    Args:
        signals: the workflow's signals.
        observe: reports an outcome to the policy, given the path that ends with its invocation.
        failed: called as ``failed(what, error, path)`` if the application's ``signal`` or ``agree`` raises, or the state lacks
            an ``answer=`` key. ``path`` has the models up to the invocation. If ``failed`` returns, that part of the outcome is
            empty; exceptions from it are not caught.
        template: names the stages that judge an answer, and the keys of their verdicts; None if no stage judges.
    """

    def __init__(
        self,
        signals: Signals,
        observe: Callable[[Path, Outcome], None],
        failed: Callable[[str, Exception, Path], None],
        template: Template | None,
    ) -> None:
        self.signals = signals
        judges = () if template is None else template.stages
        self._verdicts = {stage.name: stage.verdict for stage in judges if stage.verdict is not None}
        self._stages: dict[Path, str] = {}
        self._observe, self._failed = observe, failed
        self._lock = RLock()
        self._shown: dict[Path, ShownOutcome] = {}

    def tell(
        self,
        path: Path,
        read: Callable[[], Mapping[str, Any]] | None = None,
        *,
        passed: bool | None = None,
        unwritten: Collection[str] = (),
    ) -> None:
        """Compute the outcome of the last invocation of ``path`` and report it to the policy, once.

        Earlier invocations of ``path`` that were not reported are reported with an empty outcome.

        Args:
            path: models of the invocations so far; nothing is reported if it is empty.
            read: returns the state after the last invocation; called at most once. None: the state is not known.
            passed: whether the workflow's own check accepted that state; None if the check has not run.
            unwritten: keys of the state that may have no value yet; a key without a value counts as None.
        """
        with self._lock:
            if not path or path in self._shown:
                return
            for k in range(1, len(path)):
                if path[:k] not in self._shown:
                    self._add(path[:k], NOTHING)
            self._add(path, NOTHING if read is None else self._seen(path, read, passed, unwritten))

    def tell_at(self, config: RunnableConfig, path: Path, *, fresh: bool, own: Any = None, passed: bool | None = None) -> None:
        """Compute an invocation's outcome at a node or edge, with the state read through ``config``, and report it.

        Args:
            config: LangGraph's config of the node or edge.
            path: models of the invocations so far.
            fresh: include what the node has just written; an edge needs it.
            own: the state passed to the node or edge, used if this LangGraph version hides its channels; None if not known.
            passed: see :meth:`tell`.
        """
        channels = channels_of(config)
        if own is None and not channels:
            self.tell(path)
        else:
            self.tell(path, lambda: graph_values(config, own, fresh=fresh), passed=passed, unwritten=channels)

    def ran(self, path: Path, stage: str) -> None:
        """Record that the last invocation of ``path`` was of the stage ``stage``; needed to read the verdicts of judges."""
        if self._verdicts:
            self._stages[path] = stage

    def tell_failed(self, path: Path) -> None:
        """Report to the policy that the last invocation of ``path`` has failed; another attempt may follow."""
        self._observe(path, Outcome("error" if self.signals.signal == "status" else None, None))

    def inherit(self, path: Path, shown: Sequence[ShownOutcome | None]) -> None:
        """Report to the policy the outcomes of the invocations of ``path``, as an earlier run of the request has stored them.

        ``shown`` has these outcomes, with None for an invocation without a stored outcome.
        """
        with self._lock:
            for k, one in enumerate(shown, start=1):
                if one is not None and path[:k] not in self._shown:
                    self._add(path[:k], one)

    def forget(self) -> None:
        """Remove all recorded outcomes, since another request begins in this run."""
        with self._lock:
            self._shown.clear()
            self._stages.clear()

    def told(self, config: RunnableConfig | None, path: Path, value: PathValue | None) -> list[Note]:
        """Report the outcomes (signals and answers) of ``path`` to the policy.

        Returns a note for each outcome that the graph has not stored yet; the node adds the notes to the stored path.

        Args:
            config: LangGraph's config of the node. If None, the last invocation gets an empty outcome, because its node has not
                ended.
            path: models of the invocations so far. If empty, another request begins, and all recorded outcomes are removed.
            value: the stored path; None if there is none.
        """
        if not path:
            self.forget()
            return []
        if config is None:
            self.tell(path)
        else:
            self.tell_at(config, path, fresh=False)
        return self.notes(value)

    def notes(self, value: PathValue | None) -> list[Note]:
        """Return the known outcomes that the stored path ``value`` lacks, so that the running node can add them to the path."""
        models, stored = models_of(value), shown_of(value)
        with self._lock:
            known = [self._shown.get(models[: k + 1]) for k in range(len(models))]
        return [{"k": k, "shown": one} for k, one in enumerate(known) if one is not None and stored[k] is None]

    def classes(self, path: Path) -> tuple[int | None, ...]:
        """Return the class of each invocation's answer; None for an invocation without a known answer.

        Equal answers of a request have the same class. Classes are numbered from 0, in the order of their first answers.
        """
        with self._lock:
            shown = [self._shown.get(path[:k], NOTHING) for k in range(1, len(path) + 1)]
        return tuple(one["answer_class"] for one in shown)

    def firsts(self, path: Path) -> list[dict[str, Any]]:
        """Return the first answer of each class of equal answers, in the order of the classes' numbers.

        Each answer is a mapping with the values of the state's ``answer=`` keys.
        """
        with self._lock:
            shown = [self._shown.get(path[:k], NOTHING) for k in range(1, len(path) + 1)]
        return [one["first"] for one in shown if "first" in one]

    def _add(self, path: Path, shown: ShownOutcome) -> None:
        self._shown[path] = shown
        self._observe(path, Outcome(shown["signal"], shown["answer_class"]))

    def _seen(
        self, path: Path, read: Callable[[], Mapping[str, Any]], passed: bool | None, unwritten: Collection[str]
    ) -> ShownOutcome:
        shown: ShownOutcome = {"signal": None, "answer_class": None}
        state: Mapping[str, Any] = {}
        with self._surviving("the signal", path):
            state = read()
            verdict = self._verdicts.get(self._stages.get(path, ""))
            shown["signal"] = self.signals.label(state, passed=passed, verdict=verdict, model=path[-1])
        with self._surviving("the comparison of answers", path):
            self._classify(path, dict.fromkeys(unwritten) | dict(state), shown)
        return shown

    @contextmanager
    def _surviving(self, what: str, path: Path) -> Iterator[None]:
        """Catch any exception in the block and report it through ``failed``. ``what`` names the part that failed, such as "the
        signal".
        """
        try:
            yield
        except Exception as error:
            self._failed(what, error, path)

    def _classify(self, path: Path, state: Mapping[str, Any], shown: ShownOutcome) -> None:
        answer = self.signals.answer_of(state, is_partial=True)  # the profile refused keys that no stage sets
        if answer is None:
            return
        firsts = self.firsts(path)
        found = self.signals.class_of(answer, [self.signals.answer_of(first) for first in firsts])
        if found == len(firsts):
            shown["first"] = {key: _kept(state[key]) for key in self.signals.answer}
        shown["answer_class"] = found


class NoOutcomes(RunOutcomes):
    """The outcomes of a workflow that declares no signals: nothing is computed or reported."""

    def __init__(self) -> None:
        super().__init__(Signals(), lambda path, outcome: None, lambda what, error, path: None, None)

    def tell(self, path: Path, *_: Any, **__: Any) -> None:
        """Do nothing: the workflow declares no signals."""

    def tell_at(self, config: RunnableConfig, path: Path, **_: Any) -> None:
        """Do nothing: the workflow declares no signals."""

    def inherit(self, path: Path, shown: Sequence[ShownOutcome | None]) -> None:
        """Do nothing: the workflow declares no signals."""

    def told(self, config: RunnableConfig | None, path: Path, value: PathValue | None) -> list[Note]:
        """Return an empty list: there are no outcomes to write."""
        return []


NO_OUTCOMES = NoOutcomes()


def _kept(value: Any) -> Any:
    """Return a copy of ``value``, since a later node may change the application's object; ``value`` itself if it cannot be
    copied.
    """
    return answered(partial(deepcopy, value), value)

"""The models of one superstep: one stage in most of them, several where stages run side by side."""

from __future__ import annotations

from collections.abc import Callable

from vinelm.errors import WorkflowError
from vinelm.template.flow import Flow


class StageChoice:
    """The model of one stage in a superstep, and how many of the invocations that began with it have failed."""

    __slots__ = ("begun", "failed", "path")

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path
        self.begun = self.failed = 0

    @property
    def is_lost(self) -> bool:
        """Whether every invocation that began with the model has failed, so that a retry may use another one."""
        return 0 < self.begun == self.failed


class Superstep:
    """The choices of one superstep, which began behind ``prefix``. The run that owns it locks it.

    Attributes:
        key: LangGraph's number of the superstep.
        prefix, stages: models and stages of the path before it.
        choices: the choice of each stage, in the order in which they were made.
    """

    __slots__ = ("choices", "key", "prefix", "stages")

    def __init__(self, key: object, prefix: tuple[str, ...], stages: tuple[str, ...]) -> None:
        self.key, self.prefix, self.stages = key, prefix, stages
        self.choices: dict[str, StageChoice] = {}

    def choose(self, stage: str, ahead: tuple[str, ...], ask: Callable[[str, tuple[str, ...]], str]) -> StageChoice:
        """Return the choice for ``stage``; ``ask(stage, prefix)`` names the models that are not chosen yet, in order.

        Args:
            stage: name of the stage.
            ahead: the stages of the superstep whose choices come before it.
            ask: called for stages without a choice, and again where all that began with a choice has failed.
        """
        prefix = self.prefix
        for name in ahead:
            found = self.choices.get(name)
            if found is None:
                found = self.choices[name] = StageChoice((*prefix, ask(name, prefix)))
            prefix = (*prefix, found.path[-1])
        choice = self.choices.get(stage)
        if choice is None:
            choice = self.choices[stage] = StageChoice((*prefix, ask(stage, prefix)))
        elif choice.is_lost:
            choice.path = (*prefix, ask(stage, prefix))
        return choice

    def end(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return models and stages of the path behind the superstep, as far as it was chosen."""
        placed = sorted((len(choice.path), stage, choice.path[-1]) for stage, choice in self.choices.items())
        return (*self.prefix, *(model for _, _, model in placed)), (*self.stages, *(stage for _, stage, _ in placed))

    def ahead_of(self, stage: str, flow: Flow | None) -> tuple[str, ...]:
        """Return the stages of this superstep whose choices come before that of ``stage``.

        Raises:
            WorkflowError: another stage runs in it, and the template does not say that the two run side by side.
        """
        others = [name for name in self.choices if name != stage]
        if flow is None and not others:
            return ()
        before = None if flow is None else self._in_flow(stage, flow)
        for other in others:
            if flow is None or not (other in (before or ()) or stage in (self._in_flow(other, flow) or ())):
                raise WorkflowError(
                    f"stages {other!r} and {stage!r} run in one superstep: VineLM chooses models along one path, so put an "
                    f"edge between them, or declare Parallel((Stage({other!r}), Stage({stage!r}))) in the template"
                )
        return before or ()

    def is_in(self, stage: str, flow: Flow) -> bool:
        """Whether the template has the stage here."""
        return self._in_flow(stage, flow) is not None

    def _in_flow(self, stage: str, flow: Flow) -> tuple[str, ...] | None:
        """The choices before ``stage`` in this superstep; None where the template does not have it there."""
        try:
            return flow.ahead_of(flow.at(self.stages), stage)
        except KeyError:  # behind an arm that the template lacks
            return None

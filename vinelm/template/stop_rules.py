"""The stop rules, which define when a request ends, as one class for each rule.

The methods say, for example, whether a service can follow the rule, and whether a profile continues past the graph's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, TypeVar

from vinelm.errors import ConfigError, VineLMError
from vinelm.template.steps import Stage, Step, stages_of

StopRule = Literal["oracle", "workflow"]
"""When a request leaves the workflow: ``oracle`` exactly when its answer is correct (labelled replay only), ``workflow`` when
the application's own check ends it. See docs/mathematics.md."""
ENDED_BY: Mapping[StopRule, Literal["success", "stopped"]] = {"oracle": "success", "workflow": "stopped"}
"""The field of a row that says whether the request ends there."""
_Any = TypeVar("_Any")


class WorkflowStop:
    """The stop rule ``"workflow"``: the application's own check ends a request."""

    mode: ClassVar[Literal["stop", "through"]] = "stop"
    """How a profile forces a request to its next invocation; see :class:`~vinelm.policies.ForcedPolicy`."""
    why_not_served: ClassVar[str] = ""
    """Why no plan can be served, in one line; empty if plans can."""
    needs_bool: ClassVar[str] = ""
    """Why a score must be a bool, in a few words; empty if it may be a number."""

    def require_served(self, error: VineLMError) -> None:
        """Do nothing, since a service can follow this rule; the oracle rule raises ``error``."""

    def judge(self, judge: _Any | None) -> _Any | None:
        """Return None: under this rule no judge is needed, since the workflow's own check ends requests.

        The oracle rule returns ``judge``, the function that returns whether an answer is right.
        """
        return None

    def by_itself(self, found: Sequence[_Any]) -> Sequence[_Any]:
        """Return ``found``, the observations of how the graph itself ended or continued a request, unchanged.

        They count under this rule. The oracle rule returns an empty sequence, because under that rule a profile continues
        requests after the graph has ended them.
        """
        return found

    def goes_through(self, follower: Stage | None) -> bool:
        """Return False: under this rule, a profile does not continue a request after the graph has ended it.

        ``follower`` is the template's next stage, to which the oracle rule continues.
        """
        return False

    def open_stops(self, has_failures: bool) -> tuple[bool, bool]:
        """Return whether P(a right answer ends the request) and P(a wrong answer ends it) have to be estimated.

        Both are True under this rule. Under the oracle rule, a right answer always ends a request.

        Args:
            has_failures: Whether some recorded invocation failed, which ends a request, too.
        """
        return True, True

    def warnings(self, steps: Sequence[Step]) -> tuple[str, ...]:
        """Return warnings that say why the rule does not fit the steps of a template; none for this rule."""
        return ()


class OracleStop(WorkflowStop):
    """The stop rule ``"oracle"``: the first right answer ends a request. This rule needs labels."""

    mode = "through"
    why_not_served = (
        "the oracle stop ends a request when its answer is right, as no service can: estimate for the workflow's own stop"
    )
    needs_bool = "the oracle stop needs a bool"

    def require_served(self, error: VineLMError) -> None:
        """Raise ``error``: a service has no labels."""
        raise error

    def judge(self, judge: _Any | None) -> _Any:
        """Return ``judge``, the function that returns whether an answer is right; raise :class:`ConfigError` if it is None."""
        if judge is None:
            raise ConfigError(
                "the template stops by oracle, which knows the right answers: pass judge=, or serve with stop='workflow'"
            )
        return judge

    def by_itself(self, found: Sequence[_Any]) -> Sequence[_Any]:
        """Return an empty sequence instead of ``found``, the observations of how the graph itself ended or continued a request.

        They do not count under this rule: a profile continues requests after the graph has ended them.
        """
        return ()

    def goes_through(self, follower: Stage | None) -> bool:
        """Return whether a profile continues a request after the graph has ended it: True if the template has a next stage.

        ``follower`` is that stage; None after the template's last stage.
        """
        return follower is not None

    def open_stops(self, has_failures: bool) -> tuple[bool, bool]:
        """Return whether P(a right answer ends the request) and P(a wrong answer ends it) have to be estimated.

        A right answer always ends the request, so there is nothing to estimate. A wrong answer ends the request only if the
        invocation failed. How often this happens is estimated if ``has_failures``: some recorded invocation failed.
        """
        return False, has_failures

    def warnings(self, steps: Sequence[Step]) -> tuple[str, ...]:
        """Return a warning if the workflow is not a retry or repair loop.

        Each further invocation counts as another attempt at the same answer. In a chain of different tasks (a planner, then
        a solver) this is wrong, because the intermediate stages do not produce an answer.
        """
        silent = [stage.name for stage in stages_of(steps) if not stage.answerable]
        if silent:
            return (
                f"stage {silent[0]!r} produces no answer, so this is no retry or repair workflow: accuracy under the oracle"
                " stop is not prefix-closed: use the stop rule 'workflow'",
            )
        chain = [step.name for step in steps if isinstance(step, Stage)]
        if len(chain) > 1:
            return (
                f"stages {' -> '.join(chain)} form a chain, not a retry or repair loop: the oracle stop would end a request"
                f" before {chain[1]!r} has run: use the stop rule 'workflow', or declare {chain[0]!r} as not answerable",
            )
        return ()


STOP_RULES: Mapping[StopRule, WorkflowStop] = {"workflow": WorkflowStop(), "oracle": OracleStop()}
"""What depends on the stop rule, by its name."""

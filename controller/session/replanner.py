"""One plan in the middle of a request: the planner, asked with what is known now, whose own failures become a note."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from vinelm.controller.load.load_view import SessionLoad
from vinelm.controller.planning.decision import Decision
from vinelm.controller.planning.planner import Planner
from vinelm.controller.session.excluded_models import ExcludedModels
from vinelm.errors import InfeasibleError, VineLMError
from vinelm.objective import Objective
from vinelm.trie import BoolArray


class Replanner:
    """Plans of one request. ``candidates`` restricts the nodes to end at, ``barred`` the next model.

    ``least_call_usd`` tells the dollars set aside for any call of a model; given, what they do not allow is not planned.
    ``raises`` hands on the controller's own failures, of which else only a note is left.
    """

    __slots__ = ("_candidates", "_least_call_usd", "_nodes", "_objective", "_planner", "_raises", "_sight", "barred")

    def __init__(
        self,
        planner: Planner,
        objective: Objective,
        *,
        candidates: BoolArray | None,
        sight: SessionLoad | None,
        least_call_usd: Callable[[str], float] | None,
        raises: bool,
    ) -> None:
        self._planner, self._objective = planner, objective
        self._candidates, self._sight, self._raises = candidates, sight, raises
        self._nodes: dict[tuple[str, ...], int] = {(): 0}
        self._least_call_usd = least_call_usd
        self.barred = ExcludedModels(planner, least_call_usd)

    def plan(
        self, stage: str, prefix: tuple[str, ...], *, elapsed_s: float, spent_usd: float, may_stop: bool
    ) -> tuple[Decision | None, str]:
        """The plan for the invocation of ``stage`` after ``prefix`` and what to note of it; or None, and why there is none.

        :class:`InfeasibleError` where the objective wants it.
        """
        try:
            node = self.node(prefix)
            if self._stage_after(node) != stage:
                return None, f"stage {stage!r} after {len(prefix)} invocations is not planned for: default model"
            load_s, note = (None, "") if self._sight is None else self._sight.read()
            if self._planner.metrics.missing:
                note = _noted(note, f"not served any more, left out: {', '.join(self._planner.metrics.missing)}")
            plan = partial(
                self._planner.plan,
                self._objective,
                node=node,
                elapsed_s=elapsed_s,
                spent_usd=spent_usd,
                load=load_s,
                may_stop=may_stop,
            )
            if self.barred.is_empty:
                return plan(candidates=self._candidates), note
            decision, why = self._around(plan, node, prefix, spent_usd)
            return decision, _noted(note, why)
        except KeyError:
            return None, f"the path {'/'.join(prefix)} is not planned for: default model"
        except InfeasibleError as error:
            if self._raises or self._objective.on_infeasible == "raise":
                raise
            return None, f"{error}: default model"
        except Exception as error:
            if self._raises:
                raise
            why = str(error) if isinstance(error, VineLMError) else type(error).__name__
            return None, f"the controller failed ({why}): default model"

    def node(self, prefix: tuple[str, ...]) -> int:
        """The node of a prefix; ``KeyError`` if the trie has none."""
        node = self._nodes.get(prefix)
        if node is None:
            node = self._nodes[prefix] = self._planner.metrics.child(self.node(prefix[:-1]), prefix[-1])
        return node

    def _around(
        self, plan: Callable[..., Decision], node: int, prefix: tuple[str, ...], spent_usd: float
    ) -> tuple[Decision, str]:
        """A plan that begins with no barred model, and what to note. What only failed comes again where nothing else fits."""
        allowed = self._candidates
        cap_usd = self._objective.max_cost_usd
        if cap_usd is not None:
            allowed = self.barred.without(node, self.barred.too_dear(node, prefix, cap_usd - spent_usd), allowed)
        failed = self.barred.failed(prefix)
        if failed:
            with suppress(InfeasibleError):
                decision = plan(candidates=self.barred.without(node, failed, allowed))
                if decision.is_feasible:
                    whose = ", ".join(f"{model} ({kind})" for model, kind in sorted(failed.items()))
                    return decision, f"left out after a failure: {whose}"
        return plan(candidates=allowed), ""

    def _stage_after(self, node: int) -> str | None:
        """The stage that the trie has next; a template determines it, so the first child tells."""
        trie = self._planner.trie
        return trie.stages[int(trie.stage[node + 1])] if trie.end[node] > node + 1 else None


def _noted(note: str, more: str) -> str:
    return f"{note}; {more}" if note and more else note or more

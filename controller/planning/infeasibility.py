"""Makes the errors for requests that no path or plan can serve."""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.controller.planning.metric import COST_CAP, FLOOR, LATENCY_CAP, UNITS
from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.controller.planning.subtree import Choice, SubtreeView
from vinelm.errors import InfeasibleError, VineLMError
from vinelm.objective import Objective

_BEST = {FLOOR: "highest accuracy", LATENCY_CAP: "fastest", COST_CAP: "cheapest"}


def infeasible(view: SubtreeView, choice: Choice) -> InfeasibleError:
    """Return the error for a request for which no path meets all bounds.

    The error names the first relaxed bound, and the best value of the bounded quantity on paths within the bounds that were not
    relaxed.
    """
    bound = choice.relaxed[0]
    if bound not in view.bounds:
        raise VineLMError(f"{bound} is not a bound of this objective")
    values = view.values(bound)[view.feasible(without=choice.relaxed)]
    best = float(values.max() if bound == FLOOR else values.min()) + view.used(bound)
    others = [name for name in view.bounds if name not in choice.relaxed]
    return unmet(view.objective, bound, best, others, what="path")


def unmet(objective: Objective, bound: str, best: float, others: Sequence[str] = (), *, what: str = "plan") -> InfeasibleError:
    """Return the error for a request for which no plan meets ``bound`` together with the bounds ``others``.

    ``best`` is the best value of the bounded quantity that such a plan reaches; ``what`` is the word for a plan in the message.
    """
    limit, unit = float(getattr(objective, bound)), UNITS[bound]
    within = f" within {' and '.join(others)}" if others else ""
    change = "lower" if bound == FLOOR else "raise"
    return InfeasibleError(
        f"no {what} meets {bound} = {limit:g}{unit}{within}: the {_BEST[bound]} is {best:.6g}{unit}: {change} it to that",
        bound=bound,
        limit=limit,
        best=best,
    )


def no_end(metrics: PathMetrics, request: PlanRequest) -> InfeasibleError:
    """Return the error for a request that cannot end at any node."""
    where = "/".join(metrics.trie.prefix(request.node)) or "the root"
    why = f" (not served any more: {', '.join(metrics.missing)})" if metrics.missing else ""
    return InfeasibleError(f"no path leads on from {where}{why}: allow other nodes to end at")

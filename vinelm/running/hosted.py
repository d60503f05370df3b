"""Serves requests and calls on nodes of a Ray cluster; money for them is reserved in this process."""

from __future__ import annotations

from typing import Any

from vinelm.errors import CallRefused, WorkerDied
from vinelm.profiler.cluster.messages import RequestJob, RequestOutcome
from vinelm.profiler.cluster.worker import ClusterWorker
from vinelm.requests.protocols import CallGuard, CallPermit
from vinelm.rows.observation import Usage


def executed_on(worker: ClusterWorker, job: RequestJob, guard: CallGuard) -> Any:
    """Return the result of a job that runs on a cluster node; ``guard`` authorizes calls that may cost more than was
    reserved for the job.

    If the node dies, the job is charged at the reserved amount and run again on another node.

    Raises:
        WorkerDied: No node is left, or each node that was tried has died.
    """
    reserved = _Reserved(guard)
    outcome, lost_usd = worker.execute(job, reserved.raised_to)
    if not isinstance(outcome, RequestOutcome):
        raise WorkerDied("the nodes were given back while requests were under way: run the same again to continue")
    reserved.settle(lost_usd + outcome.settled_usd)
    return outcome.answer


class _Reserved:
    """Keeps the amount, in dollars, that this process has reserved for a request's calls on cluster nodes."""

    def __init__(self, guard: CallGuard) -> None:
        self._guard, self._permits = guard, list[CallPermit]()
        self._usd = 0.0

    def raised_to(self, upper_usd: float) -> bool:
        """Raise the reservation to ``upper_usd`` dollars; return False if the budget does not allow this."""
        if upper_usd > self._usd:
            try:
                self._permits.append(self._guard.authorize(upper_usd - self._usd))
            except CallRefused:
                return False
            self._usd = upper_usd
        return True

    def settle(self, cost_usd: float) -> None:
        """Replace the reservation by the cost of all calls, in dollars; a reservation that is never settled counts in full."""
        for permit in self._permits:
            permit.settle(Usage(model="", cost_usd=cost_usd, latency_s=0.0))
            cost_usd = 0.0

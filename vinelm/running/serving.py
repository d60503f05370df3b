"""Serves labelled requests for an evaluation: the application answers them under a policy, and the answers are scored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from vinelm.adapters.langgraph import GraphAdapter, RunContext
from vinelm.adapters.langgraph.whole_run import whole_run
from vinelm.api import VineLM
from vinelm.errors import CallError, CallRefused, FailureKind, VineLMError, is_of_code
from vinelm.objective import Objective
from vinelm.policies import Policy
from vinelm.requests.protocols import CallGuard
from vinelm.requests.workflow import Request, Workflow
from vinelm.traces.served.served_requests import ServedRequest


def serve(
    workflow: Workflow,
    vine: GraphAdapter | VineLM,
    app: Any,
    request: Request,
    *,
    policy: Policy,
    objective: Objective | None = None,
) -> ServedRequest:
    """Invoke the compiled application on one request, score its answer, and return both with the cost. Spends money with
    real models.

    A failed call, an exception in the application's own code, or a ``sys.exit()`` there is not raised. Instead, the request
    counts as failed; see :func:`vinelm.errors.is_of_code`.

    Args:
        workflow: The workflow, for the graph's input and the scorer.
        vine: The adapter that the application was built with.
        app: The application: a compiled graph (which may have async nodes, a checkpointer or interrupts), an entrypoint or
            a function.
        request: The labelled request.
        policy: A new policy or session, which serves this request only.
        objective: The policy's objective; None if it has none.

    Raises:
        VineLMError: The configuration or the request is invalid.
    """
    state, failure, detail = final_state(workflow, vine, app, request, policy=policy, objective=objective)
    return ServedRequest(
        request_id=request.id,
        success=failure is None and bool(workflow.score(request, state)),
        failure=failure,
        detail=detail,
        **measured(policy),
    )


def final_state(
    workflow: Workflow,
    vine: GraphAdapter | VineLM,
    app: Any,
    request: Request,
    *,
    policy: Policy,
    objective: Objective | None = None,
) -> tuple[Any, FailureKind | None, str | None]:
    """Invoke the application on one request, as :func:`serve` does, without a score.

    Returns:
        The final state, the kind of the failure, and one line about it; the state is None after a failure.
    """
    try:
        return whole_run(workflow, app, request, vine.context(objective, policy=policy, request=request)), None, None
    except CallError as error:
        return None, error.kind, str(error)
    except VineLMError:
        raise
    except BaseException as error:  # raised by the application's own code; its text may contain a prompt
        if not is_of_code(error):
            raise
        return None, "tool", type(error).__name__


def measured(policy: Policy) -> dict[str, Any]:
    """Return the cost in dollars, the seconds and the models of the request that a policy has served.

    The keys are ``cost_usd``, ``latency_s`` and ``prefix``, the models of the request's calls in order.
    """
    return {
        "cost_usd": policy.spent_usd,
        "latency_s": max(policy.clock.now() - policy.started_at, 0.0),
        "prefix": max((done.prefix for done in policy.invocations), key=len, default=()),
    }


def judge_of(workflow: Workflow, request: Request) -> Any:
    """Return a function that takes a graph state and says whether its answer is right by the request's label.

    The stop rule "oracle" uses it.
    """
    return lambda state: bool(workflow.score(request, state))


class Purses:
    """Assigns to each policy the guard that authorizes the calls of the request that the policy serves.

    Args:
        adapter: The adapter that runs the application. Its ``account_of`` is set, so that it asks this object for the guard of
            each run.
    """

    def __init__(self, adapter: GraphAdapter) -> None:
        self._of: dict[int, CallGuard] = {}
        adapter.account_of = self._account

    @contextmanager
    def paying(self, policy: Policy, guard: CallGuard) -> Iterator[None]:
        """Inside the block, let ``guard`` authorize the calls of the request that the policy serves."""
        self._of[id(policy)] = guard
        try:
            yield
        finally:
            del self._of[id(policy)]

    def _account(self, context: RunContext) -> CallGuard:
        found = self._of.get(id(context.policy))
        if found is not None:
            return found
        alone = list(self._of.values())
        if len(alone) == 1:
            return alone[0]
        raise CallRefused(
            "a model call whose request is not known: run threads with contextvars.copy_context(), or serve with workers=1"
        )

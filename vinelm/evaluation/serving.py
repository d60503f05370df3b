"""Serving for evaluation: labelled requests answered by the LangGraph application under a policy, and scored."""

from __future__ import annotations

from typing import Any

from vinelm.adapters.langgraph import GraphAdapter
from vinelm.api import VineLM
from vinelm.clock import Clock
from vinelm.errors import CallError, ConfigError, FailureKind, VineLMError
from vinelm.objective import Objective
from vinelm.policies import Policy
from vinelm.requests.workflow import Request, Workflow
from vinelm.traces.served.served_requests import ServedRequest


def serve(
    workflow: Workflow,
    vine: GraphAdapter | VineLM,
    app: Any,
    request: Request,
    objective: Objective | None,
    *,
    policy: Policy | None = None,
    traced: bool = True,
) -> ServedRequest:
    """Invoke the compiled application on one request and score its answer. Spends money with real models.

    A failed call, or an exception in the application's own code, makes the request a failure; it is not raised.

    Args:
        workflow: The workflow, for the graph's input and the scorer.
        vine: The adapter that the application was built with.
        app: The compiled LangGraph application.
        request: The labelled request.
        objective: The objective of a new session; requires ``vine`` to be a :class:`VineLM` with a trie.
        policy: A policy to use instead of a session. It serves one request only.
        traced: Whether to keep the policy's decisions.

    Raises:
        VineLMError: The configuration or the request is invalid.
    """
    if policy is None:
        policy = _session(workflow, vine, request, objective)
    context = vine.context(objective, policy=policy, request=request)
    state: Any = None
    failure: FailureKind | None = None
    detail = None
    try:
        state = app.invoke(workflow.graph_input(request), context=context)
    except CallError as error:
        failure, detail = error.kind, str(error)
    except VineLMError:
        raise
    except Exception as error:  # raised by the application's own code; its text may contain a prompt
        failure, detail = "tool", type(error).__name__
    prefix = max((done.prefix for done in policy.invocations), key=len, default=())
    return ServedRequest(
        request_id=request.id,
        success=failure is None and bool(workflow.score(request, state)),
        cost_usd=policy.spent_usd,
        latency_s=max(policy.clock.now() - policy.started_at, 0.0),
        prefix=prefix,
        decisions=tuple(policy.trace()) if traced else (),
        failure=failure,
        detail=detail,
    )


def judge_of(workflow: Workflow, request: Request) -> Any:
    """Return a function from graph state to whether its answer is right for this request, as the oracle stop needs it."""
    return lambda state: bool(workflow.score(request, state))


def _session(workflow: Workflow, vine: GraphAdapter | VineLM, request: Request, objective: Objective | None) -> Policy:
    if not isinstance(vine, VineLM) or objective is None:
        raise ConfigError("serve needs a policy, or a VineLM with a trie and an objective")
    clock: Clock = vine.new_clock()
    return vine.session(objective, request=request, judge=judge_of(workflow, request), clock=clock)

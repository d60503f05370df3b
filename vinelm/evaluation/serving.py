"""One labelled request through the real graph, scored: how a policy is judged where it will run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vinelm.adapters.langgraph import GraphControl
from vinelm.api.application import VineLM
from vinelm.errors import CallError, ConfigError, FailureKind, VineLMError
from vinelm.objective import Objective
from vinelm.policies import Following
from vinelm.protocols import Clock
from vinelm.workflow import Request, Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What one request showed. ``latency_s`` is by the policy's clock (virtual for virtual backends), ``cost_usd`` of all
    calls, failed ones included. A failed request has its ``failure`` kind and no success. ``decisions`` is the policy's trace.
    """

    request_id: str
    success: bool
    cost_usd: float
    latency_s: float
    prefix: tuple[str, ...]
    decisions: tuple[dict[str, Any], ...] = ()
    failure: FailureKind | None = None
    detail: str | None = None


def serve(
    workflow: Workflow,
    vine: GraphControl,
    app: Any,
    request: Request,
    objective: Objective | None,
    *,
    policy: Following | None = None,
) -> Served:
    """Invoke the compiled ``app`` on the request and score its answer. Spends money with real models.

    Without ``policy`` the request gets a session of ``vine`` (a :class:`VineLM` with a trie) for ``objective``. A policy serves
    one request: make a new one for each. Errors of the caller's input are raised; a failed call or an exception of the
    application's own code makes the request a failure.
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
    except Exception as error:  # the application's own; its text may hold a prompt
        failure, detail = "tool", type(error).__name__
    prefix = max((done.prefix for done in policy.invocations), key=len, default=())
    return Served(
        request_id=request.id,
        success=failure is None and bool(workflow.score(request, state)),
        cost_usd=policy.spent_usd,
        latency_s=max(policy.clock.now() - policy.started_at, 0.0),
        prefix=prefix,
        decisions=tuple(policy.trace()),
        failure=failure,
        detail=detail,
    )


def judge_of(workflow: Workflow, request: Request) -> Any:
    """Whether the answer in a state is right for that request: what the oracle stop asks."""
    return lambda state: bool(workflow.score(request, state))


def _session(workflow: Workflow, vine: GraphControl, request: Request, objective: Objective | None) -> Following:
    if not isinstance(vine, VineLM) or objective is None:
        raise ConfigError("serve needs a policy, or a VineLM with a trie and an objective")
    clock: Clock = vine.new_clock()
    return vine.session(objective, request=request, judge=judge_of(workflow, request), clock=clock)

"""The exact annotations of the support desk under simulated models, by running every ticket on every history."""

from dataclasses import dataclass, field, replace

import numpy as np

from vinelm.backends import create_backends, simulated_catalog
from vinelm.clock import VirtualClock
from vinelm.requests.protocols import CallContext
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.workflows.support import support
from vinelm.workflows.support.graph import DeskStages, after_query, desk_of


@dataclass
class Counts:
    """Sums over the requests that reach each node."""

    size: int
    sums: dict[str, np.ndarray] = field(init=False)

    def __post_init__(self):
        self.sums = {name: np.zeros(self.size) for name in ("n", "success", "stop", "stop_success", "cost", "cost2", "s", "s2")}

    def add(self, node, **values):
        for name, value in values.items():
            self.sums[name][node] += value


def exact_support(preset: str = "paper-2", limit: int | None = None, seed: int = 0) -> AnnotatedTrie:
    """Annotate the trie of the support desk with what the first ``limit`` tickets really do."""
    workflow, catalog = support(), simulated_catalog(preset)
    backend = create_backends(catalog, workflow=workflow, seed=seed)["simulated"]
    template = workflow.template.bind(tuple(catalog))
    trie, stages = Trie.from_template(template), DeskStages(workflow.score.databases)
    counts, requests = Counts(len(trie)), workflow.requests[:limit]

    def run(request, node, state, stage, prefix):
        """Run one stage and the tool behind it; the new state and the stage that comes next."""
        clock, usages = VirtualClock(), []
        call = CallContext(stage=stage, prefix=prefix, clock=clock, on_usage=usages.append, request=request)
        state = {**state, **getattr(stages, stage)(state, backend.chat_model(catalog[prefix[-1]], call))}
        if stage == "lookup":
            state |= stages.query(state)
        after = {"router": desk_of, "lookup": after_query}.get(stage, lambda state: None if stage == "reply" else "reply")(
            state
        )
        right, cost, seconds = workflow.score(request, state), sum(usage.cost_usd for usage in usages), clock.now()
        counts.add(node, n=1, success=right, stop=after is None, stop_success=right and after is None, cost=cost)
        counts.add(node, cost2=cost**2, s=seconds, s2=seconds**2)
        return state, after

    def follow(request, node, state, stage):
        for child in trie.arms(node).get(stage, ()):
            state_after, after = run(request, child, state, stage, trie.prefix(child))
            if after is not None:
                follow(request, child, state_after, after)

    for request in requests:
        counts.add(0, n=1)
        follow(request, 0, workflow.graph_input(request), "router")
    return _annotated(trie, template, catalog, counts.sums)


def _annotated(trie, template, catalog, sums):
    n = np.maximum(sums["n"], 1.0)
    arm, arm_success, arm_se = np.zeros(len(trie)), np.zeros(len(trie)), np.zeros(len(trie))
    arm[0] = 1.0
    means = {name: values / n for name, values in sums.items()}
    for node in range(len(trie)):
        for children in trie.arms(node).values():
            share = sums["n"][children[0]] / n[node]
            arm[children], arm_se[children] = share, np.sqrt(share * (1 - share) / n[node])
    stop = means["stop"]
    for node in range(len(trie)):  # what no ticket reached goes the first way, so that the arms and the stop sum to 1
        groups = list(trie.arms(node).values())
        if groups and not sums["n"][node]:
            arm[groups[0]] = 1.0
        if not groups and not sums["n"][node]:
            stop[node] = 1.0
    exact = AnnotatedTrie(
        trie, template, catalog, success=means["success"], stop=stop, stop_success=means["stop_success"],
        cost_usd=means["cost"], cost_var=np.maximum(means["cost2"] - means["cost"] ** 2, 0.0), latency_s=means["s"],
        latency_var=np.maximum(means["s2"] - means["s"] ** 2, 0.0), count=sums["n"].astype(np.int64),
        arm=arm, arm_success=arm_success,
        meta={"workflow": "support", "is_simulated": True, "estimator": "exact", "stop": "workflow", "requests": int(n[0])},
    )  # fmt: skip
    of_node = np.sqrt(means["success"] * (1 - means["success"]) / n)
    return replace(exact, accuracy_se=exact.reach * of_node, cost_se=exact.path_cost_usd / np.sqrt(n[0]))

"""Plans over small tries that merge histories, by trying all of them: written from the definition, not from our graph."""

from functools import cache
from itertools import product


def all_plans(trie, ends):
    """Every plan: for each arm of each node a child, or None where the request may be ended."""
    arms = [(node, stage) for node in range(len(trie)) for stage in trie.arms(node)]
    options = [[*trie.arms(node)[stage], *([None] if ends[node] else [])] for node, stage in arms]
    for chosen in product(*options):
        yield dict(zip(arms, chosen, strict=True))


def arm_rates(annotated):
    """(P(arm), P(arm and right)) of each (node, stage)."""
    trie, found = annotated.trie, {}
    for edge in range(trie.n_edges):
        node, stage = int(trie.source[edge]), trie.stages[trie.stage[trie.target[edge]]]
        if annotated.arm is None:
            going, right = 1.0 - annotated.stop[node], annotated.success[node] - annotated.stop_success[node]
        else:
            going, right = annotated.arm[edge], annotated.arm_success[edge]
        found[node, stage] = (float(going), float(right))
    return found


def worth(annotated, plan, rates, node=0):
    """(accuracy, dollars, longest seconds) of a plan from a node on, by following every history."""
    trie = annotated.trie

    @cache
    def of(at):
        if not trie.arms(at):
            return float(annotated.success[at]), 0.0, 0.0
        accuracy, cost, longest = float(annotated.stop_success[at]), 0.0, 0.0
        for stage in trie.arms(at):
            going, right = rates[at, stage]
            child = plan[at, stage]
            if child is None:
                accuracy += right
                continue
            below = of(child)
            accuracy += going * below[0]
            cost += going * (float(annotated.cost_usd[child]) + below[1])
            longest = max(longest, float(annotated.latency_s[child]) + below[2])
        return accuracy, cost, longest

    return of(node)


def best_within(annotated, rates, ends, price, *, use="latency_s"):
    """The best value at a node with so much left, by trying every choice at every node and amount that occurs."""
    trie, amounts = annotated.trie, getattr(annotated, use)

    @cache
    def need(at):
        if ends[at]:
            return 0.0
        if not trie.arms(at):
            return float("inf")
        return max(min(float(amounts[c]) + need(c) for c in children) for children in trie.arms(at).values())

    @cache
    def of(at, rest):
        if not trie.arms(at):
            return float(annotated.success[at] if ends[at] else annotated.stop_success[at])
        total = float(annotated.stop_success[at])
        for stage, children in trie.arms(at).items():
            going, right = rates[at, stage]
            options = [
                going * (of(c, rest - float(amounts[c])) - price * float(annotated.cost_usd[c]))
                for c in children
                if rest - float(amounts[c]) - need(c) >= -1e-9
            ]
            if ends[at]:
                options.append(right)
            total += max(options, default=0.0)
        return total

    return of

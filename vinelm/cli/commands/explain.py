"""``vinelm explain``: the decision at one point of a request, its alternatives, and why they lose."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from vinelm.cli.console import print_json, say, show_table, stdout
from vinelm.cli.contingent_output import (
    BOUND_TEXTS,
    show_alternatives,
    show_bounds,
    show_tree,
)
from vinelm.cli.inputs import in_options, objective_of
from vinelm.cli.options import json_option, objective_options, option, signals_option, trie_argument
from vinelm.errors import ConfigError
from vinelm.reports import percent, seconds, usd
from vinelm.reports.formatting import objective_words

if TYPE_CHECKING:
    from vinelm.controller import Decision
    from vinelm.controller.planning.contingent.decision import ContingentDecision
    from vinelm.controller.planning.path_decision import PathDecision
    from vinelm.objective import Objective
    from vinelm.trie.annotated_trie import AnnotatedTrie

_WIDE = 110
"""On terminals with at least this many columns, the table also shows the rest of each plan."""


@click.command("explain", short_help="Explain a decision: every possible next step, and why it loses.")
@trie_argument
@objective_options
@signals_option
@option(
    "--prefix A,B",
    "Models of the invocations so far; STAGE=A where several stages may come next, and 'STAGE [OUTCOME]=A' with --signals "
    "[default: none].",
    default="",
)
@option("--arm STAGE", "The stage that comes next, where several may [default: not known yet].")
@option("--elapsed-s S", "Seconds since the request arrived [default: the estimate].", float)
@option("--spent-usd USD", "Dollars spent so far [default: the estimate].", float)
@option("--load ENGINE=S", "Current extra seconds per invocation on an engine; repeatable.", into="loads", multiple=True)
@json_option
def command(
    *,
    trie: Path,
    signals: bool,
    prefix: str,
    arm: str | None,
    elapsed_s: float | None,
    spent_usd: float | None,
    loads: tuple[str, ...],
    as_json: bool,
    **bounds: Any,
) -> None:
    """Plan from one point of a request with the trie in the file TRIE, and show every possible next step.

    For each model that could run next, and for ending now: the best plan that starts with it, its estimates, and why it was
    not chosen. Where the graph branches, for each stage that may come next, or for the one that --arm names. If no path meets
    the bounds, they are relaxed as in serving, and the output names them.

    Example: vinelm explain nl2sql.vine --maximize accuracy --max-latency-s 15 --prefix gemma-27b --elapsed-s 9 --load gpu-1=2.5
    """
    from vinelm.api.planning import require_signals
    from vinelm.controller import Planner
    from vinelm.controller.planning.path_decision import PathDecision
    from vinelm.vinefile import load_trie

    objective = objective_of(bounds)
    annotated = require_signals(load_trie(trie)) if signals else load_trie(trie)
    nodes = _nodes(annotated, prefix)
    node = nodes[-1]
    expected_s, expected_usd = _used(annotated, nodes)
    with in_options():
        decision = Planner(annotated).plan(
            objective,
            node=node,
            elapsed_s=expected_s if elapsed_s is None else elapsed_s,
            spent_usd=expected_usd if spent_usd is None else spent_usd,
            load=_loads(annotated, loads),
            stage=None if arm is None else _arm(annotated, node, arm),
        )
    _check_effect(objective, elapsed_s, spent_usd)
    if as_json:
        _print_json(objective, decision)
        return
    _show_moment(decision, is_expected=elapsed_s is None and spent_usd is None)
    if annotated.is_contingent:
        _show_contingent(objective, annotated, cast("ContingentDecision", decision))
        return
    _show_candidates(objective, decision)
    if isinstance(decision, PathDecision):
        _show_bounds(decision)
    _show_words(annotated, decision)


def _check_effect(objective: Objective, elapsed_s: float | None, spent_usd: float | None) -> None:
    """Refuse the time or money used so far where no bound of the objective depends on it."""
    if elapsed_s is not None and objective.max_latency_s is None:
        raise ConfigError("--elapsed-s has no effect without --max-latency-s: leave it out, or set that bound")
    if spent_usd is not None and objective.cost_budget != "per_request":
        raise ConfigError("--spent-usd has no effect without --cost-budget per_request: leave it out, or set that budget")


def _used(annotated: AnnotatedTrie, nodes: list[int]) -> tuple[float, float]:
    """Return the expected seconds and dollars of a request that ran these nodes."""
    return float(annotated.latency_s[nodes].sum()), float(annotated.cost_usd[nodes].sum())


def _nodes(annotated: AnnotatedTrie, prefix: str) -> list[int]:
    """Return the nodes of a comma-separated prefix, the root first; :class:`ConfigError` names the first that cannot follow."""
    trie, node = annotated.trie, 0
    nodes = [node]
    for part in filter(None, (part.strip() for part in re.split(r",(?![^\[]*\])", prefix))):
        stage, model = _step(annotated, node, part)
        try:
            node = trie.child(node, model, stage)
        except KeyError:
            able = ", ".join(dict.fromkeys(trie.models[trie.model[child]] for child in trie.children(node)))
            where = "/".join(trie.prefix(node)) or "the start"
            after = f"use {able}" if able else "the path ends there"
            raise ConfigError(f"--prefix: {part!r} cannot follow {where}: {after}") from None
        nodes.append(node)
    return nodes


def _step(annotated: AnnotatedTrie, node: int, part: str) -> tuple[str | None, str]:
    """Return the stage (None: the only one) and the model of one step of a prefix."""
    trie = annotated.trie
    arms, (stage, found, model) = tuple(trie.arms(node)), part.rpartition("=")
    if len(arms) < 2 and (not found or part in trie.models):
        return None, part
    if stage not in arms:
        where = "/".join(trie.prefix(node)) or "the start"
        raise ConfigError(
            f"--prefix: {part!r} after {where}: name the stage that came next, as in {arms[0]}={trie.models[0]}: "
            f"it may be {', '.join(arms)}"
            if arms
            else f"--prefix: {part!r} cannot follow {where}: the path ends there"
        )
    return stage, model


def _arm(annotated: AnnotatedTrie, node: int, stage: str) -> str:
    """Return the stage if it and others may come next; :class:`ConfigError` otherwise."""
    arms = tuple(annotated.trie.arms(node))
    if len(arms) == 1:
        raise ConfigError(f"--arm has no effect: only {arms[0]} may come next: leave it out")
    if stage not in arms:
        able = f"use {', '.join(arms)}" if arms else "the path ends there"
        raise ConfigError(f"--arm {stage}: it cannot come next: {able}")
    return stage


def _loads(annotated: AnnotatedTrie, given: tuple[str, ...]) -> dict[str, float]:
    """Parse ``ENGINE=SECONDS`` options; :class:`ConfigError` for an unknown engine or an invalid number."""
    found = {}
    for item in given:
        engine, _, value = item.rpartition("=")
        if engine not in annotated.engines:
            raise ConfigError(f"--load {item}: unknown engine: use ENGINE=SECONDS with one of {', '.join(annotated.engines)}")
        try:
            found[engine] = float(value)
        except ValueError:
            raise ConfigError(f"--load {item}: {value!r} is not a number of seconds") from None
        if not 0.0 <= found[engine] < float("inf"):
            raise ConfigError(f"--load {item}: use a finite number of seconds >= 0")
    return found


def _show_moment(decision: Decision, *, is_expected: bool) -> None:
    trie, query = decision.metrics.trie, decision.request
    ran = ", ".join(f"{stage} {model}" for stage, model in trie.edges(query.node)) or "no invocation"
    expected = " (estimated)" if is_expected else ""
    say(f"So far: {ran}; {seconds(query.elapsed_s)} elapsed and {usd(query.spent_usd)} spent{expected}.")
    if query.load_s is not None:
        loaded = ((name, extra) for name, extra in zip(decision.metrics.annotated.engines, query.load_s, strict=True) if extra)
        say(f"Load: {', '.join(f'{name} +{seconds(float(extra))} per invocation' for name, extra in loaded)}.")


def _show_contingent(objective: Objective, annotated: AnnotatedTrie, decision: ContingentDecision) -> None:
    """The alternatives of each arm, the bounds, and the plan as a tree."""
    show_alternatives(objective, decision)
    show_bounds(decision)
    show_tree(decision, "The chosen plan")
    simulated = "Simulated models. " if annotated.meta.get("is_simulated") else ""
    say(f"{decision.reason[0].upper()}{decision.reason[1:]}.")
    say(f"{simulated}Accuracy and cost: of a request that goes on to that stage, from here on.")


def _show_candidates(objective: Objective, decision: Decision) -> None:
    from vinelm.controller.explanation import alternatives

    is_wide = stdout().width >= _WIDE
    ran = decision.metrics.trie.depth[decision.node]
    rows = []
    for found in alternatives(decision):
        figures = (percent(found.accuracy), usd(found.path_cost_usd), seconds(found.remaining_s))
        name = found.next_model or "end here"
        then = " → ".join(found.plan[ran + 1 :]) or "end"
        why = "chosen" if found.is_chosen else found.why
        rows.append((f"* {name}" if found.is_chosen else f"  {name}", *figures, why, *([then] if is_wide else [])))
    columns = ("  next", "accuracy", "cost", "remaining", "<why", *(["<then"] if is_wide else []))
    show_table(objective_words(objective), columns, rows)


def _show_bounds(decision: PathDecision) -> None:
    """The bounds, with what was used of each, and what the plan comes to."""
    view, at = decision.view, decision.target - decision.node
    texts = {bound: BOUND_TEXTS[bound] for bound in view.bounds}
    used = {bound: "" if bound == "min_accuracy" else text(view.used(bound)) for bound, text in texts.items()}
    show_bounds(decision, {bound: (used[bound], text(float(view.values(bound)[at]))) for bound, text in texts.items()})


def _show_words(annotated: AnnotatedTrie, decision: Decision) -> None:
    found = decision.intervals.get("accuracy")
    interval = ""
    if found:
        promised = f"Promised accuracy: {100 * decision.promise.accuracy:.1f} %. "
        interval = f"{promised}Accuracy interval (90 %): {100 * found[0]:.1f} % to {100 * found[1]:.1f} %. "
    say(f"{interval}{decision.reason[0].upper()}{decision.reason[1:]}.")
    if decision.request.objective.risk == "dp":
        say("The stochastic program made the choice; the reasons above compare the steps by their mean times.")
    simulated = "Simulated models. " if annotated.meta.get("is_simulated") else ""
    say(f"{simulated}Cost: expected dollars of the whole request. Remaining: seconds if every invocation of the plan runs.")


def _print_json(objective: Objective, decision: Decision) -> None:
    annotated, query = decision.metrics.annotated, decision.request
    load = {} if query.load_s is None else dict(zip(annotated.engines, query.load_s.tolist(), strict=True))
    print_json(
        {
            "objective": objective.to_dict(),
            "is_simulated": annotated.meta.get("is_simulated"),
            "prefix": annotated.trie.prefix(query.node),
            "elapsed_s": query.elapsed_s,
            "spent_usd": query.spent_usd,
            "load": load,
            "decision": {
                **decision.to_dict(),
                "intervals": decision.intervals,
                "relaxed": decision.relaxed,
                "promise": decision.promise.to_dict(),
            },
            **decision.candidates(),
        }
    )

"""``vinelm plan``: shows the path that the controller chooses for an objective before a request starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.commands.explain import explained, moment_options
from vinelm.cli.commands.trie import show_trie
from vinelm.cli.commands.trie_diff import compare
from vinelm.cli.console import echo, print_json, say, show_table
from vinelm.cli.contingent_output import BOUND_TEXTS, show_tree
from vinelm.cli.declared import declared
from vinelm.cli.inputs import FILE, in_options, objective_in, objective_of, say_changed_prices
from vinelm.cli.options import flag, json_option, objective_options, option, trie_argument
from vinelm.errors import ConfigError
from vinelm.reports import percent, seconds, usd
from vinelm.reports.formatting import (
    KIND_COLUMNS,
    KINDS_NOTE,
    KINDS_TITLE,
    kind_cells,
    objective_words,
    oracle_words,
    prompt_cache_words,
    under_oracle,
)

if TYPE_CHECKING:
    from vinelm.controller import Decision
    from vinelm.evaluation.plans.plans import PlannedPolicy, Plans
    from vinelm.objective import Objective
    from vinelm.trie.annotated_trie import AnnotatedTrie


@click.command("plan", short_help="Choose a path for an objective; compare with fixed plans.")
@trie_argument
@objective_options
@declared("vinelm.api.planning:plan", "objective")
@flag(
    "--accept-optimism",
    "Exit with 0 also if the plan's advantage over a single model may be due to the choice among many paths alone.",
)
@flag(
    "--as-code", "Print the plan to switch to as lines of Python; with an objective the best fixed plan, which needs no VineLM."
)
@flag("--show", "Show TRIE instead: its provenance, counts, prices and best paths.", into="is_shown")
@option("--diff VINE", "Compare TRIE with an earlier one instead: what moved beyond noise, and which plans change.", Path)
@flag("--explain", "Explain one decision instead: every possible next step, and why it loses.", into="is_explained")
@moment_options
@json_option
def command(
    *,
    trie: Path,
    signals: bool,
    accept_optimism: bool,
    as_code: bool,
    is_shown: bool,
    diff: Path | None,
    is_explained: bool,
    as_json: bool,
    **bounds: Any,
) -> None:
    """Choose the best plan for an objective from the estimates in the file TRIE, and compare it with fixed plans.

    Shows VineLM's path for a new request, its estimates, and how far they stay below each limit. Also shows the best static
    plan (one model per stage) and the best single model. If the graph branches, the plan has a model for each way that a
    request may take. The promised accuracy is what to expect from serving the plan, with a 90 % interval. It is lower than the
    estimate, because the best of many uncertain estimates is too optimistic. `vinelm verify` tests it on held-out requests.

    Without a target, it shows the plan that the file's verdict compares with the models that run today. It says whether to
    switch to that plan. With --as-code it prints this plan, or the best fixed plan for an objective, as lines of Python.

    With --explain it shows every possible next step after the calls that --prefix names: its best plan, its estimates, and why
    it was not chosen. --show and --diff inspect and compare tries. None of these calls a model.

    With --signals the plan also depends on what the calls of a request show, such as a check that failed. It is shown as a
    tree, next to the best path. Such plans are served if the application declares its signals and ends in `vine.finish`.

    Exit code 1 if it is unknown what runs today, and chance alone may explain why the plan looks better than a single model.
    The message says which further results to record. Exit code 2 if no path meets the limits; the message names the limit that
    excludes all paths.

    Example: vinelm plan nl2sql.vine --maximize accuracy --max-cost-usd 0.01 --max-latency-s 15

    Example: vinelm plan app.vine --maximize accuracy --max-cost-usd 0.01 --cost-budget per_request --max-latency-s 5 --risk dp
    --signals --accept-optimism

    Example: vinelm plan app.vine --objective objective.toml --as-code

    Example: vinelm plan app.vine --explain --minimize cost --prefix small,small --arm repair --elapsed-s 2 --load gpu-1=0.5

    Example: vinelm plan app.vine --show, and vinelm plan app.vine --diff app-monday.vine
    """
    instead = {"--show": is_shown, "--diff": diff, "--explain": is_explained, "--as-code": as_code}
    asked = [name for name, value in instead.items() if value]
    if len(asked) > 1:
        raise ConfigError(f"{' and '.join(asked)} exclude each other: keep one")
    moment = {name: bounds.pop(name) for name in ("prefix", "arm", "elapsed_s", "loads")}
    if is_explained:
        explained(trie, objective_of(bounds), signals=signals, as_json=as_json, **moment)
        return
    if any(moment.values()):
        raise ConfigError("--prefix, --arm, --elapsed-s and --load say what --explain explains: add it, or leave them out")
    if is_shown or diff is not None:
        if signals or accept_optimism or objective_in(bounds, is_open=True) is not None:
            raise ConfigError(f"{asked[0]} plans nothing: leave out the objective and what belongs to it")
        if diff is None:
            show_trie(trie, as_json=as_json)
        else:
            compare(diff, trie, as_json=as_json)
        return
    _plan(trie, bounds, signals=signals, accept_optimism=accept_optimism, as_code=as_code, as_json=as_json)


def _plan(trie: Path, bounds: dict[str, Any], *, signals: bool, accept_optimism: bool, as_code: bool, as_json: bool) -> None:
    from vinelm.api.planning import require_evidence
    from vinelm.evaluation.plans.plans import PlannedPolicy
    from vinelm.evaluation.plans.plans_over import plan_of_verdict, plans_over, trie_of_verdict
    from vinelm.vinefile import load_trie

    is_open = not (bounds["maximize"] or bounds["minimize"] or bounds[FILE])
    objective = None if is_open else objective_of(bounds, on_infeasible="raise")
    annotated = load_trie(trie)
    say_changed_prices(annotated.catalog)
    if as_code:
        from vinelm.reports.plan_words import plan_code

        for line in plan_code(annotated, trie.name, objective):
            echo(line)
        return
    of_verdict = objective is None
    objective = objective or _recommended_objective(bounds, annotated)
    verdict = annotated.verdict
    signals |= of_verdict and verdict is not None and trie_of_verdict(annotated, verdict) is not annotated
    plans = plans_over(annotated)
    with in_options():
        planned = plans.compare(objective)
        if signals:
            planned = [_over_signals(objective, plans.annotated), replace(planned[0], policy="VineLM, paths"), *planned[1:]]
    judged = plan_of_verdict(annotated, verdict) if of_verdict and verdict is not None else None
    if judged is not None and judged.words not in [item.plan for item in planned]:
        planned.append(PlannedPolicy("plan of the verdict", "static", judged, judged.words))
    today = plans.today()
    if today is not None:
        planned.append(PlannedPolicy("what runs today", "in_use", today, today.words))
    if as_json:
        _print_json(objective, planned, plans)
    else:
        show_plan(objective, planned, plans)
    best = planned[0].decision
    if not accept_optimism and best is not None and not _is_compared(best):  # otherwise the comparison has said it
        require_evidence(best)


def _is_compared(best: Decision) -> bool:
    found = best.verdict
    return found is not None and found.is_today


def _recommended_objective(bounds: dict[str, Any], annotated: AnnotatedTrie) -> Objective:
    """Return the objective of the plan that the trie's verdict recommends, for a command line without a target.

    If it is unknown what runs today, raise an error which says that a target is missing.
    """
    from vinelm.plans.recommendation import served_objective

    verdict = annotated.verdict
    found = None if verdict is None or not verdict.is_today else served_objective(verdict)
    return objective_of(bounds, on_infeasible="raise") if found is None else replace(found, on_infeasible="raise")


def _over_signals(objective: Objective, annotated: AnnotatedTrie) -> PlannedPolicy:
    from vinelm.api import plan
    from vinelm.evaluation.plans.plans import PlannedPolicy

    found = plan(annotated, objective, signals=True)
    return PlannedPolicy("VineLM, signals", "vinelm", found, found.words)


def show_plan(objective: Objective, planned: list[PlannedPolicy], plans: Plans[Any]) -> None:
    """Print the plan, the best fixed plan and the best single model as a table, with the plan's confidence intervals.

    Also print how far the plan stays below the objective's limits.
    """
    from vinelm.evaluation.plans.arms import by_kind

    knows_latency = plans.annotated.knows_latency
    rows = []
    for item in planned:
        found = item.decision
        figures = (
            ("-",) * 3
            if found is None
            else (percent(found.accuracy), usd(found.path_cost_usd), seconds(found.path_latency_s if knows_latency else None))
        )
        rows.append((item.policy, *figures, item.plan))
    stop = plans.annotated.template.stop
    show_table(f"{objective_words(objective)}{under_oracle(stop)}", ("policy", "accuracy", "cost", "latency", "<plan"), rows)
    best = planned[0].decision
    if best is None:
        return
    kinds = kind_cells(by_kind(best))
    if kinds:
        show_table(KINDS_TITLE, (*KIND_COLUMNS[:-1], f"<{KIND_COLUMNS[-1]}"), kinds, caption=KINDS_NOTE)
    if len(best.lines(2)) > 1:
        show_tree(best, "VineLM's plan")
    for line in (*promise_lines(best), *_slack_lines(best)):
        echo(line)
    for line in advice_lines(best):
        say(line)
    simulated = "Simulated models. " if plans.annotated.meta.get("is_simulated") else ""
    latency = f"seconds {best.latency_words}, at zero load" if knows_latency else "unknown, the observations have none"
    cache = prompt_cache_words(plans.annotated.calls_per_hour)
    say(" ".join(filter(None, (f"{simulated}Cost: expected dollars per request.", cache, f"Latency: {latency}."))))
    if oracle := oracle_words(stop):
        say(oracle)


def skipped_words(stage: str, worth: Mapping[str, Any]) -> str:
    """Return a sentence on an optional stage that the plan always skips.

    ``worth`` has the stage's cost per request in dollars (``cost_usd``), the ends ``low`` and ``high`` of its effect on
    accuracy as fractions, and the number ``pairs`` of requests with and without it.
    """
    low, high, pairs = 100 * worth["low"], 100 * worth["high"], worth["pairs"]
    return (
        f"{stage} costs {usd(worth['cost_usd'])} a request and changes the accuracy of its answer by {low:+.1f} to {high:+.1f} "
        f"points ({pairs} requests with and without it): the plan skips it."
    )


def advice_lines(best: Decision) -> list[str]:
    """Return lines of advice on a plan: models with too few results, optional stages that the plan skips, other notes, and the
    recommendation.
    """
    from vinelm.plans.recommendation import left_out, thin_models

    found, annotated = best.verdict, best.metrics.annotated
    thin = thin_models(annotated, best.reached)
    lines = [f"The plan leans on {rows} rows of {model}: too few to rely on." for model, rows in thin.items()]
    lines += annotated.untold
    lines += [skipped_words(stage, worth) for stage, worth in left_out(annotated, best.reached).items()]
    if found is None or (not found.is_today and found.advice == "not enough data"):
        return lines
    return [*lines, found.sentence]


def promise_lines(best: Decision) -> list[str]:
    """Return lines with the predicted accuracy, its interval, and the correction for choosing the best of many estimates."""
    promise = best.promise
    if promise.interval is None:
        lines = ["Accuracy interval: unknown, this estimator gives no standard errors."]
    else:
        low, high = promise.interval
        lines = [f"Accuracy interval (90 %): {100 * low:.1f} % to {100 * high:.1f} %"]
    cost = best.intervals.get("path_cost_usd") if best.metrics.annotated.policy == "signals" else None
    if cost is not None:
        lines.append(f"Cost interval (90 %): {usd(cost[0])} to {usd(cost[1])}")
    if promise.optimism is None:
        return [*lines, "Optimism of the choice: not measured (`vinelm estimate --check` does)."]
    off = 100 * (promise.estimate - promise.accuracy)
    promised = f"Promised accuracy: {100 * promise.accuracy:.1f} % (estimate less {off:.1f} points of selection optimism)"
    return [promised, *lines]


def _slack_lines(best: Any) -> list[str]:
    lines = [f"Slack of {bound}: {BOUND_TEXTS[bound](left)}" for bound, left in best.slack.items()]
    if best.binding:
        lines.append(f"Binding bound: {best.binding}. Without it, another {best.noun} would be chosen.")
    return lines


def _advice(item: PlannedPolicy) -> dict[str, Any]:
    found = item.decision.verdict if item.role == "vinelm" else None
    return {} if found is None else {"verdict": found.to_dict()}


def _print_json(objective: Objective, planned: list[PlannedPolicy], plans: Plans[Any]) -> None:
    rows = [
        {"policy": item.policy, "plan": None, "is_feasible": False}
        if item.decision is None
        else {
            "policy": item.policy,
            **item.decision.to_dict(),
            "intervals": item.decision.intervals,
            "promise": item.decision.promise.to_dict(),
        }
        | _advice(item)
        for item in planned
    ]
    first = rows[0].get("verdict")
    advice = {} if first is None else {"verdict": first}
    basis = {"is_simulated": plans.annotated.meta.get("is_simulated"), "stop": plans.annotated.template.stop}
    print_json({"objective": objective.to_dict(), **advice, **basis, "plans": rows})

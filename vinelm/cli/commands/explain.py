"""``vinelm plan --explain``: shows the decision at one point of a request, and why alternatives were not chosen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vinelm.cli.console import print_json, say, show_table, stdout
from vinelm.cli.contingent_output import BOUND_TEXTS, show_tree
from vinelm.cli.inputs import in_options, say_changed_prices
from vinelm.cli.options import option, stacked
from vinelm.cli.quantities import SECONDS
from vinelm.errors import ConfigError
from vinelm.meant import did_you_mean
from vinelm.reports import percent, seconds, usd
from vinelm.reports.formatting import objective_words, oracle_words

if TYPE_CHECKING:
    from vinelm.controller import Decision
    from vinelm.controller.planning.decision import Alternative
    from vinelm.objective import Objective
    from vinelm.trie.annotated_trie import AnnotatedTrie

_WIDE = 110
"""On terminals with at least this many columns, the table also shows the rest of each plan."""
_TITLES = {
    "next_model": "<model",
    "accuracy": "accuracy",
    "path_cost_usd": "cost",
    "remaining_s": "remaining",
    "why": "<why",
    "plan": "<then",
}
_NAMES = {"min_accuracy": "accuracy floor", "max_cost_usd": "cost cap", "max_latency_s": "latency cap"}


moment_options = stacked(
    option(
        "--prefix A,B",
        "Models of the invocations so far; STAGE=A where several stages may come next, and 'STAGE [OUTCOME]=A' with --signals "
        "[default: none].",
        default="",
    ),
    option("--arm STAGE", "The stage that comes next, where several may [default: not known yet]."),
    option("--elapsed-s S", "Seconds since the request arrived [default: the estimate].", SECONDS),
    option("--load ENGINE=S", "Current extra seconds per invocation on an engine; repeatable.", into="loads", multiple=True),
)
"""Keywords of :func:`explained` for the point of a request that is explained."""


def explained(
    trie: Path,
    objective: Objective,
    *,
    signals: bool,
    as_json: bool,
    prefix: str,
    arm: str | None,
    elapsed_s: float | None,
    loads: tuple[str, ...],
) -> None:
    """Plan from one point of a request, and print every possible next step with its best plan and the reason why it was not
    chosen.

    ``prefix`` has the models that have run so far, separated by commas; ``elapsed_s`` are the seconds used so far, None for the
    expected seconds. ``loads`` has the additional seconds of engines, as ``ENGINE=SECONDS``. The possible next steps are each
    model that could run next, and ending the request now. If the graph branches, the steps are shown for each stage that may
    come next, or for the stage ``arm`` only. If no path meets the objective's limits, the limits are relaxed as in serving, and
    the output names them. If requests are split between two plans so that a mean over requests meets a limit, both plans are
    shown with their shares of the requests.
    """
    from vinelm.api.planning import require_signals
    from vinelm.controller import Planner
    from vinelm.vinefile import load_trie

    annotated = require_signals(load_trie(trie)) if signals else load_trie(trie)
    say_changed_prices(annotated.catalog)
    nodes = _nodes(annotated, prefix)
    node = nodes[-1]
    expected_s, expected_usd = _used(annotated, nodes)
    with in_options():
        planner = Planner(annotated)
        here: dict[str, Any] = {
            "node": node,
            "elapsed_s": expected_s if elapsed_s is None else elapsed_s,
            "spent_usd": expected_usd,
            "load": _loads(annotated, loads),
            "stage": None if arm is None else _arm(annotated, node, arm),
        }
        shares: tuple[float, ...] = (1.0,)
        mixture = planner.mixture(objective)
        decisions = [planner.plan(objective, **here)]
        if mixture is not None:
            both = [planner.plan(one, **here) for one in (mixture.low, mixture.high)]
            if both[0].words != both[1].words:  # otherwise the requests of both continue alike from here
                shares, decisions = (1.0 - mixture.share, mixture.share), both
    if elapsed_s is not None and objective.max_latency_s is None:
        raise ConfigError("--elapsed-s has no effect without --max-latency-s: leave it out, or set that bound")
    if as_json:
        _print_json(objective, shares, decisions)
        return
    _show_moment(decisions[0], is_expected=elapsed_s is None)
    for share, decision in zip(shares, decisions, strict=True):
        if share < 1.0:
            say(f"{percent(share)} of the requests follow this plan:", bold=True)
        _show_decision(decision)
    simulated = "Simulated models. " if annotated.meta.get("is_simulated") else ""
    say(f"{simulated}{decisions[0].alternatives_words}")
    if oracle := oracle_words(annotated.template.stop):
        say(oracle)


def _show_decision(decision: Decision) -> None:
    """Print all possible next steps, how far the chosen plan stays below the objective's limits, and the chosen plan itself."""
    _show_alternatives(decision)
    _show_bounds(decision)
    if len(decision.lines(2)) > 1:
        show_tree(decision, "The chosen plan")
    for line in decision.sentences.splitlines():
        say(line)


def _used(annotated: AnnotatedTrie, nodes: list[int]) -> tuple[float, float]:
    """Return the sums of the expected latency in seconds and the expected cost in dollars over the trie's nodes with these
    indices.
    """
    return float(annotated.latency_s[nodes].sum()), float(annotated.cost_usd[nodes].sum())


def _nodes(annotated: AnnotatedTrie, prefix: str) -> list[int]:
    """Return the indices of the trie's nodes along ``prefix``, model names separated by commas, from the root on.

    Raise :class:`ConfigError` with the first name that cannot follow.
    """
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
    """Split ``part``, one element of a prefix such as ``repair=small``, into its stage and its model.

    The stage is None if ``part`` names only a model, which is allowed if only one stage may follow ``node``; otherwise raise
    :class:`ConfigError`.
    """
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
    """Return ``stage`` if it is one of several stages that may follow ``node``. Raise :class:`ConfigError` otherwise."""
    arms = tuple(annotated.trie.arms(node))
    if len(arms) == 1:
        raise ConfigError(f"--arm has no effect: only {arms[0]} may come next: leave it out")
    if stage not in arms:
        able = f"use {', '.join(arms)}" if arms else "the path ends there"
        raise ConfigError(f"--arm {stage}: it cannot come next: {able}")
    return stage


def _loads(annotated: AnnotatedTrie, given: tuple[str, ...]) -> dict[str, float]:
    """Return the additional seconds of engines, by engine, given options in the form ``ENGINE=SECONDS``.

    Raise :class:`ConfigError` for an unknown engine or an invalid number.
    """
    found = {}
    for item in given:
        engine, _, value = item.rpartition("=")
        if engine not in annotated.engines:
            near, known = did_you_mean(engine, annotated.engines), ", ".join(annotated.engines)
            raise ConfigError(f"--load {item}: unknown engine{near}: use ENGINE=SECONDS with one of {known}")
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


def _show_alternatives(decision: Decision) -> None:
    """Print, for every possible next step, the best plan that begins with it, and why that plan was not chosen."""
    hidden = () if stdout().width >= _WIDE else ("plan",)
    shown = [name for name in decision.alternatives_shown if name not in hidden]
    rows: list[list[str]] = []
    stage: str | None = None
    for found in decision.alternatives():
        cells = _cells(decision, found)
        if stage == found.stage and shown[0] == "stage":
            cells["stage"] = ""
        stage = found.stage if decision.annotated.policy == "signals" else None  # their names are long: shown once per branch
        mark = "* " if found.is_chosen else "  "
        rows.append([f"{mark}{cells[shown[0]]}", *(cells[name] for name in shown[1:])])
    titles = ["  next", *(_TITLES[name] for name in shown[1:])]
    show_table(objective_words(decision.request.objective), titles, rows)


def _cells(decision: Decision, found: Alternative) -> dict[str, str]:

    ran = decision.metrics.trie.depth[decision.node]
    return {
        "stage": found.stage or "",
        "next_model": found.next_model or "end here",
        "accuracy": percent(found.accuracy),
        "path_cost_usd": usd(found.path_cost_usd),
        "remaining_s": seconds(found.remaining_s),
        "why": "chosen" if found.is_chosen else found.why,
        "plan": " → ".join(found.plan[ran + 1 :]) or "end",
    }


def _show_bounds(decision: Decision) -> None:
    """Print each limit of the objective: how far the plan stays below it, and the amounts already used and planned, if they are
    known.
    """
    is_used = any(bound.needed is not None for bound in decision.bounds)
    rows = []
    for bound in decision.bounds:
        text, limit = BOUND_TEXTS[bound.name], float(getattr(decision.request.objective, bound.name))
        used = ["" if value is None else text(value) for value in (bound.used, bound.needed)] if is_used else []
        status = "relaxed" if bound.name in decision.relaxed else "binding" if bound.name == decision.binding else ""
        rows.append([_NAMES[bound.name], text(limit), *used, text(decision.slack[bound.name]), status])
    if rows:
        columns = ("bound", "limit", *(("used", "plan") if is_used else ()), "slack", "<status")
        show_table("Bounds of the chosen plan", columns, rows)


def _print_json(objective: Objective, shares: Sequence[float], decisions: Sequence[Decision]) -> None:
    annotated, query = decisions[0].metrics.annotated, decisions[0].request
    load = {} if query.load_s is None else dict(zip(annotated.engines, query.load_s.tolist(), strict=True))
    print_json(
        {
            "objective": objective.to_dict(),
            "is_simulated": annotated.meta.get("is_simulated"),
            "stop": annotated.template.stop,
            "prefix": annotated.trie.prefix(query.node),
            "elapsed_s": query.elapsed_s,
            "spent_usd": query.spent_usd,
            "load": load,
            **(
                _facts(decisions[0])
                if len(decisions) == 1
                else {"mixed_plans": [{"share": w, **_facts(one)} for w, one in zip(shares, decisions, strict=True)]}
            ),
        }
    )


def _facts(decision: Decision) -> dict[str, Any]:
    return {
        "decision": {
            **decision.to_dict(),
            "intervals": decision.intervals,
            "relaxed": decision.relaxed,
            "promise": decision.promise.to_dict(),
        },
        **decision.candidates(),
    }

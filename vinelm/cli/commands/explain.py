"""``vinelm explain``: what a session would choose at one moment of a request, among what, and why the others lose."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.options import json_option, objective_options

if TYPE_CHECKING:
    from vinelm.annotated_trie import AnnotatedTrie
    from vinelm.controller import Decision
    from vinelm.objective import Objective

_WIDE = 110
"""Terminals of so many columns also show how each plan goes on."""
_NAMES = {"min_accuracy": "accuracy floor", "max_cost_usd": "cost cap", "max_latency_s": "latency cap"}


@click.command("explain", short_help="Why this model now: every next step, and why it lost.")
@click.argument("trie", type=click.Path(path_type=Path))
@objective_options
@click.option("--prefix", metavar="A,B", default="", help="Models of the invocations that have run [default: none yet].")
@click.option("--elapsed-s", type=float, metavar="S", help="Seconds since the request arrived [default: as expected].")
@click.option("--spent-usd", type=float, metavar="USD", help="Dollars spent so far [default: as expected].")
@click.option(
    "--load", "loads", multiple=True, metavar="ENGINE=S", help="Extra seconds per invocation on an engine now. Repeatable."
)
@json_option
def command(
    *,
    trie: Path,
    prefix: str,
    elapsed_s: float | None,
    spent_usd: float | None,
    loads: tuple[str, ...],
    as_json: bool,
    **bounds: Any,
) -> None:
    """Plan on from one moment of a request with the trie in the file TRIE, and show every next step.

    For each model that could run next (and for ending at once): the best plan that begins with it, what that is expected to
    achieve, and what speaks against it. Bounds that no path meets give way, as they do when serving, and the output says
    which.

    Example: vinelm explain nl2sql.vine --maximize accuracy --max-latency-s 15 --prefix gemma-27b --elapsed-s 9 --load gpu-1=2.5
    """
    from vinelm.cli.objective_options import in_options, objective_of
    from vinelm.controller import Planner
    from vinelm.vinefile import load_trie

    objective = objective_of(bounds)
    annotated = load_trie(trie)
    node = _node(annotated, prefix)
    with in_options():
        decision = Planner(annotated).plan(
            objective,
            node=node,
            elapsed_s=float(annotated.path_latency_s[node]) if elapsed_s is None else elapsed_s,
            spent_usd=float(annotated.full_cost_usd[node]) if spent_usd is None else spent_usd,
            load=_loads(annotated, loads),
        )
    if as_json:
        _print_json(objective, decision)
        return
    _show_moment(decision, is_expected=elapsed_s is None and spent_usd is None)
    _show_candidates(objective, decision)
    _show_bounds(decision)
    _show_words(annotated, decision)


def _node(annotated: AnnotatedTrie, prefix: str) -> int:
    """The node of the models named, comma between them. :class:`ConfigError` names the first that cannot follow."""
    from vinelm.errors import ConfigError

    trie, node = annotated.trie, 0
    for model in filter(None, (part.strip() for part in prefix.split(","))):
        try:
            node = trie.child(node, model)
        except KeyError:
            able = ", ".join(trie.models[trie.model[child]] for child in trie.children(node))
            where = "/".join(trie.prefix(node)) or "the start"
            after = f"use {able}" if able else "it is the last invocation"
            raise ConfigError(f"--prefix: no invocation of {model!r} follows {where}: {after}") from None
    return node


def _loads(annotated: AnnotatedTrie, given: tuple[str, ...]) -> dict[str, float]:
    """Extra seconds by engine. :class:`ConfigError` for an engine that the trie does not use, or what is no number."""
    from vinelm.errors import ConfigError

    found = {}
    for item in given:
        engine, _, value = item.rpartition("=")
        if engine not in annotated.engines:
            raise ConfigError(f"--load {item}: the trie's engines are {', '.join(annotated.engines)}: write ENGINE=SECONDS")
        try:
            found[engine] = float(value)
        except ValueError:
            raise ConfigError(f"--load {item}: {value!r} is no number of seconds") from None
        if not 0.0 <= found[engine] < float("inf"):
            raise ConfigError(f"--load {item}: it must be finite seconds >= 0")
    return found


def _show_moment(decision: Decision, *, is_expected: bool) -> None:
    from vinelm.cli.console import say
    from vinelm.reports import seconds, usd

    trie, query = decision.metrics.trie, decision.request
    ran = ", ".join(f"{stage} {model}" for stage, model in trie.edges(query.node)) or "nothing"
    expected = ", as expected" if is_expected else ""
    say(f"So far: {ran} has run; {seconds(query.elapsed_s)} and {usd(query.spent_usd)} used{expected}.")
    if query.load_s is not None:
        loaded = ((name, extra) for name, extra in zip(decision.metrics.annotated.engines, query.load_s, strict=True) if extra)
        say(f"Load: {', '.join(f'{name} +{seconds(float(extra))} per invocation' for name, extra in loaded)}.")


def _show_candidates(objective: Objective, decision: Decision) -> None:
    from vinelm.cli.console import show_table, stdout
    from vinelm.controller import alternatives
    from vinelm.reports import objective_words, percent, seconds, usd

    is_wide = stdout().width >= _WIDE
    ran = decision.metrics.trie.depth[decision.node]
    rows = []
    for found in alternatives(decision):
        figures = (percent(found.accuracy), usd(found.path_cost_usd), seconds(found.remaining_s))
        name = found.next_model or "end here"
        then = " → ".join(found.plan[ran + 1 :]) or "end"
        why = "chosen" if found.is_chosen else found.why
        rows.append((f"* {name}" if found.is_chosen else f"  {name}", *figures, why, *([then] if is_wide else [])))
    columns = ("  next", "accuracy", "cost", "to go", "<why", *(["<then"] if is_wide else []))
    show_table(objective_words(objective), columns, rows)


def _show_bounds(decision: Decision) -> None:
    from vinelm.cli.console import show_table
    from vinelm.reports import percent, seconds, usd

    speak = {"min_accuracy": percent, "max_cost_usd": usd, "max_latency_s": seconds}
    view = decision.view
    rows = []
    for bound in view.bounds:
        words, at = speak[bound], decision.target - decision.node
        needed = float(view.values(bound)[at])
        verdict = "gave way" if bound in decision.relaxed else "decides" if bound == decision.binding else ""
        limit = float(getattr(view.objective, bound))
        used = "" if bound == "min_accuracy" else words(view.used(bound))
        rows.append((_NAMES[bound], words(limit), used, words(needed), words(decision.slack[bound]), verdict))
    if rows:
        show_table("What the chosen plan leaves", ("bound", "limit", "used", "plan", "left", "<"), rows)


def _show_words(annotated: AnnotatedTrie, decision: Decision) -> None:
    from vinelm.cli.console import say

    found = decision.intervals.get("accuracy")
    interval = f"Accuracy interval (90 %): {100 * found[0]:.1f} % to {100 * found[1]:.1f} %. " if found else ""
    say(f"{interval}{decision.reason[0].upper()}{decision.reason[1:]}.")
    if decision.request.objective.risk == "dp":
        say("The stochastic program chose; the reasons above compare the steps by their mean times.")
    simulated = "Simulated models. " if annotated.meta.get("is_simulated") else ""
    say(f"{simulated}Cost: expected dollars of the whole request. To go: seconds for a request that goes all the way.")


def _print_json(objective: Objective, decision: Decision) -> None:
    from vinelm.cli.console import print_json
    from vinelm.controller import alternatives

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
            "decision": {**decision.to_dict(), "intervals": decision.intervals, "relaxed": decision.relaxed},
            "used": {bound: decision.view.used(bound) for bound in decision.view.bounds},
            "candidates": [found.to_dict() for found in alternatives(decision)],
        }
    )

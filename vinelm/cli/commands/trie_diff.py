"""``vinelm plan --diff``: shows significant changes between two tries, and which plans change."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vinelm.cli.console import print_json, say, show_table
from vinelm.reports import percent, seconds, usd
from vinelm.reports.formatting import oracle_words

if TYPE_CHECKING:
    from vinelm.evaluation.tries import MovedNode, PlanFlip, TrieDifference

SHOWN = 5
"""How many paths per metric the table shows."""
_TITLES = {"accuracy": "accuracy", "cost": "dollars per request", "latency": "seconds per request"}


def compare(before: Path, after: Path, *, as_json: bool) -> None:
    """Print significant changes between two tries in accuracy, cost and latency, and which plans change.

    A path is named only if two independent estimates with the same standard errors would rarely differ so strongly (false
    discovery rate 5 % over all paths). The plans shown have the highest accuracy within limits on the mean cost per request. If
    the graph branches, routes through the graph are compared instead of paths. If one node of a trie stands for several
    sequences of earlier calls, only the plans are compared. The table has the five most changed paths of each metric; JSON has
    all.

    Args:
        before: The file of the first trie.
        after: The file of the second trie.
        as_json: Whether to print JSON instead of a table.
    """
    from vinelm.evaluation.tries import compare_tries
    from vinelm.vinefile import load_trie

    show_difference(compare_tries(load_trie(before), load_trie(after)), as_json=as_json)


def show_difference(found: TrieDifference, *, as_json: bool, top: int = SHOWN, more: Mapping[str, Any] | None = None) -> None:
    """Print a comparison with at most ``top`` paths per metric; with ``as_json``, print one JSON object with all paths.

    ``more`` has additional keys and values for the JSON object.
    """
    if as_json:
        print_json({**(more or {}), **_plain(found)})
        return
    only = [f"{found.only_before:,} only before"] if found.only_before else []
    only += [f"{found.only_after:,} only after"] if found.only_after else []
    say(f"{found.common:,} common paths{''.join(', ' + part for part in only)}.")
    if found.prices:
        _show_prices(found)
    if found.has_same_answers:
        say("Both were estimated from the same answers: accuracies are equal, and no difference in dollars is noise.")
    if not found.metrics:
        say("Where histories are merged no single path leads to an invocation: the plans are compared.")
    _show_moved(found, top)
    _show_flips(found.flips)
    if oracle := oracle_words(found.stop):
        say(oracle)


def _show_prices(found: TrieDifference) -> None:
    rows = [
        (name, *(f"{getattr(price, rate):g}" for rate in ("input", "output") for price in pair))
        for name, pair in found.prices.items()
    ]
    show_table("New prices", ("model", "$/M in, before", "after", "$/M out, before", "after"), rows)


def _show_moved(found: TrieDifference, top: int) -> None:
    figure = {"accuracy": percent, "cost": usd, "latency": seconds}
    for metric, moved in found.metrics.items():
        if not moved.tested:
            if not isnan(moved.mean):  # otherwise the seconds are unknown
                say(f"{_TITLES[metric].capitalize()}: not tested, an estimator gives no standard errors.")
            continue
        noise = "differ" if found.has_same_answers else "moved beyond noise"
        mean = f"{100 * moved.mean:+.1f} points" if metric == "accuracy" else f"{moved.mean:+.3g}"
        say(f"{_TITLES[metric].capitalize()}: {len(moved.moved):,} of {moved.tested:,} paths {noise}; {mean} on average.")
        rows = [_cells(node, figure[metric], scale=100.0 if metric == "accuracy" else 1.0) for node in moved.moved[:top]]
        if rows:
            title = f"{_TITLES[metric].capitalize()}: the {len(rows)} that moved most"
            show_table(title, ("path", "before", "after", "difference", "+/-"), rows)


def _cells(node: MovedNode, figure: Any, *, scale: float) -> tuple[str, ...]:
    from vinelm.plans.promise import Z90

    width = "-" if node.standard_error is None else f"{scale * Z90 * node.standard_error:.3g}"
    return " > ".join(node.path), figure(node.before), figure(node.after), f"{scale * (node.after - node.before):+.3g}", width


def _show_flips(flips: tuple[PlanFlip, ...]) -> None:
    if not flips:
        say("No plan changes: for every cap on the dollars of a request the most accurate plan is the same.")
        return
    rows = []
    for flip in flips:
        caps = usd(flip.min_cap_usd)
        caps += "" if flip.min_cap_usd == flip.max_cap_usd else f" to {usd(flip.max_cap_usd)}"
        gain = "-" if flip.gain is None else f"{100 * flip.gain:+.1f}"
        rows.append((caps, " > ".join(flip.before), " > ".join(flip.after), gain, flip.why))
    clear = sum(flip.why != "within noise" for flip in flips)
    caption = (
        "Points: accuracy of the new plan less that of the old one, by the second trie. Over the cap: there the old plan costs "
        "more than the smallest cap of the row."
    )
    show_table(
        f"Plans that change: {len(flips)}, {clear} for more than noise",
        ("cost <=", "<before", "<after", "points", "<why"),
        rows,
        caption=caption,
    )


def _plain(found: TrieDifference) -> dict[str, Any]:
    def node(one: MovedNode) -> dict[str, Any]:
        figures = {name: getattr(one, name) for name in ("before", "after", "standard_error")}
        return {"path": list(one.path), **figures}

    def flip(one: PlanFlip) -> dict[str, Any]:
        names = ("min_cap_usd", "max_cap_usd", "gain", "standard_error", "old_cost_usd", "why")
        return {"before": list(one.before), "after": list(one.after), **{name: getattr(one, name) for name in names}}

    return {
        **{name: getattr(found, name) for name in ("stop", "common", "only_before", "only_after", "has_same_answers")},
        "prices": {
            name: {"before": pair[0].model_dump(mode="json"), "after": pair[1].model_dump(mode="json")}
            for name, pair in found.prices.items()
        },
        "metrics": {
            name: {
                "tested": moved.tested,
                "mean": None if isnan(moved.mean) else moved.mean,
                "moved": [node(one) for one in moved.moved],
            }
            for name, moved in found.metrics.items()
        },
        "flips": [flip(one) for one in found.flips],
    }

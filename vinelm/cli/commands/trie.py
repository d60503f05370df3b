"""``vinelm trie``: inspect and compare the annotated trie in a ``.vine`` file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.commands.trie_diff import command as diff_command
from vinelm.cli.console import echo, print_json, show_table
from vinelm.cli.contingent_output import arm_facts, frontier_rows, show_arms, show_frontier, thinned
from vinelm.cli.options import SuggestingGroup, json_option, option, path_argument
from vinelm.reports import percent, seconds, usd

if TYPE_CHECKING:
    from vinelm.trie.annotated_trie import AnnotatedTrie

SHOWN = (
    "workflow",
    "estimator",
    "stop",
    "requests",
    "observations",
    "observations_by_depth",
    "coverage",
    "spent_usd",
    "vinelm",
)
"""Keys of the provenance in the table; ``--json`` has all of them."""


@click.group("trie", cls=SuggestingGroup, short_help="Inspect and compare annotated tries.")
def command() -> None:
    """Inspect and compare the annotated tries that `vinelm estimate` writes.

    These commands call no model.

    Example: vinelm trie show nl2sql.vine
    """


@command.command("show", short_help="Show provenance, counts, prices and the best paths.")
@path_argument("file")
@option("--top N", "Maximum number of frontier paths to show.", click.IntRange(min=1), default=15)
@json_option
def show(*, file: Path, top: int, as_json: bool) -> None:
    """Show the provenance of the trie in FILE, its observations by depth, its models' prices, and its best paths.

    The best paths are the Pareto frontier of accuracy and cost, cheapest first. Where the graph branches, they are contingent
    plans, with a model for each way that a request may take, and a table shows how often each stage follows another.

    Example: vinelm trie show nl2sql.vine
    """
    from vinelm.vinefile import load_trie

    annotated = load_trie(file)
    if as_json:
        print_json(_everything(annotated, file, top))
        return
    _show(annotated, file, top)


def _path(annotated: AnnotatedTrie, node: int) -> dict[str, Any]:
    """Return one path's annotations; the 90th percentiles are of a request in which every invocation runs, at zero load."""
    from vinelm.plans.promise import Z90

    error = annotated.accuracy_se
    return {
        "path": list(annotated.trie.prefix(node)),
        "accuracy": float(annotated.accuracy[node]),
        "accuracy_half_width90": None if error is None else float(Z90 * error[node]),
        "cost_usd": float(annotated.path_cost_usd[node]),
        "latency_s": float(annotated.path_latency_s[node]) if annotated.knows_latency else None,
        "latency_p90_s": float(annotated.path_latency_quantile(0.9)[node]) if annotated.knows_latency else None,
        "full_cost_p90_usd": float(annotated.full_cost_quantile(0.9)[node]),
        "observations": None if annotated.count is None else int(annotated.count[node]),
    }


def _everything(annotated: AnnotatedTrie, file: Path, top: int) -> dict[str, Any]:
    from vinelm.estimator.prompt_cache import follow_ups
    from vinelm.evaluation.plans.pareto import frontier_nodes

    trie = annotated.trie
    if not annotated.is_contingent:
        paths = frontier_nodes(annotated, "cost")
        best = {"frontier_paths": len(paths), "frontier": [_path(annotated, node) for node in thinned(paths, top)]}
    else:
        best = {"arms": arm_facts(annotated), "frontier": frontier_rows(annotated, top)[0]}
    return {
        "file": str(file),
        "paths": trie.n_nodes,
        "depth": trie.max_depth,
        "stages": list(trie.stages),
        "template": annotated.template.to_dict(),
        "catalog": annotated.catalog.to_dict(),
        "meta": dict(annotated.meta),
        "depths": depths(annotated),
        "follow_ups": follow_ups(annotated),
        "signals": signals_facts(annotated.signals),
        **best,
    }


def depths(annotated: AnnotatedTrie) -> list[dict[str, Any]]:
    """Return, per depth and stage, the number of paths (histories), observed ones and observations, and the accuracies' range.

    ``accuracy_min`` and ``accuracy_max`` are of the answer there; None where the workflow holds none.
    """
    trie, rows = annotated.trie, []
    for depth, level in enumerate(trie.levels[1:], start=1):
        for index in sorted(set(trie.stage[level].tolist())):
            nodes = level[trie.stage[level] == index]
            counts = annotated.count[nodes] if annotated.count is not None else None
            accuracy = annotated.answer_accuracy[nodes] if trie.answerable[nodes].any() else None
            rows.append(
                {
                    "depth": depth,
                    "stage": trie.stages[index],
                    "paths": len(nodes),
                    "paths_observed": None if counts is None else int((counts > 0).sum()),
                    "observations": None if counts is None else int(counts.sum()),
                    "accuracy_min": None if accuracy is None else float(accuracy.min()),
                    "accuracy_max": None if accuracy is None else float(accuracy.max()),
                }
            )
    return rows


def signals_facts(signals: AnnotatedTrie | None) -> dict[str, Any] | None:
    """Return what the trie of what requests show holds, as plain JSON types; None where there is none."""
    if signals is None or signals.outcomes is None:
        return None
    outcomes = signals.outcomes
    return {
        "histories": signals.trie.n_nodes,
        "answers": signals.meta["answers"],
        "labels": [{"is_passed": label.passed, "signal": label.signal} for label in outcomes.labels],
        "goes_on": outcomes.goes_on,
    }


def signals_words(signals: AnnotatedTrie) -> str:
    """Return the same in words."""
    facts, outcomes = signals_facts(signals), signals.outcomes
    assert facts is not None
    assert outcomes is not None
    labels = "; ".join(map(str, outcomes.labels))
    offered = "offered" if facts["goes_on"] else "not offered, no row was bought there"
    return (
        f"{facts['histories']:,} histories of {facts['answers']:,} answers that show {labels}; going on below a passed check "
        f"is {offered}"
    )


# -- tables ----------------------------------------------------------------------------------------------------


def _show(annotated: AnnotatedTrie, file: Path, top: int) -> None:
    meta = annotated.meta
    rows = [(name, _formatted(name, meta[name])) for name in SHOWN if name in meta]
    if annotated.signals is not None:
        rows.append(("signals", signals_words(annotated.signals)))
    show_table(f"{file.name}: {annotated.trie.n_nodes:,} paths", ("provenance", "<value"), rows)
    has_stages = len(depths(annotated)) > annotated.trie.max_depth
    show_depths(annotated, f"{annotated.noun.capitalize()} by depth{' and stage' if has_stages else ''}")
    show_arms(annotated)
    _show_models(annotated)
    _show_follow_ups(annotated)
    if not annotated.is_contingent:
        _show_frontier(annotated, top)
    else:
        show_frontier(annotated, top)
    if meta.get("is_simulated"):
        echo("Simulated models: prices and answers are not those of real models.")


def _formatted(name: str, value: Any) -> str:
    if name == "coverage":
        return percent(value)
    return usd(value) if name.endswith("_usd") else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def show_depths(annotated: AnnotatedTrie, title: str) -> None:
    """Print the figures of :func:`depths` as a table."""
    columns = ("depth", "<stage", annotated.noun, "observed", "observations", "lowest accuracy", "highest")
    rows = [
        (
            str(row["depth"]),
            row["stage"],
            f"{row['paths']:,}",
            _count(row["paths_observed"]),
            _count(row["observations"]),
            percent(row["accuracy_min"]),
            percent(row["accuracy_max"]),
        )
        for row in depths(annotated)
    ]
    show_table(title, columns, rows)


def _show_models(annotated: AnnotatedTrie) -> None:
    has_calls = any(annotated.catalog[name].price.call for name in annotated.trie.models)
    rows = []
    for name in annotated.trie.models:
        model = annotated.catalog[name]
        price = model.price
        per_call = [usd(price.call)] if has_calls else []
        rows.append((name, model.engine, f"{price.input:g}", f"{price.output:g}", *per_call, str(price.as_of)))
    columns = ("model", "<engine", "$/M in", "$/M out", *(["$/call"] if has_calls else []), "as of")
    show_table("Prices of the observations", columns, rows)


def _show_follow_ups(annotated: AnnotatedTrie) -> None:
    """Print what it saves to keep a model for the next invocation, for models with cached prompt tokens."""
    from vinelm.estimator.prompt_cache import follow_ups

    shares = annotated.meta.get("cached_share", {})
    rows = []
    for row in follow_ups(annotated):
        cached = shares.get(row["model"], {}).get("kept")
        if cached:
            cost = (usd(row["switched_cost_usd"]), usd(row["kept_cost_usd"]))
            rows.append(
                (row["model"], percent(cached), *cost, *map(seconds, (row["switched_latency_s"], row["kept_latency_s"])))
            )
    if rows:
        columns = ("model", "cached", "switched", "kept", "switched", "kept")
        caption = (
            "Dollars and seconds of a later invocation, after another model (switched) and after the same model (kept). "
            "cached: fraction of prompt tokens from its cache if kept."
        )
        show_table("Savings from keeping a model", columns, rows, caption=caption)


def _show_frontier(annotated: AnnotatedTrie, top: int) -> None:
    from vinelm.evaluation.plans.pareto import frontier_nodes

    paths = frontier_nodes(annotated, "cost")
    rows = []
    for node in thinned(paths, top):
        found = _path(annotated, node)
        width = found["accuracy_half_width90"]
        interval = "-" if width is None else f"{100 * width:.1f}"
        figures = (percent(found["accuracy"]), interval, usd(found["cost_usd"]), seconds(found["latency_p90_s"]))
        rows.append((" > ".join(found["path"]), *figures, _count(found["observations"])))
    title = f"Pareto frontier of accuracy and cost: {min(top, len(paths))} of {len(paths)} paths"
    caption = "+/-: half of the 90 % interval, in points. p90: 90th percentile of the latency if every invocation runs."
    show_table(title, ("path", "accuracy", "+/-", "cost", "p90", "rows"), rows, caption=caption)


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


command.add_command(diff_command)

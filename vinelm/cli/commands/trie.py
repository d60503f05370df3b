"""``vinelm plan --show``: shows the contents of the annotated trie in a ``.vine`` file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vinelm.cli.console import echo, print_json, say, show_table
from vinelm.cli.contingent_output import arm_facts, show_arms, show_frontier
from vinelm.reports import percent, seconds, usd
from vinelm.reports.formatting import oracle_words

if TYPE_CHECKING:
    from vinelm.trie.annotated_trie import AnnotatedTrie, SignalTrie

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
"""Provenance keys shown in the table; ``--json`` has all of them."""
_MOST_PLANS = 15
"""How many plans of the frontier are shown."""


def show_trie(file: Path, *, as_json: bool) -> None:
    """Print the contents of a trie file: its provenance, the number of results by depth, the models' prices, and the best
    paths.

    The best paths are the Pareto frontier of accuracy and cost, cheapest first. If the graph branches, they are plans with a
    model for each route that a request may take. A table then also shows how often each stage follows another.
    """
    from vinelm.vinefile import load_trie

    annotated = load_trie(file)
    if as_json:
        print_json(_everything(annotated, file))
        return
    _show(annotated, file)


def _everything(annotated: AnnotatedTrie, file: Path) -> dict[str, Any]:
    from vinelm.estimator.prompt_cache import follow_ups
    from vinelm.evaluation.plans.plans_over import plans_over

    trie, found = annotated.trie, plans_over(annotated).frontier(_MOST_PLANS)
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
        "arms": arm_facts(annotated),
        "frontier_paths": found.n_plans,
        "frontier": found.rows,
    }


def depths(annotated: AnnotatedTrie) -> list[dict[str, Any]]:
    """Return a table row for each depth of the trie (the number of calls so far) and each stage, as a dictionary.

    The keys are ``depth``, ``stage``, ``paths``, ``paths_observed``, ``observations`` (the number of results), ``accuracy_min``
    and ``accuracy_max``. The accuracies are of answers at that depth; they are None if the workflow has no answer yet.
    """
    trie, rows = annotated.trie, []
    for depth, level in enumerate(trie.levels[1:], start=1):
        for index in sorted(set(trie.stage[level].tolist())):
            nodes = level[trie.stage[level] == index]
            counts = annotated.count[nodes] if annotated.count is not None else None
            accuracy = annotated.reading.answer_accuracy[nodes] if trie.answerable[nodes].any() else None
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


def signals_facts(signals: SignalTrie | None) -> dict[str, Any] | None:
    """Return the size and the outcomes of a trie over signals (what calls show without the label) as JSON types; None without
    such a trie.

    The keys are ``histories`` (number of the trie's sequences of models and outcomes), ``answers`` (number of answers),
    ``labels`` (the possible outcomes of a call), and ``goes_on`` (whether plans may continue after a passed check).
    """
    if signals is None:
        return None
    outcomes = signals.outcomes
    return {
        "histories": signals.trie.n_nodes,
        "answers": signals.meta["answers"],
        "labels": [{"is_passed": label.passed, "signal": label.signal} for label in outcomes.labels],
        "goes_on": outcomes.goes_on,
    }


def signals_words(signals: SignalTrie) -> str:
    """Return one line of text on a trie over signals, with the facts of :func:`signals_facts`.

    These are the numbers of histories and answers, the possible outcomes of a call, and whether plans may continue after a
    passed check.
    """
    labels = "; ".join(map(str, signals.outcomes.labels))
    offered = "offered" if signals.outcomes.goes_on else "not offered, no row was bought there"
    return (
        f"{signals.trie.n_nodes:,} histories of {signals.meta['answers']:,} answers that show {labels}; going on below a "
        f"passed check is {offered}"
    )


# -- tables ----------------------------------------------------------------------------------------------------


def _show(annotated: AnnotatedTrie, file: Path) -> None:
    from vinelm.evaluation.plans.plans_over import plans_over

    meta = annotated.meta
    shown = {**meta, "spent_usd": meta["paid_usd"]} if "paid_usd" in meta else meta
    rows = [(name, _formatted(name, shown[name])) for name in SHOWN if name in shown]
    if annotated.signals is not None:
        rows.append(("signals", signals_words(annotated.signals)))
    show_table(f"{file.name}: {annotated.trie.n_nodes:,} paths", ("provenance", "<value"), rows)
    has_stages = len(depths(annotated)) > annotated.trie.max_depth
    show_depths(annotated, f"{annotated.reading.noun.capitalize()} by depth{' and stage' if has_stages else ''}")
    show_arms(annotated)
    _show_models(annotated)
    _show_follow_ups(annotated)
    show_frontier(plans_over(annotated).frontier(_MOST_PLANS))
    if meta.get("is_simulated"):
        echo("Simulated models: prices and answers are not those of real models.")
    if oracle := oracle_words(annotated.template.stop):
        say(oracle)


def _formatted(name: str, value: Any) -> str:
    if name == "coverage":
        return percent(value)
    return usd(value) if name.endswith("_usd") else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def show_depths(annotated: AnnotatedTrie, title: str) -> None:
    """Print the result of :func:`depths` as a table."""
    columns = ("depth", "<stage", annotated.reading.noun, "observed", "observations", "lowest accuracy", "highest")
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
    """Print a table of the cost and latency of later calls, after a call of the same model and after a call of another model.

    The table is for models that reuse cached prompt tokens; print nothing without such models.
    """
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


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"

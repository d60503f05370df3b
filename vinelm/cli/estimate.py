"""``vinelm estimate``: observations in, annotated trie out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.options import estimator_option, output_options, stop_option

if TYPE_CHECKING:
    from vinelm.annotated import AnnotatedTrie


@click.command("estimate", short_help="Turn observations into an annotated trie.")
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="VINE", help="Trie file to write [default: STORE with .vine]."
)
@estimator_option
@stop_option
@output_options
def command(*, store: Path, output: Path | None, estimator: str, stop: str | None, as_json: bool, quiet: bool) -> None:
    """Estimate what every sequence of model choices achieves, from the observations in STORE.

    Writes an annotated trie: accuracy, dollars and seconds of every path, also of those that few requests or none were run on.

    Example: vinelm estimate runs/nl2sql.db -o nl2sql.vine
    """
    from vinelm.report.estimation import estimate_store
    from vinelm.vinefile import save_trie

    annotated = estimate_store(store, estimator=estimator, stop=stop)
    target = output or store.with_suffix(".vine")
    save_trie(target, annotated)
    if as_json:
        from vinelm.cli.console import print_json

        print_json({"trie": str(target), "paths": annotated.trie.n_nodes, **annotated.meta, "depths": _depths(annotated)})
        return
    _show(annotated, target)


def _depths(annotated: AnnotatedTrie) -> list[dict[str, Any]]:
    """Per depth: its stage, how many paths there are, how many were observed, by how many rows, and the spread of accuracy."""
    trie, rows = annotated.trie, []
    for depth, level in enumerate(trie.levels[1:], start=1):
        counts = annotated.count[level] if annotated.count is not None else None
        accuracy = annotated.accuracy[level]
        rows.append(
            {
                "depth": depth,
                "stage": trie.stages[trie.stage[level[0]]],
                "paths": len(level),
                "paths_observed": None if counts is None else int((counts > 0).sum()),
                "observations": None if counts is None else int(counts.sum()),
                "accuracy_min": float(accuracy.min()),
                "accuracy_max": float(accuracy.max()),
            }
        )
    return rows


def _show(annotated: AnnotatedTrie, target: Path) -> None:
    from vinelm.cli.console import say, show_table
    from vinelm.report.words import percent

    meta = annotated.meta
    show_table(
        f"{meta['workflow']}: {annotated.trie.n_nodes:,} paths from {meta['observations']:,} observations",
        ("depth", "<stage", "paths", "observed", "observations", "lowest accuracy", "highest"),
        [
            (
                str(row["depth"]), row["stage"], f"{row['paths']:,}", _count(row["paths_observed"]),
                _count(row["observations"]), percent(row["accuracy_min"]), percent(row["accuracy_max"]),
            )
            for row in _depths(annotated)
        ],
    )  # fmt: skip
    simulated = " Simulated models." if meta["is_simulated"] else ""
    say(
        f"{meta['requests']} of {meta['requests_registered']} requests, {percent(meta['coverage'])} of the cost of running "
        f"everything (estimated); stop rule: {meta['stop']}; estimator: {meta['estimator']}.{simulated}"
    )
    click.echo(f"wrote {target}")


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"

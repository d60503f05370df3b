"""``vinelm estimate``: observations in, annotated trie out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.options import estimator_option, output_options, stop_option

if TYPE_CHECKING:
    from vinelm.annotated_trie import AnnotatedTrie


@click.command("estimate", short_help="Turn observations into an annotated trie.")
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="VINE", help="Trie file to write [default: STORE with .vine]."
)
@estimator_option
@stop_option
@click.option(
    "--max-error", type=float, default=0.15, show_default=True, metavar="FRACTION",
    help="Refuse where the best path's accuracy is known less well: half of its 90 % interval. 1 never refuses.",
)  # fmt: skip
@click.option(
    "--check/--no-check",
    default=True,
    help="Held-out error, optimism, other estimators' opinion; --no-check: none, and nothing is refused [default: check].",
)
@output_options
def command(
    *,
    store: Path,
    output: Path | None,
    estimator: str,
    stop: str | None,
    max_error: float,
    check: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Estimate what every sequence of model choices achieves, from the observations in STORE.

    Writes an annotated trie: accuracy, dollars and seconds of every path, also of those that few requests or none were run on.
    Says how far to trust it: each half of the requests is predicted from the other. Exit code 1, with what would settle it, if
    the evidence is too thin; nothing is written then.

    Example: vinelm estimate runs/nl2sql.db -o nl2sql.vine
    """
    from vinelm.api import estimate_store
    from vinelm.cli.inputs import refuse_other_file, refuse_replacing
    from vinelm.vinefile import save_trie

    target = output or store.with_suffix(".vine")
    refuse_replacing(target, store)
    refuse_other_file(target)
    annotated = estimate_store(store, estimator=estimator, stop=stop, checked=check, max_error=max_error)
    save_trie(target, annotated)
    if as_json:
        from vinelm.cli.commands.trie import depths
        from vinelm.cli.console import print_json

        print_json({"trie": str(target), "paths": annotated.trie.n_nodes, **annotated.meta, "depths": depths(annotated)})
        return
    _show(annotated, target)
    for warning in annotated.meta.get("evidence", {}).get("warnings", ()):
        click.echo(f"warning: {warning}", err=True)


def _show(annotated: AnnotatedTrie, target: Path) -> None:
    from vinelm.cli.commands.trie import show_depths
    from vinelm.cli.console import say
    from vinelm.reports import percent

    meta = annotated.meta
    show_depths(annotated, f"{meta['workflow']}: {annotated.trie.n_nodes:,} paths from {meta['observations']:,} observations")
    simulated = " Simulated models." if meta["is_simulated"] else ""
    say(
        f"{meta['requests']} of {meta['requests_registered']} requests, {percent(meta['coverage'])} of the cost of running "
        f"everything (estimated); stop rule: {meta['stop']}; estimator: {meta['estimator']}.{simulated}"
    )
    if "evidence" in meta:
        _show_evidence(meta["evidence"])
    click.echo(f"wrote {target}")


def _show_evidence(found: Mapping[str, Any]) -> None:
    from vinelm.cli.console import say, show_table
    from vinelm.reports import percent

    rows = [
        (
            str(check["depth"]), f"{check['rows']:,}", percent(check["predicted"]), percent(check["observed"]),
            f"{_points(check['observed'] - check['predicted'])} +/- {100 * check['standard_error']:.1f}",
        )
        for check in found["depths"]
    ]  # fmt: skip
    title = "Held out (either half of the requests from the other)"
    show_table(title, ("depth", "rows", "predicted", "observed", "difference (points)"), rows)
    best, width = percent(found["best_accuracy"]), 100 * found["best_half_width"]
    say(f"Best path: {best}, known to +/- {width:.1f} points (90 % interval).")
    if found["held_out_error"] is not None:
        say(
            f"Held-out error of a path's own rate: {100 * found['held_out_error']:.1f} points, sampling noise taken out "
            f"({found['held_out_nodes']:,} rates)."
        )
    if found["optimism"] is not None:
        say(
            "Optimism of picking the best of many: one half's best paths promise "
            f"{_points(found['optimism'])} points against what the other half says of them."
        )
    for other in found["disagreements"]:
        say(
            f"Another opinion ({other['estimator']}): {100 * other['mean_abs']:.1f} points apart on average, "
            f"{_points(other['at_best'])} at the best path."
        )


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"

"""``vinelm estimate``: fits an annotated trie to the results in a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo, print_json, say, show_table
from vinelm.cli.declared import declared
from vinelm.cli.inputs import is_trie_file, refuse_other_file, refuse_replacing, say_changed_prices
from vinelm.cli.options import option, output_options, store_argument
from vinelm.cli.verdict_output import show_verdict
from vinelm.errors import ConfigError, StoreError
from vinelm.io.file_kinds import TRIE, instead_of, what_is
from vinelm.reports import percent

if TYPE_CHECKING:
    from vinelm.trie.annotated_trie import AnnotatedTrie


@click.command("estimate", short_help="Estimate accuracy, cost and latency of every path.")
@store_argument
@option("-o --output VINE", "Trie file to write [default: STORE with .vine].", Path)
@declared("vinelm.api.estimation:estimate")
@option(
    "--update DB",
    "Fold in the served rows of this store: stops, dollars and seconds as they are now. STORE may then be a trie, which "
    "is updated as it is, by default in place.",
    Path,
)
@output_options
def command(
    *,
    store: Path,
    output: Path | None,
    update: Path | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Estimate the accuracy, cost and latency of every sequence of model choices from the observations in STORE.

    Writes an annotated trie, which also covers paths with few observations or none. Validates it by predicting each half of the
    requests from the other half. This also measures by how much the best of many estimates is too optimistic, for which `vinelm
    plan` corrects. Finally it decides whether to switch from what runs today, or else from the strongest single model. The file
    contains this verdict, and a service follows it. Exit code 1 if there are too few observations for --max-error; nothing is
    written then, and the message says how to get more.

    Example: vinelm estimate runs/nl2sql.db -o nl2sql.vine

    Example: vinelm estimate app.db --stop workflow --max-error 1 --max-loss 1 --calls-per-hour 300

    Example: vinelm estimate app.db --estimator latent --no-check
    """
    from vinelm.api import estimate
    from vinelm.api import update as fold_in
    from vinelm.api.drift import served_per_hour
    from vinelm.api.estimation import why_paths_only
    from vinelm.vinefile import load_trie, save_trie

    target = output or store.with_suffix(".vine")
    is_updated = update is not None and is_trie_file(store)
    if not is_updated:
        if what_is(store) == TRIE:  # the default name is also that of the output
            raise StoreError(f"{store}: {instead_of(store, 'a store', '`vinelm profile`')}", code="other-file")
        refuse_replacing(target, store)
    refuse_other_file(target)
    if is_updated:
        unused = ("stop", "max_error", "calls_per_hour", "max_loss")
        if any(given[name] is not None for name in unused):
            raise ConfigError(
                "stop, max_error, calls_per_hour and max_loss have no effect on a trie that is updated as it is: leave them out"
            )
        annotated = load_trie(store)
    else:
        if given["calls_per_hour"] is None and update is not None:
            given["calls_per_hour"] = served_per_hour(update)
        annotated = estimate(store, **given)
    if update is not None:
        annotated = fold_in(annotated, update)
    save_trie(target, annotated)
    say_changed_prices(annotated.catalog)
    if is_updated:
        _show_update(annotated, target, as_json=as_json)
        return
    if as_json:
        from vinelm.cli.commands.trie import depths, signals_facts

        signals = {"signals": signals_facts(annotated.signals), "paths_only": why_paths_only(store, annotated)}
        facts = {"trie": str(target), "paths": annotated.trie.n_nodes, **annotated.meta, **signals}
        facts |= {} if annotated.verdict is None else {"verdict": annotated.verdict.to_dict()}
        print_json({**facts, "depths": depths(annotated)})
        return
    _show(annotated, target, why_paths_only(store, annotated))
    for warning in annotated.meta.get("evidence", {}).get("warnings", ()):
        echo(f"warning: {warning}", err=True)


def _show_update(annotated: AnnotatedTrie, target: Path, *, as_json: bool) -> None:
    facts = annotated.meta["updated"]
    if as_json:
        print_json({"trie": str(target), "updated": facts})
        return
    rows = f"{facts['rows']:,} rows of {facts['requests']:,} served requests"
    say(f"{rows} folded in; half-life: {facts['half_life']:g} requests.")
    echo(f"wrote {target}")


def _show(annotated: AnnotatedTrie, target: Path, paths_only: str | None) -> None:
    from vinelm.cli.commands.trie import show_depths, signals_words
    from vinelm.reports.formatting import oracle_words, prompt_cache_words
    from vinelm.reports.store_text import judge_words, today_words

    meta = annotated.meta
    show_depths(annotated, f"{meta['workflow']}: {annotated.trie.n_nodes:,} paths from {meta['observations']:,} observations")
    simulated = " Simulated models." if meta["is_simulated"] else ""
    say(
        f"{meta['requests']} of {meta['requests_registered']} requests; {percent(meta['coverage'])} of the estimated cost of "
        f"executing every cell; stop rule: {meta['stop']}; estimator: {meta['estimator']}.{simulated}"
    )
    if "timed_rows" in meta:
        none = " Plans know no seconds, and cannot keep a bound on them." if not meta["timed_rows"] else ""
        say(
            f"Seconds come from {meta['timed_rows']:,} of the {meta['observations']:,} rows: of the others they are not known. "
            f"Rows that were bought in batches count at the ordinary price.{none}"
        )
    if "judge" in meta:
        say(judge_words(meta["judge"], has_common_error=annotated.reading.holds_common_errors))
    if "as_today" in meta:
        say(today_words(meta["as_today"]))
    if "evidence" in meta:
        _show_evidence(meta["evidence"])
    if oracle := oracle_words(annotated.template.stop):
        say(oracle)
    if cache := prompt_cache_words(annotated.calls_per_hour):
        say(cache)
    say(f"Signals: {paths_only or (annotated.signals and signals_words(annotated.signals))}.")
    if annotated.verdict is not None:
        show_verdict(annotated.verdict)
    echo(f"wrote {target}")


def _show_evidence(found: Mapping[str, Any]) -> None:
    rows = [
        (
            str(check["depth"]),
            f"{check['rows']:,}",
            percent(check["predicted"]),
            percent(check["observed"]),
            f"{_points(check['observed'] - check['predicted'])} +/- {100 * check['standard_error']:.1f}",
        )
        for check in found["depths"]
    ]
    title = "Validation: each half of the requests predicted from the other half"
    show_table(title, ("depth", "rows", "predicted", "observed", "difference (points)"), rows)
    best, width = percent(found["best_accuracy"]), 100 * found["best_half_width"]
    promised = percent(found["best_promised"])
    say(f"Best path: {promised} promised accuracy ({best} estimated), +/- {width:.1f} points (90 % interval).")
    if found["held_out_error"] is not None:
        say(
            f"Held-out error of a path's accuracy: {100 * found['held_out_error']:.1f} points, net of sampling noise "
            f"({found['held_out_nodes']:,} paths)."
        )
    if found["optimism"] is not None:
        say(
            "Optimism: the best paths by one half of the requests are estimated "
            f"{_points(found['optimism'])} points higher than by the other half, on average over cost "
            "caps. Promises allow for it."
        )
    for other in found["disagreements"]:
        say(
            f"Estimator {other['estimator']} differs by {100 * other['mean_abs']:.1f} points on average, and by "
            f"{_points(other['at_best'])} points at the best path."
        )


def _points(value: float) -> str:
    return f"{100 * value:+.1f}"

"""``vinelm drift``: finds the estimates of a trie that no longer hold for the requests that were served."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vinelm.cli.console import echo, print_json, say, show_table
from vinelm.cli.options import json_option, option, trie_argument
from vinelm.cli.quantities import FRACTION
from vinelm.reports import percent, seconds, usd

if TYPE_CHECKING:
    from vinelm.api import Remedy
    from vinelm.estimator import DriftReport, Moved


@click.command("drift", short_help="Say which annotations of a trie no longer hold for served requests.")
@trie_argument
@option("--traces DB", "Store of served rows, as VineLM(evidence=DB) writes it.", Path, required=True)
@option("--alpha FRACTION", "Chance of ever naming anything although nothing has moved.", FRACTION, default=0.05)
@json_option
def command(*, trie: Path, traces: Path, alpha: float, as_json: bool) -> int | None:
    """Compare the served results in DB with the estimates of the TRIE that served them, and name the estimates that no longer
    hold.

    Run the command as often as you like: the tests are sequential. If no estimate has become wrong, the chance that any is ever
    named is at most --alpha. The output also has the cheapest command that corrects the trie, and its price. Calls no model.
    Exit code 1 if an estimate no longer holds. An estimate holds if it is off by at most a tolerance, which is set in Python:
    vinelm.api.drift(..., DriftConfig(points=, relative=)).

    Example: vinelm drift nl2sql.vine --traces served.db

    Example: vinelm drift app.vine --traces served.db --alpha 1%
    """
    from vinelm.api import drift
    from vinelm.api.drift import cheapest_remedy
    from vinelm.estimator import DriftConfig
    from vinelm.vinefile import load_trie

    annotated = load_trie(trie)
    found = drift(annotated, traces, DriftConfig(alpha=alpha))
    remedy = cheapest_remedy(annotated, found.moved, trie, traces)
    if as_json:
        print_json({"trie": str(trie), **found.to_dict(), "remedy": None if remedy is None else remedy.to_dict()})
    else:
        _show(found, remedy)
    return 1 if found.moved else None


def _show(found: DriftReport, remedy: Remedy | None) -> None:
    rows = "1 row" if found.rows == 1 else f"{found.rows:,} rows"
    nodes = "1 node" if found.nodes == 1 else f"{found.nodes:,} nodes"
    if found.moved:
        cells = [
            (
                " > ".join(one.path),
                f"{one.stage}: {one.quantity}",
                _figure(one, one.annotated),
                _figure(one, one.seen),
                f"{one.count:,}",
                f"{one.since:,}",
                one.since_request,
            )
            for one in found.moved
        ]
        columns = ("node", "<quantity", "annotated", "seen", "rows", "since row", "<of request")
        show_table("What moved", columns, cells)
    else:
        say("Nothing moved.")
    say(f"{rows} of {nodes} compared; false alarms: at most {found.alpha:g} over all nodes and rows.")
    for count, why in (
        (found.under_load, "began while other calls were under way on their engine: their seconds were left out"),
        (found.left_out, "of later invocations left out: plans use what requests show, which decides who comes there"),
        (found.unplaced, "not compared: below a passed check, or the trie lacks their path"),
    ):
        if count:
            say(f"{count:,} rows {why}.")
    if remedy is not None:
        price = "price unknown" if remedy.price_usd is None else f"about {usd(remedy.price_usd)}"
        say(f"{remedy.why} The cheapest remedy ({price}):")
        echo(f"  {remedy.command}")


def _figure(one: Moved, value: float) -> str:
    return usd(value) if one.quantity == "dollars" else seconds(value) if one.quantity == "seconds" else percent(value)

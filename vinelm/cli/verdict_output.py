"""The verdict on a terminal: one sentence, and what was compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vinelm.cli.console import say, show_table
from vinelm.cli.options import option
from vinelm.trie.verdict_words import COLUMNS, table_rows

if TYPE_CHECKING:
    from vinelm.trie.verdict import Verdict

max_loss_option = option(
    "--max-loss POINTS", "Points of accuracy that a cheaper plan may lose for the verdict to be to switch [default: 3].", float
)


def fraction_of(max_loss: float | None) -> dict[str, float]:
    """Return the option as the argument of the Python interface, which has a default of its own."""
    return {} if max_loss is None else {"max_loss": max_loss / 100.0}


def show_verdict(found: Verdict) -> None:
    """Print the sentence, and a table of the opponent and all plans that were compared with it."""
    say(found.sentence, bold=True)
    rows = list(table_rows(found))
    if not rows:
        return
    has_seconds = any(row[-1] for row in rows)
    columns: tuple[str, ...] = COLUMNS if has_seconds else COLUMNS[:-1]
    shown: list[Any] = rows if has_seconds else [row[:-1] for row in rows]
    caption = "*: what the verdict is about. The ends hold for the best of all compared plans."
    show_table("Per request, judged by requests that did not choose the plan", columns, shown, caption=caption)

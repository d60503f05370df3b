"""The verdict in the terminal: one sentence, and a table of the compared plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vinelm.cli.console import say, show_table
from vinelm.trie.verdict import columns, table_rows

if TYPE_CHECKING:
    from vinelm.trie.verdict import Verdict


def show_verdict(found: Verdict) -> None:
    """Print the verdict in a sentence, and a table of the baseline and all plans that were compared with the baseline."""
    say(found.sentence, bold=True)
    rows = list(table_rows(found))
    if not rows:
        return
    caption = "*: what the verdict is about. The ends hold for the best of all compared plans."
    show_table("Per request, judged by requests that did not choose the plan", columns(found), rows, caption=caption)

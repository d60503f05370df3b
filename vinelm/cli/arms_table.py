"""Tables of the arms behind each stage."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vinelm.trie.annotated_trie import AnnotatedTrie


def show_arms(annotated: AnnotatedTrie) -> None:
    """Print, for each stage behind which the application chooses, how often each arm follows, by the stage's model."""
    from vinelm.cli.console import show_table
    from vinelm.evaluation.plans.arms import arm_shares
    from vinelm.reports import percent

    for (stage, arms), found in groupby(arm_shares(annotated), key=lambda share: (share.stage, tuple(share.arms))):
        shares = list(found)
        has_ends, has_widths = any(share.ends > 0.0005 for share in shares), shares[0].half_width90 is not None
        rows = []
        for share in shares:
            cells = []
            for arm, value in share.arms.items():
                width = "" if share.half_width90 is None else f" {100 * share.half_width90[arm]:4.1f}"
                cells.append(percent(value) + width)
            count = "-" if share.observations is None else f"{share.observations:,}"
            rows.append((share.model, *cells, *([percent(share.ends)] if has_ends else []), count))
        caption = "After each percentage: half of its 90 % interval, in points." if has_widths else None
        columns = (f"after {stage} by", *arms, *(["end"] if has_ends else []), "rows")
        show_table(f"What follows {stage}", columns, rows, caption=caption)


def arm_facts(annotated: AnnotatedTrie) -> list[dict[str, Any]]:
    """Return what :func:`show_arms` prints as plain JSON types."""
    from dataclasses import asdict

    from vinelm.evaluation.plans.arms import arm_shares

    return [asdict(share) for share in arm_shares(annotated)]

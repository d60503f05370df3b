"""Selects requests that two policies answer differently, with both answers side by side."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from vinelm.reports.document import Example, ExampleAnswer, Examples

MOST = 10
"""How many requests are shown."""
RIGHT = 0.5
"""Scores from here on count as right answers."""


def examples(
    known: Sequence[tuple[str, ExampleAnswer, ExampleAnswer]], *, before: str, after: str, note: str
) -> Examples | None:
    """Return some of the requests on which the two policies ran different models, or on which only one was right.

    None without such requests. Requests with one right and one wrong answer come first. Which of them are shown depends only on
    their ids.

    Args:
        known: (request id, answer of the first policy, answer of the second policy) for each request that both have
            answered.
        before: The name of the first policy.
        after: The name of the second policy.
        note: A sentence that readers need to understand the examples.
    """
    unlike = [one for one in known if one[1].is_right != one[2].is_right or one[1].models != one[2].models]
    if not unlike:
        return None
    won, lost = (sum(two.is_right is is_won is not one.is_right for _, one, two in unlike) for is_won in (True, False))

    def order(one: tuple[str, ExampleAnswer, ExampleAnswer]) -> tuple[bool, bytes]:
        return one[1].is_right == one[2].is_right, hashlib.sha256(one[0].encode()).digest()

    shown = sorted(unlike, key=order)[:MOST]
    counted = (
        f"Of {len(known):,} requests that both have answered, {after} is right and {before} wrong on {won:,}, and the other "
        f"way round on {lost:,}."
    )
    return Examples(
        before=before,
        after=after,
        note=f"{counted} Shown are {len(shown)}, these first, drawn by their ids. {note}".strip(),
        shown=tuple(Example(request=request, before=one, after=two) for request, one, two in shown),
    )

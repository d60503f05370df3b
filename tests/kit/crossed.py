"""Two lists of cases, of which every pair is a test."""

import pytest


def crossed(ones, others):
    """Every pair, as parameters. Each of the longer list is tried with one of the shorter list, in turn; the rest is long."""
    turns, found = min(len(ones), len(others)), []
    for at, one in enumerate(ones):
        for place, other in enumerate(others):
            values = [value for each in (one, other) for value in (each if isinstance(each, tuple) else (each,))]
            found.append(pytest.param(*values, marks=() if (at - place) % turns == 0 else pytest.mark.long))
    return found

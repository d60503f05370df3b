"""The coverage of rows, by the kind of their template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vinelm.profiler.coverage.base import Coverage
from vinelm.profiler.coverage.branching import BranchingCoverage
from vinelm.profiler.coverage.linear import LinearCoverage
from vinelm.rows.observation import Observation
from vinelm.template import Template


def new_coverage(template: Template, n_requests: int) -> Coverage[Any]:
    """Return the coverage of no cells: :class:`BranchingCoverage` if the template is not linear."""
    return LinearCoverage(template, n_requests) if template.is_linear else BranchingCoverage(template, n_requests)


def coverage_of(observations: Sequence[Observation], template: Template, n_requests: int) -> Coverage[Any]:
    """Return the coverage of a set of rows, in any order.

    Args:
        observations: the rows of these requests.
        template: a bound template.
        n_requests: the number of requests in the profile.
    """
    coverage = new_coverage(template, n_requests)
    for observation in sorted(observations, key=lambda o: o.depth):
        coverage.add(observation)
    return coverage

"""The adaptive sampler: a base design for half of the dollars at least, the rest where answers change the decision most.

The base design guards against what the model behind the choices gets wrong. The rest is chosen by
:mod:`vinelm.estimator.sampling.plan_design` or :mod:`vinelm.estimator.sampling.path_design`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, EvidenceError
from vinelm.estimator.cost_latency import estimate_amount
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.sampling.candidate_cells import CandidateCells
from vinelm.estimator.sampling.draws import NodeSource
from vinelm.estimator.sampling.goal import Goal
from vinelm.estimator.sampling.path_design import PathDesign
from vinelm.estimator.sampling.plan_design import PlanDesign
from vinelm.estimator.signals.build import why_without_signals
from vinelm.observation import Observation
from vinelm.protocols import RequestPath, Sampler
from vinelm.template import Template
from vinelm.trie import FloatArray, Trie

BASE_SHARE = 0.5
"""Default share of the dollars that the base design spends."""


class NeymanSampler:
    """Adaptive sampler (:class:`~vinelm.protocols.Sampler`). Pure: proposals depend only on the settings and the given rows.

    Round 0 is that of the base design. Each later round has as many paths as there are rows, so that any budget may cut a run
    off. It takes the base design's paths in order, and between them single cells: first answers, or below rows that go on.
    They are drawn where the fits to what requests show disagree about the best plan. Where plans cannot use what requests show,
    they are drawn where the paths' accuracies are narrowed most per dollar.

    At any point of a round the base design has its share of the round's dollars, as estimated from the rows before it, up to
    the price of one path. No cell is drawn that the base design proposes in the same round.

    The ``probability`` of a drawn cell is that of its node, given all earlier draws; the request follows from an order
    that does not depend on answers. The other paths have the base design's.

    Args:
        template: the workflow's template.
        catalog: models and prices.
        request_ids: the requests to sample from.
        seed: seed of the random choices.
        base: the base design.
        base_share: its share of the dollars, in (0, 1].
        goal: which plans matter; by default all.

    Raises:
        ConfigError: the template branches or merges histories, or ``base_share`` is out of its range.
    """

    def __init__(
        self,
        template: Template,
        catalog: Catalog,
        request_ids: Sequence[str],
        seed: int,
        *,
        base: Sampler,
        base_share: float = BASE_SHARE,
        goal: Goal | None = None,
    ) -> None:
        self.template = template.bind(tuple(catalog))
        if not self.template.is_linear or self.template.merges:
            raise ConfigError(
                'the sampler "neyman" is for templates that neither branch nor merge histories: use the sampler "priced"'
            )
        if not 0.0 < base_share <= 1.0:
            raise ConfigError(f"base_share is {base_share}: it must be greater than 0 and at most 1")
        self.catalog = catalog
        self.request_ids = tuple(request_ids)
        self.seed = seed
        self.base = base
        self.base_share = base_share
        self.goal = goal or Goal()

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterable[RequestPath]:
        """See :meth:`~vinelm.protocols.Sampler.propose`."""
        proposed = self.base.propose(round_, observations)
        if round_ == 0 or not observations:
            return proposed
        return self._mixed(
            list(islice(proposed, len(observations))), observations, random.Random(f"neyman:{self.seed}:{round_}")
        )

    def _mixed(
        self, proposed: Sequence[RequestPath], observations: Sequence[Observation], rng: random.Random
    ) -> Iterator[RequestPath]:
        """The base design's paths, and cells drawn as long as those have their share of the dollars."""
        trie = Trie.from_template(self.template)
        cells = ObservationTable.from_observations(observations, self.template, trie)
        cost_usd = _cost_usd(cells)
        candidates = CandidateCells(observations, cells, self.request_ids, proposed, rng)
        source = self._source(observations, cells, cost_usd)
        base, base_usd, drawn_usd = iter(proposed), 0.0, 0.0
        for _ in range(len(observations)):
            is_due = base_usd * (1.0 - self.base_share) <= drawn_usd * self.base_share
            drawn = None if is_due or source is None else source.draw(candidates, rng)
            if drawn is not None:
                drawn_usd += float(cost_usd[drawn.node])
                yield RequestPath(candidates.take(drawn.node), trie.prefix(drawn.node), probability=drawn.chance)
                continue
            path = next(base, None)
            if path is None:
                return
            node = candidates.first_new(path)
            base_usd += 0.0 if node is None else float(cost_usd[node])
            yield path

    def _source(self, observations: Sequence[Observation], cells: ObservationTable, cost_usd: FloatArray) -> NodeSource | None:
        """What draws the cells; None if the rows say nothing yet."""
        try:
            if why_without_signals(observations, self.template) is None:
                return PlanDesign.of(observations, cells, self.template, self.goal, cost_usd)
            return PathDesign.of(cells, self.template, self.catalog, self.goal, cost_usd)
        except EvidenceError:  # such as: no row is scored
            return None


def _cost_usd(cells: ObservationTable) -> FloatArray:
    """Expected dollars of one more run at each node, > 0; all alike if every model is free."""
    cost_usd = estimate_amount(cells, cells.cost_usd).mean
    return np.maximum(cost_usd, 1e-12) if cost_usd.any() else np.ones(len(cost_usd))

"""Defines a sampler that calls cheap models more often than expensive models, first on the same requests.

If every model were called equally often, nearly the whole budget of a profile would go to the most expensive models. Here the
number of calls is proportional to ``max(price, 1 % of the median price) ** -alpha`` instead.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from statistics import median
from typing import NamedTuple

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, TemplateError
from vinelm.profiler.sampling.prices import prices_usd
from vinelm.profiler.sampling.runs import whole_path
from vinelm.requests.protocols import Choice, RequestPath
from vinelm.rows.observation import Cell, Observation
from vinelm.template import SKIP, Template
from vinelm.template.kinds import learnt_kinds
from vinelm.template.template import learnt_kind

Prefix = tuple[str, ...]
Models = tuple[str, ...]
ALPHA = 1.0
"""The default exponent of the price: about the same dollars for each model."""
CONTINUED_SHARE = 0.15
"""The default share of the paths that continue after a passed check, if a workflow declares signals."""
LOWEST_PRICE = 0.01
"""The lowest price that a model counts with, as a share of the median price."""
FIRST_SWAPPED = 4
"""One in this many of these paths differs in the first model: what follows it is paid again, where the others continue from
paid calls."""
OF_EACH_KIND = 8
"""How many requests of each kind come before all others; with fewer answers of a model nothing is known about it for the kind.
"""
PILOT = 2
"""Paths per model in round 0."""


class PricedSampler:
    """A sampler that calls each model in proportion to price ** -alpha (:class:`~vinelm.requests.protocols.Sampler`).

    The requests have one random order, in which every model answers them. So a request that an expensive model has answered was
    answered by the cheaper models too, and their answers can be compared. When a model has given every request a first answer,
    it gets paths that make later calls, for requests that continue after this answer. The model's weight is then multiplied by
    the share of requests that continue. The model of each later call is drawn at random.

    Each draw chooses among the models that were drawn less often than their weights require. A model's probability is
    proportional to its deficit, so that frequencies always stay close to the weights. Each path has at least one call without a
    result.

    A model's price is the mean cost of its results in earlier rounds, tools included. A model without results has its list
    price, multiplied by the ratio of real costs to list prices of the other models. Round 0 has two paths per model, and each
    later round has as many paths as there are results. So a run may end at any budget.

    The ``probability`` of a path is the product of the probabilities with which its models were drawn, given all earlier draws.
    It begins with the path's first call without a result. The request is given by the order, so it has no probability. The
    probability is None if stages with different models are possible.

    Args:
        template: A template bound to the catalog's models.
        catalog: The models with list prices; None if unknown; round 0 then calls all models equally often.
        request_ids: The requests to sample from.
        seed: Seed of the random choices.
        alpha: Exponent of the price, >= 0; with 0, all models are called equally often.
        continued_share: Share of the paths, in [0, 1), that continue by one call after an answer that the workflow's own check
            passed. Has no effect under the oracle stop rule (only a right answer ends a request), or if the template branches.
        kinds: The type of each request. The order then begins with some requests of each type that is frequent enough for an
            estimate. None does not distinguish types.

    Raises:
        ConfigError: A setting is out of range, or the possible first stages allow different models.
    """

    def __init__(
        self,
        template: Template,
        catalog: Catalog | None,
        request_ids: Sequence[str],
        seed: int,
        *,
        alpha: float = ALPHA,
        continued_share: float = 0.0,
        kinds: Mapping[str, str] | None = None,
    ) -> None:
        if not alpha >= 0.0:
            raise ConfigError(f"alpha is {alpha}: the exponent of the price must be at least 0")
        if not 0.0 <= continued_share < 1.0:
            raise ConfigError(f"continued_share is {continued_share}: it must be at least 0 and less than 1")
        self.template = template
        self.catalog = catalog
        self.request_ids = tuple(request_ids)
        self.seed = seed
        self.alpha = alpha
        self.continued_share = continued_share
        self._kinds = dict(kinds or {})

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterator[RequestPath]:
        """Yield the request paths of a round, given the results of all earlier rounds; see :class:`PricedSampler`."""
        paths = self.round_paths(round_, observations)
        n_continued = 0
        for n in range(1, max(PILOT * len(self.template.models), len(observations)) + 1):
            path = paths.continued() if n_continued < self.continued_share * n else None
            n_continued += path is not None
            path = path or paths.next()
            if path is None:
                return
            yield path

    def round_paths(self, round_: int, observations: Sequence[Observation]) -> RoundPaths:
        """Return an object that generates the paths of a round one by one."""
        order = shuffled(self.request_ids, self.seed)
        rng = random.Random(f"priced:{self.seed}:{round_}")
        weights = price_weights(prices_usd(self.template, self.catalog, observations), self.alpha)
        cells = OpenCells(self.template, order, observations)
        return RoundPaths(self.template, cells, kinds_first(order, self._kinds), weights, rng)


def shuffled(request_ids: Sequence[str], seed: int) -> list[str]:
    """Return the requests in a random order that depends only on the seed."""
    order = list(request_ids)
    random.Random(f"priced:{seed}").shuffle(order)
    return order


def kinds_first(order: Sequence[str], kinds: Mapping[str, str]) -> Sequence[str]:
    """Return the requests in an order that begins with :data:`OF_EACH_KIND` requests of each type, alternating between types.

    Args:
        order: The requests.
        kinds: The type of each request; types too rare for an estimate count as one type. If empty, ``order`` is returned.
    """
    learnt = learnt_kinds(kinds[name] for name in order if name in kinds)
    of_kind: dict[str, list[str]] = {kind: [] for kind in learnt}
    for name in order if learnt else ():
        of_kind[learnt_kind(kinds.get(name), learnt)].append(name)
    turns = zip_longest(*(names[:OF_EACH_KIND] for names in of_kind.values()))
    return list(dict.fromkeys((*(name for turn in turns for name in turn if name is not None), *order)))


def price_weights(prices: Mapping[str, float], alpha: float) -> dict[str, float]:
    """Return the relative weight with which each model is drawn: ``max(price, 1 % of the median price) ** -alpha``.

    Prices are divided by the median price of the models that are not free. All weights are 1 if every model is free.
    """
    priced = [price for price in prices.values() if price > 0.0]
    if not priced:
        return dict.fromkeys(prices, 1.0)
    usual = median(priced)
    return {name: float(max(price / usual, LOWEST_PRICE) ** -alpha) for name, price in prices.items()}


def models_by_depth(template: Template) -> list[Models | Mapping[str, Models]]:
    """Return the possible models of each call, in the order of the calls.

    For a call at which several stages with different models are possible, the models are given by stage name.

    Raises:
        ConfigError: several first stages with different models are possible, and the actual stage is known only when it runs.
    """
    first, *others = template.first_stages
    for other in others:
        if set(other.models or ()) != set(first.models or ()):
            raise ConfigError(
                f"the stages {first.name!r} and {other.name!r} may both come first and allow different models, but which one "
                "comes is only known once it runs: allow the same models in both"
            )
    found: list[Models | Mapping[str, Models]] = []
    for stages in template.flow.stages_at:
        models = {name: template.stage(name).models or () for name in stages}
        one = next(iter(models.values()))
        found.append(one if all(set(other) == set(one) for other in models.values()) else models)
    return found


class OpenCells:
    """Tracks open calls: calls that have no result yet, and that no path proposed so far will make.

    A call is only open if its request is known to reach it. A call is identified by its request and ``prefix``, the models of
    the calls up to and including this one.

    Args:
        rows: The results so far. Results after a passed check (``is_continued``) are treated separately.

    Attributes:
        n_going_on: For each model, the number of requests that have a result of their first call with this model, and an open
            call at any depth after it.
        continuable: The calls after which a request can continue, although the workflow's own check passed their answer or an
            earlier answer.
    """

    def __init__(self, template: Template, request_ids: Sequence[str], rows: Sequence[Observation]) -> None:
        self._template = template
        known = set(request_ids)
        self._every = {(row.request_id, row.prefix): row for row in rows if row.request_id in known}
        self._rows = {cell: row for cell, row in self._every.items() if not row.is_continued}
        self._claimed: set[Cell] = set()
        self._below: dict[Cell, list[str]] = {}
        for cell in sorted(self._rows, key=lambda cell: -len(cell[1])):
            request, prefix = cell
            self._below[cell] = [name for name in self._allowed(cell) if self.is_open(request, (*prefix, name))]
        self.n_going_on = Counter(prefix[0] for (_, prefix), models in self._below.items() if len(prefix) == 1 and models)
        self.continuable = [cell for cell, row in self._every.items() if self._is_continuable(row)]

    def is_new(self, request: str, prefix: Prefix) -> bool:
        """Return whether a call has no result, and no path proposed so far will make it.

        Its request must be known to reach the call.
        """
        return (request, prefix) not in self._rows and (request, prefix) not in self._claimed

    def is_open(self, request: str, prefix: Prefix) -> bool:
        """Return whether a call is open, or has a result and an open call at any depth after it.

        A call is open if it has no result, and no path drawn so far in this round will make it. The request must be known to
        reach the call.
        """
        cell = (request, prefix)
        return bool(self._below[cell]) if cell in self._rows else cell not in self._claimed

    def open_below(self, request: str, prefix: Prefix) -> Sequence[str]:
        """Return the models of those calls directly after the call ``prefix`` that are open or lead to an open call.

        The call ``prefix`` has a result. An open call is one that is still to be made.
        """
        return self._below[request, prefix]

    def claim(self, request: str, prefix: Prefix) -> None:
        """Record that a drawn path will make an open call; the call then no longer counts as open.

        Whether the request continues after this call is known only in the next round, so no later call is open yet.
        """
        self._claimed.add((request, prefix))
        while len(prefix) > 1:
            prefix, model = prefix[:-1], prefix[-1]
            models = self._below[request, prefix]
            models.remove(model)
            if models:
                return
        if (request, prefix) in self._rows:
            self.n_going_on[prefix[0]] -= 1

    def not_continued(self, request: str, prefix: Prefix) -> Sequence[str]:
        """Return the models whose call right after the request's calls ``prefix`` has no result yet.

        The last call of ``prefix`` must be one of :attr:`continuable`.
        """
        stage = self._template.stage_after(len(prefix))
        models = () if stage is None else stage.models or ()
        return [name for name in models if (request, (*prefix, name)) not in self._every]

    def of_today(self, request: str) -> Iterator[Cell]:
        """Yield the recorded calls of a request's run on the current setup that have an open call at any depth after them.

        Each call is given as (request id, models up to the call).
        """
        today = self._template.today or {}
        prefix: Prefix = ()
        models = dict.fromkeys(today.values())
        while True:
            ran = (self._rows.get((request, (*prefix, model))) for model in models)
            row = next((row for row in ran if row is not None and today.get(row.stage) == row.model), None)
            if row is None:
                return
            prefix = row.prefix
            if self._below[request, prefix]:
                yield request, prefix

    def _is_continuable(self, row: Observation) -> bool:
        passed = row.is_continued or bool(row.stopped)
        return passed and row.failure is None and row.depth < self._template.depth

    def _allowed(self, cell: Cell) -> tuple[str, ...]:
        """Return the models that the request's next call may use after the call ``cell``, which has a result.

        Empty if the request ends there.
        """
        row, template = self._rows[cell], self._template
        if row.ended(template.stop):
            return ()
        request, prefix = cell
        before = (self._rows.get((request, prefix[:k])) for k in range(1, row.depth + 1))
        try:
            followers = template.stages_at(row.depth + 1, [one.stage for one in before if one is not None])
        except TemplateError:  # a row from before the template changed: its path leads nowhere now
            return ()
        name = row.next_stage([stage.name for stage in followers])
        return () if name is None else template.stage(name).models or ()


class _Drawn(NamedTuple):
    model: str
    chance: float


class _Draws:
    """Draws models so that their frequencies stay close to their weights."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._counts: Counter[str] = Counter()

    def draw(self, weights: Mapping[str, float]) -> _Drawn:
        """Draw a model, and return it with the probability of this draw.

        The probability is proportional to how far the model is below its share of all draws. ``weights`` determine the shares.
        """
        n, total = 1 + sum(self._counts[name] for name in weights), sum(weights.values())
        lacks = {name: max(n * weight / total - self._counts[name], 0.0) for name, weight in weights.items()}
        (model,) = self._rng.choices(tuple(lacks), tuple(lacks.values()))
        self._counts[model] += 1
        return _Drawn(model, lacks[model] / sum(lacks.values()))


class RoundPaths:
    """Generates the paths of one round of a sampler, one by one.

    Args:
        template: A template bound to models.
        cells: The calls that still have to be made.
        order: The requests, in the order in which models answer them.
        weights: The weight with which each model is drawn.
        rng: The random generator; the draws advance it.
    """

    def __init__(
        self, template: Template, cells: OpenCells, order: Sequence[str], weights: Mapping[str, float], rng: random.Random
    ) -> None:
        self._cells, self._order, self._weights, self._rng = cells, order, weights, rng
        self._choices = models_by_depth(template)
        first = self._choices[0]
        self._first: Models = first if isinstance(first, tuple) else next(iter(first.values()))
        self._at = {name: _FirstAnswer(rng.randrange(len(order))) for name in self._first}
        self._draws: dict[tuple[object, ...], _Draws] = {}
        one_by_one = template.goes_on_past_ends and template.base.places is None
        self._to_continue = list(cells.continuable) if one_by_one else []
        self._today = whole_path(template, template.today) if template.today else ()
        self._n_swapped = 0
        self._to_swap = deque(cell for request in order for cell in cells.of_today(request))
        rng.shuffle(self._to_continue)

    def next(self) -> RequestPath | None:
        """Return the next path, and reserve its first call without a result.

        None if every call that a request reaches has a result or is reserved.
        """
        weights = {}
        for name in self._first:
            share = 1.0 if self._unanswered(name) is not None else self._cells.n_going_on[name] / len(self._order)
            if share > 0.0:
                weights[name] = share * self._weights[name]
        if not weights:
            return None
        model, chance = self._draws_at("first").draw(weights)
        request = self._unanswered(model) or self._going_on(model)
        prefix: tuple[str, ...] = (model,)
        while not self._cells.is_new(request, prefix):
            model, more = self._drawn(len(prefix), self._cells.open_below(request, prefix))
            prefix, chance = (*prefix, model), more  # only the last of them is a cell without a row
        self._cells.claim(request, prefix)
        return self._completed(request, prefix, chance)

    def first_answer(self, model: str) -> RequestPath | None:
        """Return a path that begins with this model, for the first request that the model has not answered; None if there is
        none.

        The path's first call is claimed, so that no other path of the round makes it.
        """
        request = self._unanswered(model)
        if request is None:
            return None
        self._cells.claim(request, (model,))
        return self._completed(request, (model,), None)

    def n_unanswered(self, model: str) -> int:
        """Return the number of requests that the model has not answered."""
        return sum(self._cells.is_new(request, (model,)) for request in self._order)

    def claim_first(self, path: RequestPath) -> None:
        """Claim the first call of a path, so that no other path of the round makes it.

        Does nothing if the call has a result or is claimed already, or if its model depends on which stage comes first.
        """
        first = path.path[0]
        if isinstance(first, str) and self._cells.is_new(path.request_id, (first,)):
            self._cells.claim(path.request_id, (first,))

    def continued(self) -> RequestPath | None:
        """Return a path with a further call after a result that passed the workflow's own check; None if none is left."""
        while self._to_continue:
            request, prefix = self._to_continue.pop()
            models = self._cells.not_continued(request, prefix)
            if models:
                model, chance = self._drawn(len(prefix), models, "continued")
                return RequestPath(request, (*prefix, model), goes_on=True, probability=chance)
        return None

    def swapped(self) -> RequestPath | None:
        """Return a path on which some calls use other models than the current setup does; None if none is left.

        Most paths begin with calls that the current setup's models have answered, so that only the later calls cost money. The
        models after the changed call are drawn at random. Some paths differ in the first model only.
        """
        self._n_swapped += 1
        found = self._other_first() if self._n_swapped % FIRST_SWAPPED == 0 else None
        while found is None and self._to_swap:
            request, prefix = self._to_swap.popleft()
            open_below = self._cells.open_below(request, prefix)
            models = [name for name in open_below if self._cells.is_new(request, (*prefix, name))]
            if models:
                model, chance = self._drawn(len(prefix), models, "swapped")
                self._cells.claim(request, (*prefix, model))
                self._to_swap.append((request, prefix))
                found = self._completed(request, (*prefix, model), chance)
        return found

    def _other_first(self) -> RequestPath | None:
        """Return a path that begins with a new first answer by another model and continues with the current setup's models.

        None if there is no such model, or if a request is a single call.
        """
        today, *others = self._today or (None,)
        models = [name for name in self._first if name != today and self._unanswered(name) is not None]
        if not models or not others:
            return None
        model, chance = self._drawn(0, models, "swapped")
        request = self._unanswered(model)
        assert request is not None
        self._cells.claim(request, (model,))
        return RequestPath(request, (model, *others), probability=chance)

    def _unanswered(self, model: str) -> str | None:
        """Return the first request, in order, whose first call this model has not made; None if there is none.

        A call that a path of this round will make counts as made.
        """
        at = self._at[model]
        while at.next < len(self._order):
            request = self._order[at.next]
            if self._cells.is_new(request, (model,)):
                return request
            at.next += 1
        return None

    def _going_on(self, model: str) -> str:
        """Return the next request in which some call after the model's first answer still has to be made. At least one must
        exist.

        The requests take turns: the search begins after the request that was returned last.
        """
        at = self._at[model]
        while True:
            request = self._order[at.turn % len(self._order)]
            at.turn += 1
            if self._cells.is_open(request, (model,)):
                return request

    def _completed(self, request: str, prefix: tuple[str, ...], chance: float | None) -> RequestPath:
        """Return a path that begins with ``prefix`` and has a drawn model for each possible later call.

        ``chance`` is the probability with which ``prefix`` was drawn; None if unknown.
        """
        path: list[Choice] = [*prefix]
        probability: float | None = chance
        for depth, models in enumerate(self._choices[len(prefix) :], len(prefix)):
            if isinstance(models, tuple):
                model, more = self._drawn(depth, models)
                path.append(model)
                probability = None if probability is None else probability * more
            else:
                path.append({stage: self._drawn(depth, allowed, stage).model for stage, allowed in models.items()})
                probability = None
        return RequestPath(request, tuple(path), probability=probability)

    def _drawn(self, depth: int, models: Iterable[str], of: str = "") -> _Drawn:
        weights = {name: self._weights[name] for name in models}
        if SKIP in weights and len(weights) > 1:  # it is free: by price, no other model would ever be drawn
            weights[SKIP] = sum(weight for name, weight in weights.items() if name != SKIP)
        return self._draws_at(depth, of).draw(weights)

    def _draws_at(self, *place: object) -> _Draws:
        if place not in self._draws:
            self._draws[place] = _Draws(self._rng)
        return self._draws[place]


class _FirstAnswer:
    """Remembers where two searches through the ordered requests begin, for paths that begin with one model.

    ``next`` is the position at which the search for a request that the model has not answered begins. ``turn``, modulo the
    number of requests, is the position at which the search for a request to continue after the model's answer begins.
    """

    def __init__(self, turn: int) -> None:
        self.next = 0
        self.turn = turn

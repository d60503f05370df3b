"""The default sampler: compares single models first, then spends money where it is expected to change the plan most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Self

from vinelm.catalog import Catalog
from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.profiler.sampling.mixtures import Gains, Mixtures, purchases
from vinelm.profiler.sampling.priced_sampler import PricedSampler, RoundPaths, models_by_depth, shuffled
from vinelm.profiler.sampling.prices import Prices, rows_by_cell
from vinelm.profiler.sampling.race import FEW_REQUESTS, REQUESTS, ModelRace
from vinelm.profiler.sampling.runs import Run, distinct, run_of, whole_path
from vinelm.profiler.sampling.single_models import SingleModels
from vinelm.requests.protocols import RequestPath
from vinelm.rows.observation import Observation
from vinelm.template import SKIP, Template

Candidates = Callable[[Sequence[Observation]], Sequence[Run]]
"""Returns, from rows, the plans to buy whole runs of: those that would replace the current setup, the most important first, or
if that is unknown, those recommended under some budgets. A pure function."""
GROWTH, FEW_ROUNDS_GROWTH = 0.2, 1.0
"""Dollars of a round after the race as a share of all earlier rounds' dollars: about eight rounds from a quarter of the dollars
on; the second value is for rounds that take hours."""
LEAST_PATHS = 4
"""The fewest paths of such a round, since the workers wait for its end."""
WHOLE_SHARE = 0.5
"""If requests take several calls, the share of the dollars after the race for whole runs of the recommended plans."""
PROVING_SHARE = 0.75
"""The share of those dollars for whole runs of the current setup and of the plans that would replace it, once there are any."""
CHEAP = 0.5
"""Plans whose runs cost at most this share of the current setup's run on the same requests as the first plan."""
SWAPPED_SHARE = 0.5
"""The share of the remaining dollars for runs that differ from the current setup in the first model, or in the later ones."""


class DecidingSampler:
    """A sampler that buys the results that are most useful for choosing a plan (:class:`~vinelm.requests.protocols.Sampler`).

    It begins with a comparison (:class:`~vinelm.profiler.sampling.race.ModelRace`): all single models and the current setup
    answer the same first requests. How the remaining money is spent depends on the workflow:

    - If a request is one call, it buys answers that are expected to change the best mixtures of models most per dollar
      (:mod:`~vinelm.profiler.sampling.mixtures`).
    - If a request is several calls, half of the money buys whole runs of the candidate plans (see ``candidates``), and half
      buys paths of :class:`~vinelm.profiler.sampling.priced_sampler.PricedSampler`. If the workflow's own check is the only
      signal, no plan continues after a passed first answer. Then the share of the money for first answers equals the share of
      first answers that pass. These first answers are chosen as for one call.
    - If the template declares the current setup, three quarters of the money buy whole runs of the current setup and of the
      candidate plans. They run on the same requests, one plan after the other. If a request is several calls, half of the
      remaining money buys paths whose models differ from the current setup's. They differ from some call on, or in the first
      call only.

    Each round after the comparison spends a fifth of the money spent before that round. At the end, paths of the priced sampler
    continue until every reached call has a result.

    Args:
        template: A template bound to the catalog's models.
        catalog: The models with list prices; None if unknown.
        request_ids: The requests to sample from.
        seed: The seed for the order of the requests and of the priced sampler's paths.
        limits: The limits of the profile, which determine the budget of the comparison.
        continued_share: The part, in [0, 1), of the money for the priced sampler's paths that is spent on paths which continue
            after an answer that the workflow's own check passed.
        candidates: Returns the plans for which whole runs are bought, given the results so far; None for no plans.
        kinds: The type of each request; see :class:`PricedSampler`.
        few_rounds: Plan fewer and larger rounds, because a round takes hours (as with batches).

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
        limits: ProfileLimits | None = None,
        continued_share: float = 0.0,
        candidates: Candidates | None = None,
        kinds: Mapping[str, str] | None = None,
        few_rounds: bool = False,
    ) -> None:
        self.template = template
        self.catalog = catalog
        self.request_ids = tuple(request_ids)
        self.seed = seed
        self.limits = limits or ProfileLimits()
        self.continued_share = continued_share
        self.few_rounds = few_rounds
        self._candidates = candidates
        self._priced = PricedSampler(template, catalog, request_ids, seed, continued_share=continued_share, kinds=kinds)
        self._choices = models_by_depth(template)
        self._order = shuffled(self.request_ids, seed)
        self._race = ModelRace(
            template, catalog, self._order, self._choices, self.limits, FEW_REQUESTS if few_rounds else REQUESTS
        )
        self._ends_after_race = False
        self._last: tuple[int, Sequence[Observation], list[RequestPath]] | None = None

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterator[RequestPath]:
        """Yield the request paths of a round, given the results of all earlier rounds; see :class:`DecidingSampler`."""
        racing = self._racing(round_, observations)
        yield from racing
        if not racing and not self._ends_after_race:
            yield from self._deciding(round_, observations)

    def is_racing(self, round_: int, observations: Sequence[Observation]) -> bool:
        """Return whether a round belongs to the comparison of single models, given all results of earlier rounds."""
        return bool(self._racing(round_, observations))

    def _racing(self, round_: int, observations: Sequence[Observation]) -> list[RequestPath]:
        """Return the request paths of a round in which single models are compared; empty for a round after the comparison.

        The latest result is cached.
        """
        if self._last is None or self._last[0] != round_ or self._last[1] is not observations:
            self._last = round_, observations, self._race.paths(round_, observations)
        return self._last[2]

    def asking(self, round_: int, request_id: str, run: Run) -> str:
        """Return a short text for a path of the comparison: its model, and the position of its request.

        For example, ``gpt-5-mini 12 of 30`` is the path of the 12th of 30 requests.
        """
        return self._race.asking(round_, request_id, run)

    def single_models(self, observations: Sequence[Observation], counted: str = "right") -> SingleModels:
        """Return the accuracy and cost of each single model and of the current setup.

        ``counted`` is the word for a good answer: ``"right"``, or ``"as good"`` if answers are compared with the current
        setup's.
        """
        return replace(self._race.table(observations), counted=counted)

    def race_alone(self) -> Self:
        """Return a sampler that ends after the comparison of single models."""
        alone = copy(self)
        alone._ends_after_race = True
        return alone

    def _deciding(self, round_: int, observations: Sequence[Observation]) -> Iterator[RequestPath]:
        """Yield the paths of a round that comes after the comparison of single models.

        The round's money is divided between several purposes (:meth:`_uses`). Each path serves the purpose that has used the
        smallest part of its share so far.
        """
        rows = rows_by_cell(observations)
        prices = Prices.of(self.template, self.catalog, observations)
        spent_usd = prices.spent(observations, self.catalog)
        round_usd = (FEW_ROUNDS_GROWTH if self.few_rounds else GROWTH) * spent_usd
        paths = self._priced.round_paths(round_, observations)
        left_usd = self.limits.usd(prices, prices.everything(self._choices, len(self._order)), observations) - spent_usd
        uses = self._uses(observations, paths, prices, round_usd, left_usd)
        n, used_usd = 0, 0.0
        while used_usd < round_usd or n < LEAST_PATHS:
            use = min(uses, key=lambda one: one.used_usd / one.share, default=None)
            path = paths.next() if use is None else use.take()
            if path is None:
                if use is None:
                    return
                uses.remove(use)
                continue
            paid, is_whole = run_of(rows, self.template, path.request_id, path.path)
            usd = 0.0 if is_whole and not path.goes_on else prices.of_run(path.path, len(paid), goes_on=path.goes_on)
            if use is not None:
                use.used_usd += usd
            n, used_usd = n + 1, used_usd + usd
            yield path

    def _uses(
        self, observations: Sequence[Observation], paths: RoundPaths, prices: Prices, round_usd: float, left_usd: float
    ) -> list[_Use]:
        """Return the purposes on which a round spends its money, with the share of each.

        ``round_usd`` is the round's budget in dollars, ``left_usd`` what is left of the profile's budget.
        """
        whole = self._whole_runs(observations, paths, prices)
        has_today = self.template.today is not None
        if self._is_one_call:
            decided = self._gradient(observations, paths, prices, round_usd, left_usd)
            if not has_today:
                return [_Use(1.0, lambda: next(decided, None))]
            return [_Use(PROVING_SHARE, lambda: next(whole, None)), _Use(1.0 - PROVING_SHARE, lambda: next(decided, None))]
        first = 0.0 if has_today else self._ended_by_first(observations)
        share = PROVING_SHARE if has_today else WHOLE_SHARE * (1.0 - first)
        rest = 1.0 - first - share
        found = [_Use(share, lambda: next(whole, None))]
        if first > 0.0:
            decided = self._gradient(observations, paths, prices, round_usd, left_usd)
            found.append(_Use(first, lambda: next(decided, None)))
        if has_today:
            found.append(_Use(rest * SWAPPED_SHARE, paths.swapped))
            rest *= 1.0 - SWAPPED_SHARE
        found.append(_Use(rest * self.continued_share, paths.continued))
        found.append(_Use(rest * (1.0 - self.continued_share), paths.next))
        return [use for use in found if use.share > 0.0]

    @property
    def _is_one_call(self) -> bool:
        """True if every request is a single call, with a choice of models."""
        return len(self._choices) == 1 and self._begins_alike

    @property
    def _begins_alike(self) -> bool:
        """True if the first call of every request is certain, and its model is chosen from the same list for every request."""
        first = self._choices[0]
        return isinstance(first, tuple) and SKIP not in first

    def _ended_by_first(self, observations: Sequence[Observation]) -> float:
        """Return the share of first answers, in [0, 1], that passed the workflow's own check. No plan continues after them.

        The share is 0 if results have signals or answer classes, since plans may then continue after a passed answer. It is
        also 0 if the template's stop rule is not ``"workflow"``.
        """
        if self.template.stop != "workflow" or not self._begins_alike:
            return 0.0
        if any(row.signal is not None or row.answer_class is not None for row in observations):
            return 0.0
        passed = [bool(row.stopped) for row in observations if row.depth == 1]
        return sum(passed) / len(passed) if passed else 0.0

    def _whole_runs(self, observations: Sequence[Observation], paths: RoundPaths, prices: Prices) -> Iterator[RequestPath]:
        """Yield whole runs of the candidate plans and of the current setup, on the same requests.

        Runs that have all their results are left out.
        """
        today = self.template.today
        if self._candidates is None or (self._is_one_call and today is None):
            return
        plans, rows = list(self._candidates(observations)), rows_by_cell(observations)
        if not plans:
            return
        groups: list[Sequence[Run]] = [plans]
        if today is not None:
            # With the current setup known, one plan after the other: whole runs prove something once enough requests have both.
            # Cheap runs do not wait for the others.
            own = whole_path(self.template, today)
            most_usd = CHEAP * prices.of_run(own)
            cheap = [one for one in plans[1:] if prices.of_run(one) <= most_usd]
            groups = [distinct((own, plans[0], *cheap)), *([one] for one in plans[1:] if one not in cheap)]
        for group in groups:
            for request in self._order:
                for run in group:
                    if not run_of(rows, self.template, request, run)[1]:
                        path = RequestPath(request, run)
                        paths.claim_first(path)
                        yield path

    def _gradient(
        self, observations: Sequence[Observation], paths: RoundPaths, prices: Prices, round_usd: float, left_usd: float
    ) -> Iterator[RequestPath]:
        """Yield paths that buy first answers, from the models that are expected to change the best mixtures most per dollar.

        The answers cost about ``round_usd`` dollars, the budget of the round, and at most ``left_usd``, the dollars left of the
        profile's budget.
        """
        names = [name for name in self._choices[0] if isinstance(name, str)]
        answers = {name: [float(row.success or 0.0) for row in observations if row.prefix == (name,)] for name in names}
        floor = min((usd for usd in prices.usd.values() if usd > 0.0), default=1.0) / 1000.0
        usd = [max(prices.usd[name], floor) for name in names]  # a free model is asked first, but not endlessly
        gains = Gains(Mixtures(usd), [sum(answers[name]) for name in names], [len(answers[name]) for name in names])
        unanswered = [paths.n_unanswered(name) for name in names]
        for model in purchases(gains, usd, unanswered, round_usd, left_usd):
            path = paths.first_answer(names[model])
            if path is not None:
                yield path


@dataclass(eq=False)
class _Use:
    """A purpose on which a round spends a share of its money.

    Attributes:
        share: The share of the round's money, > 0.
        take: Returns the next path; None if none is left.
        used_usd: The expected cost of the paths taken, in dollars.
    """

    share: float
    take: Callable[[], RequestPath | None]
    used_usd: float = 0.0

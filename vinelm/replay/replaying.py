"""``vinelm replay``: asks cheaper models the recorded prompts, and reaches a verdict on each step. Spends money."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias, TypeVar

from vinelm.backends import create_backends
from vinelm.backends.base import langsmith_names
from vinelm.backends.diagnostics import require_keys
from vinelm.backends.registry import rate_limiters_of
from vinelm.backends.remote.batches import BatchTimes
from vinelm.catalog import Catalog, Model
from vinelm.errors import ConfigError
from vinelm.profiler import RayCluster
from vinelm.profiler.cluster.starting import cluster_worker
from vinelm.proof import Ask, Candidate, Compare, Ended, Question, Race, Standing, choose_candidates, labels_needed
from vinelm.proof.wealth import JUDGE_LABELS, JUDGE_R2, JUDGE_SHARE
from vinelm.replay.asking import Asker, CallerMaker
from vinelm.replay.bill import Bill, StepBill
from vinelm.replay.conversations import MOST_TOGETHER, cut, largest, prompts_of, whole
from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.reading import EVEN_DAYS, weighted
from vinelm.replay.judge import ORDERS, TRIED, verdict_name, verdict_of
from vinelm.replay.kept import MOST_WEIGHT, Kept, ReplayUnit, Sample, Weighing, kept, number_of
from vinelm.replay.labels import scores
from vinelm.replay.plan_file import plan_file_of
from vinelm.replay.plans import AnswerPlan, Follower, PlanAnswer, all_plans, figures
from vinelm.replay.result import REQUESTS_USED, ReplayResult, StepResult, canary_lines, lines_to_paste
from vinelm.replay.same import Message, Sameness, named_function
from vinelm.replay.traced import is_entry_of
from vinelm.requests.protocols import Backend
from vinelm.trie.verdict import LEAST_ROWS, MAX_LOSS, Advice, counted, require_max_loss

LABELS = 100
LEAST_SHARE = 0.05
"""Steps with a smaller share of the bill are only looked at if they are named."""
MOST_EQUAL = 5
"""How many steps are looked at if none has this share: the most expensive ones."""
MODELS = 5
"""How many cheaper models are asked for each step."""
CHOOSING = 150
"""How many requests choose the plans: at most this number, and at most a third of all."""
ROUNDS, WAVES = (10, 30, 75, CHOOSING), (30, CHOOSING)
"""Numbers of requests after which each model's worth is checked; and the same if each wave of calls may take a day."""
LEAST_SAVED = 0.2
"""Share of a step's dollars: a model that saves less is not asked, or no longer."""
LEAST_SAME = 0.25
"""A model is no longer asked if its answers are surely the same in less than this share of requests: a plan could hardly use
it."""
LEAST_SEEN = 10
CHOOSING_SHARE = 0.6
"""Share of the budget for choosing; the proof needs the rest."""
NOISE = 40
"""How many requests today's model is asked again."""
NOISE_SHARE = 0.1
"""Share of the remaining budget for this."""
AHEAD = 10
"""How many questions are open at a time, so that people need not wait for the next one."""
TEXTS = 5
LEAST_DAYS, UNEVEN = 3, 5.0
"""Traces of fewer days are not checked for unevenness; a day with five times the calls of the usual one is reported."""

_Found = TypeVar("_Found")
_Asking: TypeAlias = Generator[list[tuple[ReplayUnit, str]], None, _Found]
"""Yields calls to make before it continues; afterwards the stored answers show which of them were made."""


@dataclass
class StepRun:
    """One step of the application, for which cheaper models are compared and plans are tested.

    Attributes:
        bill: The step's costs and calls.
        units: The sampled calls, in their random order.
        month_usd: The step's cost in dollars per month; None if the trace spans less than a day.
        models: Cheaper models, cheapest first. ``dropped``: the reason why a model is no longer asked, keyed by model.
        audit: Share of equal answers about which people are asked, as an audit.
        plans: All plans over these models, keyed by name. ``candidates``: those of them that are tested.
        race: The statistical test of the plans; None before it begins.
        choosing: The first ``choosing`` sampled calls are used to choose the plans, all others for the proof. No
            conversation has calls in both parts.
        together: The maximum number of sampled calls that are used of one conversation, or of calls with the same prompt.
        uncut: Number of sampled calls before conversations were cut to ``together`` calls.
        done: The number of sampled calls whose prompt was sent to a model, keyed by model.
        labels: Number of labels that this step may use. ``is_behind``: whether no plan is tested because other steps got all
            labels.
        forecast: The numbers of labels with which the proof is expected to succeed in half of all cases, and in 80 % of them.
            Estimated before the first label.
        open: The open questions for people, as pairs (sampled call, the model whose answer is compared with the
            recorded one).
        is_stream: Whether sampled calls still arrive, in a given order.
        is_short: Whether too few sampled calls of a stream have arrived to choose plans.
        least_saved: The share of the step's cost that a plan must save to be tested.
        max_slowdown: Plans slower than this multiple of today's latency are not tested; None ignores latency.
    """

    bill: StepBill
    units: list[ReplayUnit]
    month_usd: float | None
    models: list[str]
    audit: float = 0.0
    dropped: dict[str, str] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    plans: dict[str, AnswerPlan] = field(default_factory=dict)
    candidates: list[Candidate] = field(default_factory=list)
    labels: int = 0
    is_behind: bool = False
    forecast: tuple[float, float] | None = None
    race: Race | None = None
    open: list[tuple[ReplayUnit, str]] = field(default_factory=list)
    is_stream: bool = False
    least_saved: float = LEAST_SAVED
    max_slowdown: float | None = None
    together: int = 1
    uncut: int = 0
    is_short: bool = False
    _chosen: int = 0

    def __post_init__(self) -> None:
        self.uncut = len(self.units)
        first = whole(self.units, self._wanted())
        self.together = largest(self.units[:first])
        self._chosen = len(cut(self.units[:first], self.together))
        self.units = cut(self.units, self.together)

    def _wanted(self) -> int:
        """Return how many sampled calls, counted from the first, should be used to choose the plans.

        The rest of the last call's conversation is used for this, too. Sets :attr:`is_short` if calls still arrive and are too
        few so far.
        """
        if not self.is_stream:
            return min(CHOOSING, len(self.units) // 3)
        seen, count = Counter[str](), 0
        for place, unit in enumerate(self.units):  # the first that choose enough, however long conversations are
            seen[unit.cluster] += 1
            count += seen[unit.cluster] <= MOST_TOGETHER
            if count == CHOOSING:
                return place + 1
        self.is_short = True
        return len(self.units)

    @property
    def choosing(self) -> int:
        """The number of sampled calls, from the first on, that are used to choose the plans."""
        return max((size for size in ROUNDS if size <= self._chosen), default=0) if self.is_short else self._chosen

    def begun(self, **settings: Any) -> Race:
        """Begin the statistical test of the candidate plans on the sampled calls kept for the proof, and return the test.
        ``settings`` are further arguments of :class:`Race`.

        The test counts each conversation once, weighted by its number of requests.
        """
        clusters = [unit.cluster for unit in self.units[self.choosing :]]
        sizes, is_one = Counter(clusters), self.together == 1
        return Race(
            self.candidates, requests=len(clusters), labels=self.labels, audit=self.audit, clusters=clusters,
            weights=None if is_one else [float(sizes[one]) for one in clusters],
            max_weight=None if is_one else float(self.together), **settings,
        )  # fmt: skip

    @property
    def usd(self) -> float:
        """The step's cost in dollars: per month if the trace spans at least a day, otherwise of the recorded calls."""
        return self.bill.cost_usd if self.month_usd is None else self.month_usd

    @property
    def today(self) -> str:
        """The model that answered most of the step's calls."""
        return self.bill.models.most_common(1)[0][0]

    def live(self) -> list[str]:
        """Return the models that the replay still asks in this step, in order of rising cost."""
        return [model for model in self.models if model not in self.dropped]


def replay(
    calls: Iterable[LoggedCall],
    store: str | Path,
    models: Any,
    *,
    budget_usd: float,
    labels: int | None = None,
    max_loss: float | None = None,
    steps: Sequence[str] = (),
    same: str | Callable[[str, str], bool] | None = None,
    check: str | Callable[[Any, Any], bool] | None = None,
    database: str | Path | None = None,
    ignore: Sequence[str] = (),
    audit: float | None = None,
    requests: int = 2000,
    weights: str | Callable[[LoggedCall], float] | None = None,
    workers: int = 4,
    seed: int = 0,
    judge: str | None = None,
    batch_prices: bool | BatchTimes = False,
    again: bool = False,
    show_text: bool = False,
    engine: str = "this-machine",
    ship: bool = False,
    backends: Mapping[str, Backend] | None = None,
    on_line: Callable[[str], None] = lambda line: None,
    on_progress: Callable[[int, int], None] = lambda done, of: None,
    on_note: Callable[[str], None] | None = None,
) -> ReplayResult:
    """Find, for each step of recorded calls, a cheaper plan that provably answers as well, with labels only where answers
    differ.

    Sends recorded prompts to the models, which costs money unless the models are simulated. Each call's maximum cost is
    stored before the call. So after a crash, calling this function with the same arguments continues, and pays for nothing
    twice. If the proof needs people's answers, the function stores the questions and returns (see
    :func:`~vinelm.replay.labels.next_questions`). Call it again after some questions were answered.

    Args:
        calls: The recorded calls; read once, in bounded memory.
        store: The file that stores everything, including prompts and answers; created with mode 600.
        models: The models that may be asked: a catalog, the path of its file, ``provider:model`` strings or chat models by
            name. For each step, models cheaper than the step's current model are asked. The current model is asked, too, to
            measure how often its answers differ from its recorded answers.
        budget_usd: The maximum cost of all calls of the store, in dollars.
        labels: Maximum number of questions that people are asked, for all steps together. None: 100.
        max_loss: Points of accuracy that a cheaper plan may lose. In Python a fraction in [0, 1). None: 3.
        steps: Names of the steps to study. None: those with 5 % of the bill or more.
        same: ``same(recorded, other)``: whether two free texts are the same. In Python also the function itself, see
            :class:`~vinelm.replay.Sameness`. None: the same characters.
        check: ``check(messages, answer)``: whether the application would accept an answer without a person's help. A plan
            falls back if the check refuses its answer. In Python also the function itself. None: no plan has a check.
        database: A SQLite file on which SQL is executed: queries with the same rows are the same.
        ignore: Fields of structured output that are not compared.
        audit: Share of equal answers that people are asked about, as an audit. None: 0, or 0.2 if equal answers may have
            different scores.
        requests: Maximum number of sampled requests of each step.
        weights: How many calls each recorded call represents, if the trace is not a random sample. ``days`` gives each day
            the same weight. A function ``weight(call)`` gets a :class:`~vinelm.replay.LoggedCall` and returns the number.
            In Python also the function itself. None: the sampling rates in the trace.
        workers: Maximum number of calls at the same time.
        seed: Decides the sample, its order, and which answer is shown on which side.
        judge: Model that compares differing answers, in both orders: one of ``models``, or provider:model. Its verdicts are
            compared with the labels. They save labels if they agree with people, and are no longer used otherwise; they
            never decide alone. None: no judge.
        batch_prices: Make the calls in the providers' batches, at half the price; each wave of calls takes up to a day.
            Plans are still compared at ordinary prices. In Python also how long to wait.
        again: Begin a new attempt: choose plans again from all stored answers, and test them with a smaller error
            probability. Each use begins another attempt; omit it to continue the last one.
        show_text: Include examples of differing answers in the result.
        engine: Machines that make the calls: this-machine, or the nodes of a Ray cluster: ray://HOST:PORT, ray://auto (the one
            that this machine belongs to) or ray://local (starts one for this run). Each node needs the keys.
        ship: With ``engine=ray://...``: copy the current folder, without .env, to the nodes.
        backends: The backend of each provider, keyed by provider; None creates those of the catalog.
        on_line: Called with each line of the announcement that precedes the first call.
        on_progress: Called from time to time with the number of finished calls and the number of all calls needed so far.
        on_note: Called, from any thread, with a line of text if a node of the cluster is lost or cannot be used.

    Returns:
        The verdict on each step.

    Raises:
        ConfigError: An argument is wrong, or the store was made for another trace, other models or other options.
        StoreError: The store cannot be used, or another process holds it.
        WorkerDied: No node of the cluster is left. The same call continues.
        VineLMError: A batch has not ended in time (code ``batches-left``). The same call continues to wait.
    """
    cluster = RayCluster.of(engine, ship=ship)
    own = Catalog.of(models)
    catalog = own if judge is None else _with_judge(own, judge)
    compared = Sameness(same, database=database, ignore=ignore, audit=audit)
    checks = None if check is None else named_function(check, "check")
    if not (budget_usd > 0.0 and math.isfinite(budget_usd)):
        raise ConfigError(f"budget_usd is {budget_usd}: give the dollars that all calls together may cost")
    if labels is not None and labels < 0:
        raise ConfigError(f"labels is {labels}: give the number of questions that persons are ready to answer")
    if cluster is not None and batch_prices:
        raise ConfigError("calls at batch prices wait for their provider and need no cluster: leave one of the two out")
    if cluster is not None and (catalog.live or backends is not None):
        raise ConfigError("other machines cannot load chat models of this process: give the path of a catalog")
    if backends is None:
        require_keys(catalog.entries)
        backends = create_backends(catalog, seed=seed)
    allowed = require_max_loss(MAX_LOSS if max_loss is None else max_loss)
    options = {
        "seed": str(seed), "max-loss": str(allowed), "steps": "\n".join(steps), "same": _name_of(same),
        "check": _name_of(check), "database": str(database or ""), "ignore": "\n".join(ignore), "requests": str(requests),
        "audit": "" if audit is None else str(audit), "judge": judge or "", "weights": _name_of(weights),
    }  # fmt: skip
    if is_weighed := weights is not None and weights != EVEN_DAYS:
        calls = weighted(calls, named_function(weights, "weights"))
    sample = Sample(calls, seed=seed, requests=requests, even_days=weights is not None and not is_weighed)
    titles = [step.title for step in sample.bill.steps]
    if not titles:
        raise ConfigError("no LLM call was found: check the format of the trace")
    if unknown := [step for step in steps if step not in titles]:
        raise ConfigError(f"the trace has no step {unknown[0]!r}: it has {', '.join(titles)}")
    is_simulated = any(backend.is_simulated for backend in backends.values())
    times = BatchTimes() if batch_prices is True else batch_prices or None
    with kept(store, sample, catalog, options, is_simulated=is_simulated) as held, ExitStack() as opened:
        hosts = None
        if cluster is not None:
            folder = Path(models).parent if isinstance(models, str | Path) else None
            maker = CallerMaker(catalog=catalog.to_dict(), folder=folder, seed=seed)
            limiters = rate_limiters_of(catalog, backends)
            hosts = cluster_worker(cluster, maker, catalog.models, limiters, on_note, verb="replay", unit="call")
            opened.callback(hosts.close)
        asker = Asker(
            held, catalog, budget_usd=budget_usd, workers=workers, backends=backends, times=times, hosts=hosts,
            on_progress=on_progress,
        )  # fmt: skip
        opened.callback(asker.close)
        run = ReplayRun(
            held, asker, catalog, compared, Follower(held, compared, checks), budget_usd=budget_usd, max_loss=allowed,
            labels=LABELS if labels is None else labels, seed=seed, with_check=checks is not None, workers=workers,
            show_text=show_text, on_line=on_line, is_simulated=is_simulated, again=again, judge=judge,
            asked=frozenset(own), days=sample.days, weighed=sample.weighed, weights=_name_of(weights),
        )  # fmt: skip
        return run.run(sample.bill, steps)


def _with_judge(catalog: Catalog, judge: str) -> Catalog:
    """Return the catalog, with an entry added for the model ``judge`` if it has none."""
    if judge in catalog:
        return catalog
    if ":" not in judge:
        raise ConfigError(f"judge {judge!r} is none of the models ({', '.join(catalog)}): name one of them, or PROVIDER:MODEL")
    more = Catalog.of([judge])
    return Catalog([*catalog.entries, *more.entries], catalog.backends, live=catalog.live)


def _name_of(given: Any) -> str:
    return (
        str(given or "")
        if not callable(given)
        else f"{given.__module__}:{getattr(given, '__qualname__', type(given).__name__)}"
    )


@dataclass
class ReplayRun:
    """One run of :func:`replay`, with its arguments.

    Attributes:
        kept: The open store.
        asker: Sends calls to the models.
        same: Compares two answers. ``follower``: computes the answers of plans.
        with_check: Whether plans may use the application's check.
        asked: Names of the catalog entries that may be asked.
        days: Number of calls on each day, keyed by step, then by day. ``weighed``: how the requests of a step were weighted,
            keyed by step. ``weights``: the name of the rule for weights; empty if only the trace's sampling rates count.
        choosing_share: Share of the budget that may be spent before the plans are chosen.
        alpha: The error probability that all attempts share.
        lines: The lines reported to ``on_line`` so far.
        counted: The numbers of the questions whose labels were already reported to a test.
    """

    kept: Kept
    asker: Asker
    catalog: Catalog
    same: Sameness
    follower: Follower
    budget_usd: float
    max_loss: float
    labels: int
    seed: int
    with_check: bool
    workers: int
    show_text: bool
    on_line: Callable[[str], None]
    is_simulated: bool
    again: bool
    judge: str | None
    asked: frozenset[str]
    days: Mapping[str, Counter[int]]
    weighed: Mapping[str, Weighing] = field(default_factory=dict)
    weights: str = ""
    choosing_share: float = CHOOSING_SHARE
    alpha: float = 0.05
    lines: list[str] = field(default_factory=list)
    counted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.said = scores(self.kept)

    def run(self, bill: Bill, named: Sequence[str] | None) -> ReplayResult:
        """Choose plans for each step, test them, and return the verdicts so far.

        Args:
            bill: The costs of the recorded calls, by step.
            named: The titles of the steps to study; None or empty for the most expensive steps.
        """
        shares = {step.key: step.cost_usd / bill.cost_usd if bill.cost_usd else 0.0 for step in bill.steps}
        chosen = [one for one in bill.steps if (one.title in named if named else shares[one.key] >= LEAST_SHARE)]
        chosen = chosen or list(bill.steps[:MOST_EQUAL])  # many steps, none of which has a large share of the bill
        studied = [self.study(one, bill.a_month(one.cost_usd)) for one in chosen]
        usable = [step for step in studied if len(step.units) >= LEAST_ROWS and step.models]
        notes = self.kept.rows.notes()
        if self.again and any(one["candidates"] for one in notes["chosen"].values()):
            notes |= {"attempt": notes["attempt"] + 1, "chosen": {}}
            self.kept.rows.note(notes)
        for step in usable:
            self.take_up(step, notes["chosen"].get(step.bill.key, {}))
        # If nothing has raced, choosing again with more dollars or labels spoils nothing.
        new = [step for step in usable if not step.candidates]
        self._say_what_is_sent(usable)
        self.asker.fetch(self.judge)
        self.explore(new)
        self.choose(new, self.labels - sum(step.labels for step in usable))
        notes["chosen"] |= {step.bill.key: self._noted(step) for step in new}
        self.kept.rows.note(notes)
        racing = [step for step in usable if step.candidates]
        if racing:  # labels that no step needs may help the largest step
            racing[0].labels = max(racing[0].labels + self.labels - sum(step.labels for step in racing), 0)
        # Each wave of batches may take a day, so all steps are asked at once then. Otherwise the first step gets the first
        # dollars.
        for together in [racing] if self.asker.is_batched else [[step] for step in racing]:
            self.ask_in_turn([self.race(step, notes["attempt"]) for step in together])
        self.open_questions(usable)
        results = [self._result(step) for step in studied]
        return ReplayResult(
            steps=results,
            any_differs=self._any_differs(list(zip(studied, results, strict=True))),
            others={one.title: shares[one.key] for one in bill.steps if one not in chosen},
            spent_usd=self.asker.spent_usd,
            budget_usd=self.budget_usd,
            attempt=notes["attempt"],
            is_simulated=self.is_simulated,
            lines=tuple(self.lines),
        )

    def open_questions(self, steps: Iterable[StepRun]) -> None:
        """In the store, mark the questions that these steps have to ask as open, and all other questions as closed."""
        self.kept.rows.open_questions(
            {
                "unit_id": unit.unit_id,
                "model": model,
                "is_today_left": bool(number_of(f"{self.seed} {unit.unit_id} {model}") % 2),
            }
            for step in steps
            for unit, model in step.open
        )

    def _say(self, line: str) -> None:
        self.lines.append(line)
        self.on_line(line)

    # -- what to ask -----------------------------------------------------------------------------------------------

    def study(
        self, bill: StepBill, month_usd: float | None, units: list[ReplayUnit] | None = None, *, is_stream: bool = False
    ) -> StepRun:
        """Return a step with its sampled calls, the cheaper models to ask, and the plans over these models.

        ``bill`` has the step's costs. ``month_usd`` is its cost in dollars per month; None if unknown. ``units`` are its
        sampled calls; None takes all stored ones. ``is_stream``: see :class:`StepRun`.
        """
        units = self.kept.of_step(bill.key) if units is None else units
        today = sum(unit.cost_usd for unit in units)
        costs = {
            entry.name: sum(entry.price.cost_usd(unit.tokens_in, unit.tokens_out) for unit in units)
            for entry in self.catalog.models
            if entry.name in self.asked and not self._is_today(entry, bill)
        }
        cheap = sorted(
            (model for model, cost in costs.items() if cost <= (1.0 - LEAST_SAVED) * today), key=lambda one: costs[one]
        )
        if len(cheap) > MODELS:  # from the cheapest to the strongest
            cheap = [cheap[round(place * (len(cheap) - 1) / (MODELS - 1))] for place in range(MODELS)]
        plans = {plan.name: plan for plan in all_plans(cheap, with_check=self.with_check)}
        audit = self.same.audit([unit.answer for unit in units])
        return StepRun(bill, units, month_usd, cheap, audit, plans=plans, is_stream=is_stream)

    @staticmethod
    def _is_today(entry: Model, bill: StepBill) -> bool:
        """Return whether a catalog entry is today's model: the model that answered most of the step's calls."""
        return is_entry_of(entry, bill.models.most_common(1)[0][0])

    def _own(self, step: StepRun) -> str | None:
        """Return the name of the catalog entry of the step's current model; None if the catalog lacks that model."""
        return next((entry.name for entry in self.catalog.models if self._is_today(entry, step.bill)), None)

    def _say_what_is_sent(self, steps: Sequence[StepRun]) -> None:
        """Announce which models get which prompts, and the maximum cost, before they are sent."""
        for step in steps:
            units, own = step.units[: step.choosing], self._own(step)
            places = ", ".join(map(self._place, step.models))
            told = f"up to {len(step.units) - len(units):,} recorded prompts go to each of {places} for the proof"
            if not step.candidates:
                again = "" if own is None else f", and {min(NOISE, len(units))} to {self._place(own)} again"
                pairs = [(unit, model) for unit in units for model in step.models]
                pairs += [(unit, own) for unit in units[:NOISE] if own is not None]
                bound = sum(self.asker.upper_bound_usd(*one) for one in pairs if not self.asker.is_known(*one))
                told = f"{len(units)} recorded prompts go to each of {places}{again}, for at most ${bound:.2f}; then {told}"
            if self.judge is not None:
                told += f"; where answers differ, the prompt and both go to {self._place(self.judge)}, twice"
            self._say(f"`{step.bill.title}`: {told}. All calls together cost at most ${self.budget_usd:g}.")

    def _place(self, model: str) -> str:
        entry = self.catalog[model]
        return f"{model} ({entry.api_base or langsmith_names(entry)[0]})"

    def explore(self, steps: Sequence[StepRun]) -> None:
        """Ask the models of each step about the first sampled calls, to choose plans from the answers.

        The steps with the highest cost come first. It stops when ``choosing_share`` of the budget is spent.
        """
        for step in steps:
            step.done = dict.fromkeys(step.models, 0)
        while True:
            open_ = [(step, model) for step in steps for model in step.live() if step.done[model] < step.choosing]
            if not open_:
                return
            open_.sort(key=lambda one: -self._worth(*one))
            batch, targets, usd = [], [], self.asker.spent_usd
            for step, model in open_ if self.asker.is_batched else open_[:1]:
                sizes = WAVES if self.asker.is_batched else ROUNDS
                target = min(next((size for size in sizes if size > step.done[model]), step.choosing), step.choosing)
                more = [(unit, model) for unit in step.units[:target] if not self.asker.is_known(unit, model)]
                if more and usd >= self.choosing_share * self.budget_usd:
                    break
                usd += sum(self.catalog[model].price.cost_usd(unit.tokens_in, unit.tokens_out) for unit, _ in more)
                batch += more
                targets.append((step, model, target))
            if not targets or not self.asker.ask(batch):
                return
            for step, model, target in targets:
                step.done[model] = target
                if (reason := self._hopeless(step, model)) is not None:
                    step.dropped[model] = reason

    def _worth(self, step: StepRun, model: str) -> float:
        """Return the priority of asking a model about more sampled calls of a step.

        The priority is higher for steps of higher cost, and for models that were asked about fewer calls.
        """
        return step.usd / (step.done[model] + ROUNDS[0])

    def _hopeless(self, step: StepRun, model: str) -> str | None:
        """Return the reason why a model should no longer be asked; None if it is worth asking."""
        units = step.units[: step.done[model]]
        if (failed := self.asker.failures(units, model)).total() > len(units) / 2:
            return f"{model} failed on {failed.total()} of {len(units)} prompts ({failed.most_common(1)[0][0]})"
        alone = self.followed(AnswerPlan("alone", (model,)), units)
        found = figures(self.follower, alone)
        if found.saved < LEAST_SAVED:
            more = -100 * found.saved
            return f"{model} would cost {more:.0f} % more" if more > 0.0 else f"{model} would save {-more:.0f} % only"
        same = 1.0 - found.differing / max(found.seen, 1)
        if found.seen >= 30 and same + 2.0 * math.sqrt(same * (1.0 - same) / found.seen) + 1.0 / found.seen < LEAST_SAME:
            return f"{model} differs in {found.differing} of {found.seen} requests"
        return None

    def followed(self, plan: AnswerPlan, units: Iterable[ReplayUnit]) -> list[tuple[ReplayUnit, PlanAnswer]]:
        """Return pairs (sampled call, the plan's answer) for these calls; stop at the first call for which a needed answer
        is not stored.
        """
        found = []
        for unit in units:
            one = self._follow(plan, unit)
            if isinstance(one, str):
                break
            found.append((unit, one))
        return found

    def _follow(self, plan: AnswerPlan, unit: ReplayUnit) -> PlanAnswer | str:
        return self.follower.follow(plan, unit, self.asker.is_known)

    # -- what to choose --------------------------------------------------------------------------------------------

    def choose(self, steps: Sequence[StepRun], labels: int) -> None:
        """Set, in each step, the plans to test and the step's share of ``labels``.

        Steps whose best plan saves the most dollars per needed label get their labels first.
        """
        found: list[tuple[float, int, StepRun]] = []
        for step in steps:
            for one in self._candidates(step, self.labels)[:1]:
                need = max(LEAST_SEEN, math.ceil(labels_needed(one.differing, self.max_loss)[1]))
                found.append((one.saved * step.usd / need, need, step))
        for _, need, step in sorted(found, key=lambda one: -one[0]):
            step.labels = max(min(labels, need), 0)
            step.candidates = self._candidates(step, step.labels)
            step.is_behind = not step.candidates
            labels -= step.labels if step.candidates else 0

    def _candidates(self, step: StepRun, labels: int) -> list[Candidate]:
        facts = []
        for name, plan in step.plans.items():
            if any(model in step.dropped for model in plan.models):
                continue
            found = figures(self.follower, self.followed(plan, step.units[: step.choosing]))
            if found.seen >= LEAST_SEEN and not found.is_slower(step.max_slowdown):
                facts.append(found.facts(name))
        return choose_candidates(facts, margin=self.max_loss, labels=labels, least_saved=step.least_saved)

    def _noted(self, step: StepRun) -> dict[str, Any]:
        """Return a step's candidates, number of labels and dropped models as JSON types. They are stored, so that later
        runs test the same plans.
        """
        chosen = [[one.name, one.saved, one.differing] for one in step.candidates]
        return {"candidates": chosen, "labels": step.labels, "dropped": step.dropped}

    @staticmethod
    def take_up(step: StepRun, noted: Mapping[str, Any]) -> None:
        """Copy an earlier run's choice of plans into ``step``.

        ``noted`` is what :meth:`_noted` returned in that run; if it has no candidates, ``step`` stays unchanged.
        """
        if noted.get("candidates"):
            step.dropped, step.labels = dict(noted["dropped"]), noted["labels"]
            step.candidates = [Candidate(*one) for one in noted["candidates"]]

    # -- the proof -------------------------------------------------------------------------------------------------

    def ask_in_turn(self, races: Sequence[_Asking[None]]) -> None:
        """Advance several tests together, until each of them has ended or needs people's answers.

        A test yields the calls of models that it needs; this method makes the calls and resumes the test.
        """
        while wanted := [(race, more) for race in races if (more := next(race, None)) is not None]:
            races = [race for race, _ in wanted]
            self.asker.ask([one for _, more in wanted for one in more])

    def race(self, step: StepRun, attempt: int) -> _Asking[None]:
        """Test a step's candidate plans on the sampled calls kept for the proof, until the test ends or needs people's
        answers.

        Yields lists of model calls, which the caller must make before the test can continue. ``attempt`` is the number of
        the attempt, from 1.
        """
        units = step.units[step.choosing :]
        step.race = race = step.begun(
            max_loss=self.max_loss, attempt=attempt, alpha=self.alpha, judge=self.judge is not None, seed=self.seed
        )
        step.forecast = labels_needed(step.candidates[0].differing, self.max_loss)
        if step.audit:  # the rule does not know of an audit, but the bets do
            half = race.standings()[0].needed[self.max_loss]
            step.forecast = half, 8.0 / 4.5 * half
        if today := self._today_again(step):
            yield today
        has_asked = False
        while not isinstance(race.next(), Ended):
            # The leader's next moves can be made at once: calls by several workers, questions while others wait.
            moves = race.upcoming(self._ahead(step))
            questions = [one for one in moves if isinstance(one, Question)]
            step.open = [one for move in questions if (one := self._tell(step, move, units[move.request])) is not None]
            if len(step.open) < len(questions):
                continue
            if step.together > 1:
                step.open = list({self._question(*one): one for one in reversed(step.open)}.values())[::-1]
            if compares := [(one, units[one.request]) for one in moves if isinstance(one, Compare)]:
                if not (yield from self._compare(step, compares)):
                    return
                continue
            if step.open and not has_asked:
                has_asked = True
                self._say(self._forecast(step))
            # This saves waiting for the next question, and few questions are opened in vain.
            needed = min(one.needed[self.max_loss] for one in race.standings())
            is_enough = len(step.open) >= min(AHEAD, 2.0 * needed + 1.0)
            asks = [] if is_enough else [(one, units[one.request]) for one in moves if isinstance(one, Ask)]
            if not (yield from self._ask(step, asks)):
                return
        step.open = []

    def _ahead(self, step: StepRun) -> int:
        """Return how many of the test's next moves are prepared together. A move is a call of a model or a question to people.

        If calls are made in batches, these are about as many moves as the proof may need, at most :attr:`Asker.workers`.
        """
        if self.asker.is_batched and step.race is not None:
            needed = min(one.needed[self.max_loss] for one in step.race.standings())
            requests = (needed + 1.0) / min(one.differing for one in step.candidates)
            return int(min(max(requests, AHEAD), self.asker.workers))
        return AHEAD + 2 * self.workers

    def _tell(self, step: StepRun, move: Question, unit: ReplayUnit) -> tuple[ReplayUnit, str] | None:
        """If the result of the question ``move`` is known, report it to the test and return None.

        The result is known if people have answered an equal question, or if the plan's answer is equal to the recorded one.
        Otherwise return the question for people, as (sampled call, model whose answer is compared with the recorded one).
        """
        followed, race = self._follow(step.plans[move.candidate], unit), step.race
        assert isinstance(followed, PlanAnswer)
        assert race is not None
        said = None if followed.model is None else self.kept.message(unit, followed.model)
        if followed.model is None or said == unit.answer:  # would be audited, but is equal word for word
            race.labelled(move.candidate, move.request, 0.0, counted=False)
            return None
        asked = [key for key in self.said if self._is_question(key, unit, said)]
        known = min(asked, key=lambda key: key[0] != unit.unit_id, default=None)
        if known is None:
            return unit, followed.model
        number, score = self.said[known]
        if score is None:
            race.skipped(move.candidate, move.request)
        else:
            race.labelled(move.candidate, move.request, score, counted=number not in self.counted)
        self.counted.add(number)
        return None

    def _question(self, unit: ReplayUnit, model: str) -> tuple[str, ...]:
        """Return a key of the question that compares a model's answer with the recorded one. Questions with equal keys need
        only one label.

        The key has the prompt and both answers.
        """
        said = (self.kept.prompt(unit), unit.answer, self.kept.message(unit, model))
        return tuple(json.dumps(one, sort_keys=True) for one in said)

    def _is_question(self, asked: tuple[int, str], unit: ReplayUnit, said: Message | None) -> bool:
        """Return whether a labelled question compares the same two answers to the same prompt as a new question would.

        Args:
            asked: The labelled question: the number of its sampled call, and the model of its other answer.
            unit: The sampled call of the new question, with the recorded answer.
            said: The other answer of the new question.
        """
        other = self.kept.units[asked[0]]
        found, wanted = (
            (prompts_of(one.cluster), one.answer, message)
            for one, message in ((other, self.kept.message(other, asked[1])), (unit, said))
        )
        if found != wanted:
            return False
        return other.unit_id == unit.unit_id or self.kept.prompt(other) == self.kept.prompt(unit)

    def _ask(self, step: StepRun, asks: Sequence[tuple[Ask, ReplayUnit]]) -> _Asking[bool]:
        """Yield the model calls that ``asks`` need, then report to the test whether each plan's answer equals today's.

        Each item of ``asks`` is a move of the test, which asks for a plan's answer to a sampled call. Return whether at least
        one answer could be reported.
        """
        race, wanted = step.race, list(asks)
        assert race is not None
        while wanted:  # whether a plan asks its next model may depend on the previous answer
            needs = [(ask, unit, self._follow(step.plans[ask.candidate], unit)) for ask, unit in wanted]
            wanted = [(ask, unit) for ask, unit, need in needs if isinstance(need, str)]
            more = [one for ask, unit, need in needs if isinstance(need, str) for one in self._needed(step, ask, unit, need)]
            if more:
                yield more
            if not all(self.asker.is_known(*one) for one in more):
                break
        has_told = False
        for ask, unit in asks:
            followed = self._follow(step.plans[ask.candidate], unit)
            if isinstance(followed, PlanAnswer):
                race.answered(ask.candidate, ask.request, self.follower.is_same(unit, followed))
                has_told = True
        return has_told

    def _needed(self, step: StepRun, ask: Ask, unit: ReplayUnit, model: str) -> list[tuple[ReplayUnit, str]]:
        """Return the next calls that a plan needs, as pairs (sampled call, model). Usually this is one call of ``model``.

        If calls are made in batches, all models of a plan of kind ``agree`` are called at once.
        """
        plan = step.plans[ask.candidate]
        models = plan.models if self.asker.is_batched and plan.kind == "agree" else (model,)
        return [(unit, one) for one in models]

    def _compare(self, step: StepRun, compares: Sequence[tuple[Compare, ReplayUnit]]) -> _Asking[bool]:
        """Yield the calls in which the judge compares answers, then report its verdicts to the test.

        Return False if no verdict could be reported. If the judge has proved useless for a candidate plan, it is not called for
        that plan; only stored verdicts are used.
        """
        race, judge = step.race, self.judge
        assert race is not None
        assert judge is not None
        useless = {one.candidate for one in race.standings() if self._is_useless(one)}
        asked, wanted = [], []
        for move, unit in compares:
            followed = self._follow(step.plans[move.candidate], unit)
            assert isinstance(followed, PlanAnswer)
            assert followed.model is not None
            other = self.kept.message(unit, followed.model)
            assert other is not None
            more = self.asker.compare(unit, judge, other)
            if more and move.candidate in useless:
                race.judged(move.candidate, move.request, None)
            else:
                wanted += more
                asked.append((move, unit, {order: verdict_name(judge, other, order) for order in ORDERS}))
        if wanted:
            yield wanted
        has_told = len(asked) < len(compares)
        for move, unit, names in asked:
            if all(self.asker.is_known(unit, name) for name in names.values()):
                verdict = verdict_of({order: self.kept.message(unit, name) for order, name in names.items()})
                race.judged(move.candidate, move.request, verdict)
                has_told = True
        return has_told

    @staticmethod
    def _is_useless(standing: Standing) -> bool:
        return standing.labels >= TRIED and standing.judge_r2 is not None and standing.judge_r2 < JUDGE_R2

    def _today_again(self, step: StepRun) -> list[tuple[ReplayUnit, str]]:
        """Return the calls in which today's model answers recorded prompts again, to measure how often it differs from
        itself.

        The items are (sampled call, model). The list is empty if today's model is not in the catalog, or too little of the
        budget is left.
        """
        model = self._own(step)
        mean = sum(unit.cost_usd for unit in step.units) / len(step.units)
        room = NOISE_SHARE * self.asker.left_usd / mean if mean else math.inf
        asked = int(min(NOISE, step.choosing, room))
        return [] if model is None or asked < LEAST_SEEN else [(unit, model) for unit in step.units[:asked]]

    def _noise(self, step: StepRun) -> tuple[int, int] | None:
        model = self._own(step)
        if model is None:
            return None
        done = [unit for unit in step.units[:NOISE] if self.kept.message(unit, model) is not None]
        alone = [(unit, PlanAnswer(model, 0.0, None)) for unit in done]
        return (sum(not self.follower.is_same(*one) for one in alone), len(done)) if done else None

    def _forecast(self, step: StepRun) -> str:
        assert step.forecast is not None
        half, most = (math.ceil(one) for one in step.forecast)
        return (
            f"`{step.bill.title}`: about {counted(half, 'label')} in half of all cases, {most} in four of five, would prove"
            f" that {step.candidates[0].name} loses less than {100 * self.max_loss:g} points; {step.labels} are to be had."
        )

    # -- verdicts --------------------------------------------------------------------------------------------------

    def _result(self, step: StepRun) -> StepResult:
        chosen = [
            (name, figures(self.follower, self.followed(plan, step.units[: step.choosing])))
            for name, plan in step.plans.items()
        ]
        table = sorted((one for one in chosen if one[1].seen >= LEAST_SEEN), key=lambda one: -one[1].saved)
        own: dict[str, Any] = {
            "step": step.bill.title, "today": step.today, "usd": step.usd, "is_monthly": step.month_usd is not None,
            "max_loss": self.max_loss, "audit": step.audit, "how": self.same.how([unit.answer for unit in step.units]),
            "notes": self._notes(step), "noise": self._noise(step), "forecast": step.forecast,
            "table": [(name, one.saved, one.differing, one.seen) for name, one in table],
        }  # fmt: skip
        if step.race is None:
            return StepResult(**own | self._without(step, table))
        end, standings = step.race.next(), step.race.standings()
        at = min(standings, key=lambda one: (one.needed[self.max_loss] + 3.0) / max(one.saved, 1e-9))
        if isinstance(end, Ended) and end.candidate is not None:
            at = next(one for one in standings if one.candidate == end.candidate)
        done = self.followed(step.plans[at.candidate], step.units)
        found = figures(self.follower, done)
        advice, why = self._advice(step, end, at)
        own |= {
            "advice": advice, "why": why, "plan": at.candidate, "kind": step.plans[at.candidate].kind,
            "saved": found.saved, "differing": found.differing,
            "seen": found.seen, "latency_s": found.latency_s, "today_s": found.today_s, "labels": at.labels,
            "skipped": at.skipped, "waiting": len(step.open), "proven": at.proven,
            "needed": {loss: math.ceil(more) for loss, more in at.needed.items() if 0.0 < more < math.inf},
            "texts": self._texts(done) if self.show_text else (), "judge": self.judge, "judge_r2": at.judge_r2,
            "judge_used": at.judge_used,
        }  # fmt: skip
        if self.judge is not None:
            own["notes"] = [*own["notes"], self._of_judge(step, at)]
        if advice == "switch":
            plan, today = step.plans[at.candidate], self._own(step)
            own["paste"] = lines_to_paste(plan, step.bill.title, step.today, self.catalog)
            if plan.kind == "alone" and today is not None:  # a cascade has no stage that could be planned
                own["paste"] += f"\n{canary_lines(step.bill.title, today, self.max_loss)}"
                own["plan_file"] = plan_file_of(
                    step.bill.title, today=today, plan=plan.models[0], done=done, at=at, catalog=self.catalog,
                    max_loss=self.max_loss,
                )  # fmt: skip
        return StepResult(**own)

    def _any_differs(self, found: Iterable[tuple[StepRun, StepResult]]) -> tuple[int, int]:
        """Return (number of requests in which a switched step's plan gives another answer than the recorded one, number of
        requests).

        Both count only requests that the plans of all switched steps have answered.
        """
        answered = []
        for step, result in found:
            if result.advice == "switch" and result.plan is not None:
                done = self.followed(step.plans[result.plan], step.units)
                answered.append({unit.request: not self.follower.is_same(unit, one) for unit, one in done})
        common = set.intersection(*map(set, answered)) if answered else set()
        return sum(any(one[request] for one in answered) for request in common), len(common)

    def _advice(self, step: StepRun, end: Any, at: Standing) -> tuple[Advice, str]:
        loss, more = f"a loss of {100 * self.max_loss:g} points", at.needed[self.max_loss]
        if not isinstance(end, Ended):
            if self.asker.is_exhausted and not step.open:
                return "undecided", f"the budget of ${self.budget_usd:g} is used up before {loss} is excluded"
            wait = f"{counted(len(step.open), 'question')} {'waits' if len(step.open) == 1 else 'wait'}"
            return "undecided", f"{loss} is not excluded yet, and {wait} for an answer"
        if end.reason == "proven":
            return "switch", ""
        if end.reason == "labels":
            return "undecided", f"{loss} is not excluded by {step.labels} labels"
        assert step.race is not None
        # The other plans may be hopeless while the nearest one only lacks requests: then labels for it would suffice.
        if end.reason == "requests" or (at.requests == step.race.requests and more <= step.labels - at.labels):
            return "undecided", REQUESTS_USED
        why = f"nothing cheaper can be proven within {step.labels} labels to exclude {loss}"
        if at.labels and at.diff < 0.0:
            return "keep", f"{why}: after {at.labels} labels it seems to lose {-100 * at.diff:.1f} points"
        return "keep", f"{why}: about {more:,.0f} more would be needed" if math.isfinite(more) else why

    def _without(self, step: StepRun, table: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """Return fields of :class:`StepResult` for a step in which no plan was tested: the advice, the reason, and others.

        ``table`` has pairs (name, :class:`PlanComparison`), one for each plan that was compared, largest saving first.
        """
        if len(step.units) < LEAST_ROWS:
            why = f"{len(step.units)} requests can be compared, and {LEAST_ROWS} are needed"
            if step.uncut > len(step.units):
                why += f": {step.uncut - len(step.units):,} others are of the same conversations, or repeat a prompt"
            if step.bill.unpriced:
                why += f", {step.bill.unpriced:,} of its {step.bill.calls:,} calls have no known price"
            return {"advice": "not enough data", "why": why}
        if not step.models:
            return {"advice": "keep", "why": f"none of the models would save {100 * LEAST_SAVED:.0f} % of its dollars"}
        if not table or not step.live():
            if step.live():
                why = f"the budget of ${self.budget_usd:g} is used up before plans could be compared"
                return {"advice": "not enough data", "why": why}
            return {"advice": "keep", "why": "; ".join(step.dropped.values())}
        saving = [one for one in table if one[1].saved >= LEAST_SAVED]
        if not saving:
            return {"advice": "keep", "why": f"no plan saves {100 * LEAST_SAVED:.0f} % of its dollars"}
        name, best = min(saving, key=lambda one: one[1].differing / one[1].seen)
        share = (best.differing + 1) / (best.seen + 2)
        half, most = (math.ceil(one) for one in labels_needed(share, self.max_loss))
        loss = f"a loss of {100 * self.max_loss:g} points"
        would = f"about {half:,} in half of all cases, {most:,} in four of five, would exclude {loss}"
        shown = {"plan": name, "saved": best.saved, "differing": best.differing, "seen": best.seen, "forecast": (half, most)}
        if step.is_behind:
            return {"advice": "undecided", "why": f"other steps get the {self.labels} labels first; {would}", **shown}
        why = f"nothing cheaper can be proven within {self.labels} labels, so that no question is asked; {would}"
        return {"advice": "keep", "why": why, **shown}

    def _notes(self, step: StepRun) -> list[str]:
        found = list(step.dropped.values())
        for model in step.models:
            failed = self.asker.failures(step.units, model)
            if failed and model not in step.dropped:
                reason, count = failed.most_common(1)[0]
                found.append(f"{model} failed on {failed.total()} prompts, which today's model answers ({count}: {reason})")
            if refused := self.asker.refused(model):
                found.append(f"{model} does not take {', '.join(refused)}: it was asked without")
        if several := sum(unit.weight > 1 for unit in step.units):
            found.append(f"in {several} of {len(step.units)} requests the step is called several times: one call was drawn")
        if step.bill.unpriced:
            found.append(f"{step.bill.unpriced:,} calls have no known price, and are left out")
        numbers = {unit.unit_id for unit in step.units}
        shared = [one for (unit, _), one in self.kept.rows.said().items() if unit in numbers and one.people > 1]
        if shared:
            split = sum(one.is_split for one in shared)
            found.append(
                f"{counted(len(shared), 'question')} answered by several people, who disagree on {split}: the mean counts"
            )
        if (weighing := self.weighed.get(step.bill.key)) is not None:
            found.append(self._weighing(weighing))
        elif self.weights != EVEN_DAYS and (uneven := self._uneven(step)) is not None:
            found.append(uneven)
        if (groups := len({unit.cluster for unit in step.units})) < step.uncut and not step.is_stream:
            most = "one request" if step.together == 1 else f"at most {step.together} requests"
            left = f"; {step.uncut - len(step.units):,} are left out" if step.uncut > len(step.units) else ""
            found.append(
                f"its {step.uncut:,} sampled requests are {groups:,} conversations or prompts: each is one unit of the test,"
                f" with {most}{left}"
            )
        if len(step.bill.models) > 1:
            found.append(f"the recorded answers are of {len(step.bill.models)} models, most of {step.today}")
        return found

    def _weighing(self, weighing: Weighing) -> str:
        """Return a sentence on how a step's requests were drawn, for requests that represent different numbers of calls."""
        why = {EVEN_DAYS: "each day counts the same", "": "by the sampling rates in the trace"}
        told = (
            f"{why.get(self.weights, f'by {self.weights}')}: {weighing.used:,} of {weighing.sampled:,} sampled requests were"
            " drawn in proportion to the calls that they represent"
        )
        cut = f"; {weighing.cut:,} represent more than {MOST_WEIGHT:g} times the mean, and count as that"
        return f"{told}{cut if weighing.cut else ''}"

    def _uneven(self, step: StepRun) -> str | None:
        """Return a warning if one day of the trace has far more of the step's calls than the other days; None otherwise."""
        days = self.days.get(step.bill.key, Counter())  # a step may have no comparable call
        if len(days) < LEAST_DAYS:
            return None
        day, most = days.most_common(1)[0]
        if most <= UNEVEN * median(days.values()):
            return None
        named = datetime.fromtimestamp(day * 86_400.0, UTC).date().isoformat()
        return (
            f"{100 * most / days.total():.0f} % of its calls are of one day of {len(days)}, {named}: what is proven holds for "
            "such a mix; if that is not a random sample of what is served, let each day count the same: --weights days"
        )

    def _of_judge(self, step: StepRun, at: Standing) -> str:
        """Return a line about the judge model in a step: its number of verdicts, and whether they save labels.

        ``at`` is the state of the test.
        """
        units, begins = {unit.unit_id for unit in step.units}, f"{self.judge} on "
        said = [answer for (unit, name), answer in self.kept.answers.items() if unit in units and name.startswith(begins)]
        failed = Counter(answer.detail or str(answer.failure) for answer in said if answer.answer is None)
        told = f"judge {self.judge}, {counted(len(said) - failed.total(), 'verdict')}"
        if failed:
            told += f" and {counted(failed.total(), 'failed call')} ({failed.most_common(1)[0][0]})"
        if at.labels < JUDGE_LABELS or at.judge_r2 is None:
            return f"{told}: measured from {JUDGE_LABELS} labels on"
        explains = f"{told}: explains {100 * at.judge_r2:.0f} % of the variance of the labels"
        if at.judge_used:
            return f"{explains}, so that persons are asked {100 * JUDGE_SHARE:g} % of the requests that differ"
        off = ", and is asked no more" if self._is_useless(at) else ""
        return f"{explains}, and would save none: switched off{off}"

    def _texts(self, done: Iterable[tuple[ReplayUnit, PlanAnswer]]) -> list[dict[str, Any]]:
        """Return examples of differing answers; each has the prompt, both answers, and the score from people's labels (None
        without a label).
        """
        differing = [(unit, one.model) for unit, one in done if one.model and not self.follower.is_same(unit, one)]
        return [
            {
                "messages": self.kept.prompt(unit)["messages"], "today": unit.answer, "other": self.kept.message(unit, model),
                "score": self.said.get((unit.unit_id, model), (0, None))[1],
            }
            for unit, model in differing[:TEXTS]
        ]  # fmt: skip

"""The settings of a profile: its sample, its limits, where its jobs run, and its callbacks."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from vinelm.backends.remote.equal_calls import RecordedCalls
from vinelm.errors import ConfigError
from vinelm.profiler.execution.batch_api import BatchPrices
from vinelm.profiler.execution.job import WorkflowSource
from vinelm.profiler.sampling.deciding_sampler import Candidates
from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.profiler.sampling.runs import Run
from vinelm.profiler.sampling.single_models import SingleModels
from vinelm.profiler.scheduling.coverage import Coverage
from vinelm.profiler.scheduling.results import Progress
from vinelm.requests.protocols import Sampler
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Observation
from vinelm.traces import StoreIdentity

Isolation = Literal["process", "thread", "inline"]
"""Where units run: each in a fresh process, on threads of this process, or on the calling thread."""


@dataclass(frozen=True, kw_only=True)
class RayCluster:
    """A Ray cluster that executes the jobs of a profile, or serves requests.

    Attributes:
        address: ``HOST:PORT`` of the head node; ``"auto"`` for the cluster of this machine or of ``RAY_ADDRESS``; ``"local"``
            to start one on this machine for the run.
        ships_folder: copy the working directory to the nodes, without ``.env``, version control and environments. Otherwise
            each node needs the folder at the same path.

    Raises:
        ConfigError: the address is for Ray Client, which is not supported (``ray-client``).
    """

    address: str = "auto"
    ships_folder: bool = False

    def __post_init__(self) -> None:
        if "://" in self.address:
            raise ConfigError(
                f"{self.address}: run this on a machine of the cluster, and give HOST:PORT or auto", code="ray-client"
            )

    @classmethod
    def of(cls, engine: str, *, ship: bool) -> RayCluster | None:
        """Return the cluster for an engine name; None for the name ``this-machine``.

        The other names are ``ray://HOST:PORT``, ``ray://auto`` and ``ray://local``. ``ship`` states whether the working
        directory is copied to the nodes.

        Raises:
            ConfigError: the name is not one of these, or ``ship`` is set for ``this-machine``, where it has no effect.
        """
        kind, is_ray, address = engine.partition("ray://")
        if is_ray and not kind:
            return cls(address=address or "auto", ships_folder=ship)
        if engine != "this-machine":
            raise ConfigError(f"unknown engine {engine!r}: use this-machine, ray://HOST:PORT, ray://auto or ray://local")
        if ship:
            raise ConfigError("ship has no effect without an engine ray://...: name one, or leave ship out", code="ship-unused")
        return None

    @property
    def is_local(self) -> bool:
        """True if a cluster is started for the run."""
        return self.address == "local"

    def environment(self) -> dict[str, str]:
        """Return the environment variables for the process that connects to Ray.

        A cluster that this process starts reports no usage statistics.
        """
        return {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"} if self.is_local else dict(os.environ)


@dataclass(frozen=True, kw_only=True)
class ExecutionConfig:
    """Where the jobs of a profile run, how many at a time, and what each may use.

    Attributes:
        isolation: ``"process"`` forks a fresh process for each job, from a process that has loaded everything. Even a crash of
            the workflow's code then only becomes a result. ``"thread"`` and ``"inline"`` (the calling thread) are for trusted
            code.
        workers: the number of jobs that run at a time; inline only 1.
        source: how a new process builds the workflow; needed for ``"process"``. Found automatically if :func:`vinelm.profile`
            gets the workflow's name.
        timeout_s: the seconds after which a job is killed; processes only, default 600.
        memory_mb: the MiB that a job may use beyond its imports; processes only, default 2048, 0 for no limit.
        cluster: the Ray cluster on whose nodes jobs run, in new processes; None for this machine. ``workers`` is then the
            number of parallel jobs on all nodes together.

    Raises:
        ConfigError: a setting is out of range or has no effect.
    """

    isolation: Isolation = "inline"
    workers: int = 1
    source: WorkflowSource | None = None
    timeout_s: float | None = None
    memory_mb: int | None = None
    cluster: RayCluster | None = None

    def __post_init__(self) -> None:
        if self.isolation not in get_args(Isolation):
            raise ConfigError(f"unknown isolation {self.isolation!r}: use {', '.join(get_args(Isolation))}")
        if self.workers < 1:
            raise ConfigError(f"workers is {self.workers}: it must be at least 1")
        if self.isolation == "inline" and self.workers > 1:
            raise ConfigError('inline runs one unit at a time: use isolation="thread", or workers=1', code="inline-one-worker")
        if self.cluster is not None and self.isolation != "process":
            raise ConfigError(
                f'units on a cluster run in fresh processes: use isolation="process" instead of {self.isolation!r}',
                code="cluster-needs-process",
            )
        for name, value in (("timeout_s", self.timeout_s), ("memory_mb", self.memory_mb)):
            if value is not None and self.isolation != "process":
                raise ConfigError(
                    f'{name} has no effect with isolation="{self.isolation}": use isolation="process", or leave it out',
                    code="limit-needs-process",
                )
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ConfigError(f"timeout_s is {self.timeout_s}: it must be > 0", code="unit-timeout-range")
        if self.memory_mb is not None and self.memory_mb < 0:
            raise ConfigError(f"memory_mb is {self.memory_mb}: it must be >= 0", code="unit-memory-range")


class Look(NamedTuple):
    """The end of one step of a profile, after which its results are evaluated.

    A step ends at a coverage, at a cost, or once nothing is lacking, whichever is reached first.

    Attributes:
        coverage: a fraction in (0, 1].
        usd: the cost of all results, in dollars; infinite if cost does not end the step.
        least_rows: the step does not end before the store has this number of results.
        lacking: the runs that the evaluation before this step lacked, which are bought first. The step ends once every request
            has each of them and a run of the current setup. Empty if nothing was lacking.
        rows: the number of results at the evaluation before this step.
    """

    coverage: float
    usd: float = math.inf
    least_rows: int = 0
    lacking: tuple[Run, ...] = ()
    rows: int = 0

    @property
    def next_usd(self) -> float | None:
        """The cost in dollars at which this step of the profile ends; None if cost does not end the step."""
        return self.usd if 0.0 < self.usd < math.inf else None

    def is_due(self, coverage: Coverage, lacks_nothing: Callable[[], bool]) -> bool:
        """Return whether the step has reached its end, given the coverage and cost of the committed results so far.

        ``lacks_nothing`` returns whether every request has the runs in :attr:`lacking` and a run of the current setup. It is
        only called if that ends the step.
        """
        if coverage.counts.sum() < self.least_rows:
            return False
        return coverage.fraction >= self.coverage or coverage.spent_usd >= self.usd or (bool(self.lacking) and lacks_nothing())


@dataclass(frozen=True, kw_only=True)
class ProfileSettings:
    """The settings of one profile: its sample, its limits, where its jobs run, and its callbacks.

    Attributes:
        requests: the requests to sample from; None means all requests of the workflow.
        sampler: ``"deciding"``, ``"priced"``, ``"cascade"``, ``"exhaustive"``, or any
            :class:`~vinelm.requests.protocols.Sampler`.
        coverage: stop at this fraction, in (0, 1], of the estimated cost of executing every reached call once. A call is
            reached if its request has not ended before it.
        look: when this run ends, if it is only one step of a profile; None if it is a whole profile.
        budget_usd: the maximum cost of the whole store in dollars, including earlier runs.
        budget_calls: the maximum number of model calls in the whole store.
        seed: the seed, if the sampler is given by name.
        candidates: returns the plans for which the default sampler buys whole runs; a pure function of the results so far.
        recorded: calls of a trace. If the run makes an equal call, the recorded answer is used for $0.
        compared: scores unscored results, for the sampler, by comparison with the current setup; a pure function of the results
            so far. If None, the sampler gets the results unchanged.
        whole: the limits of the whole profile, if this run is a step of it. From these limits the default sampler computes what
            each of its purposes may cost. None means the limits of this run.
        execution: where jobs run and how many at a time; default: one at a time on the calling thread.
        batch_prices: use the providers' batch APIs, at half price; None makes every call directly.
        keep_going: continue even if all first results of a stage fail in the same way. By default such a run stops
            (``"broken"``), and the next run executes these results again. A run also stops if none of the first ten requests is
            answered right (``"none-right"``); these results stay.
        stops_cut_off: stop if requests continue beyond the template's end (``"cut-off"``), which a longer template fixes.
        on_progress: called after each result.
        on_single_models: called once with the results of the single models, after they were compared.
        on_note: called with one line if the store's last run had other settings; its results count, and the sampler starts
            again. Also called with one line, on which results stay valid, if the workflow, dataset or catalog changed.
        identity: the identity under which results are executed (:func:`~vinelm.profiler.store_identity`); None computes it,
            with the settings of the store.

    Raises:
        ConfigError: a limit is out of range.
    """

    requests: Sequence[Request] | None = None
    sampler: str | Sampler = "deciding"
    coverage: float | None = None
    look: Look | None = None
    budget_usd: float | None = None
    budget_calls: int | None = None
    seed: int = 0
    candidates: Candidates | None = None
    recorded: RecordedCalls | None = None
    compared: Callable[[Sequence[Observation]], Sequence[Observation]] | None = None
    whole: ProfileLimits | None = None
    execution: ExecutionConfig = ExecutionConfig()
    batch_prices: BatchPrices | None = None
    keep_going: bool = False
    stops_cut_off: bool = False
    on_progress: Callable[[Progress], None] | None = None
    on_single_models: Callable[[SingleModels], None] | None = None
    on_note: Callable[[str], None] | None = None
    identity: StoreIdentity | None = None

    def __post_init__(self) -> None:
        _ = self.limits  # refuses nonsense before a store is made
        if self.execution.isolation == "process" and self.execution.source is None:
            raise ConfigError(
                "a workflow built in code cannot run in fresh processes: name it as module:attribute, give a source that "
                'builds it, or use isolation="thread"',
                code="process-needs-source",
            )
        if self.batch_prices is not None and self.execution.isolation != "thread":
            raise ConfigError(
                'calls go in batches where all units are in one process: use isolation="thread" with batch_prices',
                code="batches-need-threads",
            )

    @property
    def limits(self) -> ProfileLimits:
        """The limits of this run on coverage, dollars and calls."""
        return ProfileLimits(coverage=self.coverage, budget_usd=self.budget_usd, budget_calls=self.budget_calls)

    @property
    def sampled_for(self) -> ProfileLimits:
        """The limits from which the default sampler computes how much it may spend for each of its purposes.

        If this run is one step of a longer profile, these are the limits of the whole profile, otherwise those of this run.
        """
        return self.whole or self.limits

    @property
    def counted(self) -> str:
        """The word for a good answer in messages.

        It is ``"right"``, or ``"as good"`` if answers without a label are compared with the current setup's answers.
        """
        return "right" if self.compared is None else "as good"

    def note(self, line: str | None) -> None:
        """Call ``on_note`` with a line, if there is a line and a callback."""
        if line is not None and self.on_note is not None:
            self.on_note(line)

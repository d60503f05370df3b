"""Settings and results of a demo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.catalog import Catalog
from vinelm.demo.ground_truth import TableMaker
from vinelm.evaluation import PolicyFrontier
from vinelm.evaluation.policy_plans import Plans
from vinelm.evaluation.session_replay import AnswerSource
from vinelm.evaluation.verdicts.verdict import Verdict
from vinelm.observation import Observation
from vinelm.profiler import ProfileResult
from vinelm.protocols import Backend
from vinelm.recorded_table import RecordedTable
from vinelm.workflow import Request, Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontiers:
    """The sweeps over cost caps and latency caps under one stop rule; empty where none was made."""

    cost: tuple[PolicyFrontier, ...]
    latency: tuple[PolicyFrontier, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """Settings of a demo.

    Attributes:
        workflow: The workflow, with its template bound to the catalog.
        catalog: The models.
        backends: One backend per provider.
        recorded_table: Computes the complete table of outcomes, which the policies are judged by. Runs in another process. None
            where the graph branches: there is no complete table, and requests are only served.
        answers: What the models answer at any prefix, for requests that are replayed under plans over what they show. None
            where the graph branches.
        output_dir: Folder that gets the store, the tries and the report.
        seed: Decides the split, the sample and the bootstrap.
        coverage: Fraction of the dollars that profiling everything would cost, in (0, 1].
        held_out: Fraction of the requests that are held out where the graph branches, in (0, 1). Without branches each half of
            the requests judges the plans that were made from the other.
    """

    workflow: Workflow
    catalog: Catalog
    backends: Mapping[str, Backend]
    recorded_table: TableMaker | None
    answers: AnswerSource | None = None
    output_dir: Path
    seed: int = 0
    coverage: float = 0.05
    held_out: float = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProfile:
    """The sparse profile, and the store that holds it."""

    result: ProfileResult
    store: Path
    spend_by_model: Mapping[str, Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Half:
    """One half of the requests, and the plans that it judges.

    Attributes:
        judged: The requests of this half.
        table: Their outcomes on every path, in the same order, under the stop rule in question.
        rows: The rows that were bought for the requests of the *other* half.
        annotated: The trie that was estimated from those rows.
    """

    judged: tuple[Request, ...]
    table: RecordedTable
    rows: tuple[Observation, ...]
    annotated: AnnotatedTrie

    @cached_property
    def plans(self) -> Plans:
        """Plans over the paths of the trie."""
        return Plans(self.annotated)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRuleResult:
    """The results under one stop rule: the verdict, the frontiers, and the halves that judged each other's plans."""

    verdict: Verdict
    frontiers: Frontiers
    halves: tuple[Half, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """All results of a demo.

    Attributes:
        own_check: Results under the workflow's own check; VineLM's requests were served.
        oracle_stop: Results under the oracle stop, replayed on the complete table.
        table: The complete table of outcomes of all requests, under the workflow's own check.
        agreed: Number of requests served by VineLM whose replay gives the same result, and the number of all.
    """

    settings: DemoSettings
    profiled: TrainingProfile
    own_check: StopRuleResult
    oracle_stop: StopRuleResult
    table: RecordedTable
    agreed: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchingDemoResult:
    """All results of a demo on a workflow that branches: its requests were served under the workflow's own stop rule."""

    settings: DemoSettings
    training: tuple[Request, ...]
    held_out: tuple[Request, ...]
    profiled: TrainingProfile
    annotated: AnnotatedTrie
    verdict: Verdict

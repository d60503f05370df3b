"""Settings and results of a demo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.catalog import Catalog
from vinelm.demo.ground_truth import TableMaker
from vinelm.evaluation import PolicyFrontier, PolicyRun, Role, Verdict
from vinelm.objective import Objective
from vinelm.profiler import ProfileResult
from vinelm.protocols import Backend
from vinelm.recorded_table import RecordedTable
from vinelm.workflow import Request, Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontiers:
    """The sweeps over cost caps and latency caps under one stop rule."""

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
        output_dir: Folder that gets the store, the tries and the report.
        seed: Decides the split, the sample and the bootstrap.
        coverage: Fraction of the dollars that profiling the whole training split would cost, in (0, 1].
        held_out: Fraction of the requests that are held out, in (0, 1).
    """

    workflow: Workflow
    catalog: Catalog
    backends: Mapping[str, Backend]
    recorded_table: TableMaker | None
    output_dir: Path
    seed: int = 0
    coverage: float = 0.02
    held_out: float = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProfile:
    """The sparse profile of the training split, and the store that holds it."""

    result: ProfileResult
    store: Path
    spend_by_model: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FullProfilePlans:
    """One objective planned with the complete training table: the runs of all policies that have a feasible plan."""

    objective: Objective
    runs: tuple[tuple[PolicyRun, Role], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRuleResult:
    """The results under one stop rule: the trie, the verdict, the frontiers, and the plans of a full profile."""

    annotated: AnnotatedTrie
    verdict: Verdict
    frontiers: Frontiers
    full: tuple[FullProfilePlans, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """All results of a demo.

    Attributes:
        oracle_stop: Results under the oracle stop; its requests were served.
        own_check: Results under the workflow's own check; its requests were replayed on ``held_out_table``.
        agreed: Number of requests served by VineLM whose replay gives the same result, and the number of all.
    """

    settings: DemoSettings
    training: tuple[Request, ...]
    held_out: tuple[Request, ...]
    profiled: TrainingProfile
    held_out_table: RecordedTable
    oracle_stop: StopRuleResult
    own_check: StopRuleResult
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

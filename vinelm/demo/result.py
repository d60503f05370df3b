"""What a demo runs on, and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.catalog import Catalog
from vinelm.demo.ground_truth import TruthLoader
from vinelm.evaluation import PolicyFrontier, PolicyRun, Role, Verdict
from vinelm.objective import Objective
from vinelm.profiler import ProfileResult
from vinelm.protocols import Backend
from vinelm.recorded_table import RecordedTable
from vinelm.workflow import Request, Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontiers:
    """Both sweeps of one stop rule."""

    cost: tuple[PolicyFrontier, ...]
    latency: tuple[PolicyFrontier, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """What a demo runs on. ``load`` makes workflow, catalog and backends again, the same, in another process. ``coverage``:
    share of the training split's exhaustive dollars; ``held_out``: share of requests.
    """

    workflow: Workflow
    catalog: Catalog
    backends: Mapping[str, Backend]
    load: TruthLoader
    output_dir: Path
    seed: int = 0
    coverage: float = 0.02
    held_out: float = 0.35


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """The sparse profile of the training split: what was bought, and the store that holds it."""

    result: ProfileResult
    store: Path
    spend_by_model: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FullChoice:
    """One objective planned from the complete training table: the runs of the policies that have a feasible plan there."""

    objective: Objective
    runs: tuple[tuple[PolicyRun, Role], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One stop rule's part: objectives with their contests and verdict, frontiers, and contests of the fully profiled trie."""

    annotated: AnnotatedTrie
    verdict: Verdict
    frontiers: Frontiers
    full: tuple[FullChoice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """Everything that a demo found.

    ``perfect`` is judged under the oracle stop, its contests served; ``own`` under the workflow's own check, its contests
    replayed on ``held_out_table``. ``agreed``: of the served requests, how many showed exactly what a replay says.
    """

    settings: DemoSettings
    training: tuple[Request, ...]
    held_out: tuple[Request, ...]
    profiled: Profiled
    held_out_table: RecordedTable
    perfect: Judged
    own: Judged
    agreed: tuple[int, int]

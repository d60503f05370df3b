"""The feedback loops: real retries of exam questions, and the bundled workflows with simulated models, run for real."""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vinelm.backends import create_backends, simulated_catalog
from vinelm.errors import DatasetError
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.requests.workflow import Workflow
from vinelm.rows.observation import Observation
from vinelm.template import Loop, Stage, Template
from vinelm.traces import ObservationStore
from vinelm.workflows import load_workflow

FILE = Path("outcomes") / "exam_retries.csv.gz"
LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True)
class FeedbackLoop:
    """Rows of training and of held-out requests of one loop.

    Args:
        name: in the table.
        about: what is real.
        stages: the stage of each invocation.
        models: all models.
        training: rows to fit to.
        held_out: rows to score.
        store: the store of the training rows; None where no request can be served.
        workflow: the workflow; None likewise.
    """

    name: str
    about: str
    stages: tuple[str, ...]
    models: tuple[str, ...]
    training: tuple[Observation, ...]
    held_out: tuple[Observation, ...]
    store: Path | None = None
    workflow: Workflow | None = None


def exams(data: Path, *, models_per_question: int = 3) -> FeedbackLoop:
    """Real models, each asked again after being told only that its answer is wrong.

    Half of the questions train, with a few models each; the rows of all models to the other half are held out.
    """
    path = data / FILE
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
            table = list(csv.DictReader(lines))
    except OSError as error:
        raise DatasetError(f"{path}: cannot read the recorded answers: {error}") from error
    models = tuple(sorted({row["model"] for row in table}))
    sides: tuple[list[Observation], list[Observation]] = ([], [])
    for row in table:
        question = f"{row['dataset']}/{row['question_id']}"
        is_out = _share(question) < 0.5
        asked = sorted(models, key=lambda model: _share(f"{question}:{model}"))[:models_per_question]
        if is_out or row["model"] in asked:
            sides[is_out].append(_exam_row(row, question))
    about = "real answers; told that it is wrong, the same model answers again"
    return FeedbackLoop("exams", about, ("solve", "solve"), models, tuple(sides[0]), tuple(sides[1]))


def _exam_row(row: dict[str, str], question: str) -> Observation:
    is_answer = row["answer"] in LETTERS and bool(row["answer"])
    is_right = row["correct"] == "1" and is_answer
    return Observation(
        request_id=question, prefix=(row["model"],) * int(row["round"]), stage="solve", success=is_right, stopped=is_right,
        cost_usd=float(row["cost_usd"] or 0), latency_s=float(row["latency_s"] or 0),
        signal="answer" if is_answer else "no answer", answer_class=LETTERS.index(row["answer"]) if is_answer else None,
    )  # fmt: skip


def _share(text: str) -> float:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def simulated(name: str, preset: str, folder: Path, *, requests: int, calls: int) -> FeedbackLoop:
    """A bundled workflow of at most three invocations: simulated models, whose answers are really checked and fed back."""
    catalog = simulated_catalog(preset)
    loaded = load_workflow(name)
    template = Template((Loop((Stage("solve"),), times=3),), stop="workflow") if name == "mathqa" else loaded.template
    workflow = replace(loaded, template=template.bind(tuple(catalog)))
    parts = (workflow.requests[:requests], workflow.requests[requests : 2 * requests])
    stores = [folder / f"{name}-{side}.db" for side in ("training", "held-out")]
    rows = [tuple(_bought(workflow, preset, part, store, calls)) for part, store in zip(parts, stores, strict=True)]
    stages = tuple(stage.name for stage in workflow.template.invocations)
    about = "simulated answers, real checks: the loop runs"
    return FeedbackLoop(name, about, stages, tuple(catalog), rows[0], rows[1], stores[0], workflow)


def _bought(workflow: Workflow, preset: str, part: Sequence, store: Path, calls: int) -> Iterator[Observation]:
    catalog = simulated_catalog(preset)
    backends = create_backends(catalog, workflow=workflow, seed=0)
    with ObservationStore.create(store, store_identity(workflow, catalog, backends)) as opened:
        profile(workflow, catalog, backends, opened, ProfileSettings(requests=part, budget_calls=calls))
        yield from opened.observations()

"""The NL2SQL workflows: up to two repairs with any catalog, up to three with two models (VineLM paper §5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Loop, Stage, Template
from vinelm.workflows.nl2sql import prompts
from vinelm.workflows.nl2sql.answers import ANSWER, SameRows, sql_signal
from vinelm.workflows.nl2sql.databases import Databases
from vinelm.workflows.nl2sql.dataset import Dataset, GoldResults, answer_sql, load_dataset
from vinelm.workflows.nl2sql.graph import make_build

BUNDLED_STEPS = 10_000_000
"""The maximum steps of SQLite for a statement on the bundled databases, a fraction of a second. Statements of simulated models
take under a million, except a few endless recursions, each of which would use its full 5 seconds."""


class Scorer:
    """Scores a state by execution accuracy: compares the results of its SQL with those of the gold SQL, in full.

    Results of statements are cached per process.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.databases = dataset.databases
        self.gold = GoldResults(dataset)

    def __call__(self, request: Request, state: Mapping[str, Any]) -> bool:
        """Return whether the state's answer to the request is right."""
        sql = answer_sql(state)
        return bool(sql) and self.gold.is_right(request, self.databases.recall(request.data["db_id"], sql))


def nl2sql(dataset: str | Path | None = None) -> Workflow:
    """Return the workflow that translates a question into SQL, with up to two repairs.

    Args:
        dataset: a folder or a questions file (see :func:`load_dataset`); None means the bundled questions.
    """
    return _workflow("nl2sql", dataset, repairs=2)


def nl2sql_2(dataset: str | Path | None = None) -> Workflow:
    """Return the variant of :func:`nl2sql` with up to three repairs, for two models (a trie of 30 nodes).

    ``dataset`` is the same as for :func:`nl2sql`.
    """
    return _workflow("nl2sql-2", dataset, repairs=3)


def _workflow(name: str, dataset: str | Path | None, repairs: int) -> Workflow:
    from vinelm.workflows.nl2sql.simulated_writer import SqlWriter

    data = load_bundled() if dataset is None else load_dataset(dataset)
    databases = data.databases
    return Workflow(
        name=name,
        template=Template((Stage("generate"), Loop((Stage("repair"),), times=repairs)), stop="workflow"),
        build=make_build(databases),
        requests=data.requests,
        score=Scorer(data),
        labels=("gold_sql",),
        writer=SqlWriter(databases.folder),
        resources=resource_digests(data),
        signal=sql_signal,
        agree=SameRows(databases),
        answer=ANSWER,
    )


def resource_digests(data: Dataset) -> dict[str, str]:
    """Return the digests of the data that results depend on.

    The keys are ``database:<db_id>`` for each database, and ``prompts`` for all prompt templates.
    """
    return {**data.databases.digests(str(r.data["db_id"]) for r in data.requests), "prompts": prompts.digest()}


def load_bundled() -> Dataset:
    """Load the bundled questions and databases, which are written to the user's cache on first use."""
    from vinelm.workflows.nl2sql.bundled import bundled_dataset

    data = bundled_dataset()
    keys = ("question", "db_id", "gold_sql")
    requests = tuple(Request(str(row["question_id"]), {key: row[key] for key in keys}) for row in data.questions)
    return Dataset(requests, Databases(data.databases, max_steps=BUNDLED_STEPS))

"""File names of the bundled dataset, and the dataset as it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DATABASES, QUESTIONS, MANIFEST = "databases", "questions.jsonl", "manifest.json"


@dataclass(frozen=True, slots=True)
class BundledDataset:
    """The questions (``question_id``, ``db_id``, ``question``, ``gold_sql``) and the folder of ``<db_id>.sqlite``."""

    questions: tuple[Mapping[str, str], ...]
    databases: Path

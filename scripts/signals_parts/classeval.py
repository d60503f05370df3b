"""ClassEval: really generated, really executed methods. The visible half of the tests is the check, all tests are the truth."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from signals_parts.record import Record, UsdPer1000, number, read_rows, some_systems

from vinelm.errors import DatasetError
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.outcome_table import NO_ANSWER
from vinelm.trie.arrays import FloatArray

FILE = Path("outcomes") / "classeval.csv.gz"
LABELS = ("does not run", "0 failed", "1 failed", "2 failed", "3 or more failed")
ABOUT = (
    "answers and test results real; prices assumed by size of the model (dollars per 1,000: GPT-4 class 15, GPT-3.5 class and "
    "Gemini 1.5, 13-16b 0.6, 6-7b 0.3, under 3b 0.1), scaled by the length of the output"
)
UNUSABLE = ("CodeGeeX@2023", "PolyCoder")  # they wrote almost nothing that runs
CHOICE = (
    "GPT-4-Turbo@2024",
    "GPT-4@2023",
    "GPT-3.5-Turbo@2024",
    "Gemini-Pro@2024",
    "CodeLlama-13b-Instruct-hf@2024",
    "WizardCoder-15B-V1.0@2024",
    "deepseek-coder-6.7b-instruct@2024",
    "Magicoder-S-DS-6.7B@2024",
)
"""Two of each class of price but the lowest."""


def load_classeval(data: Path) -> Record:
    """The greedy answers to whole classes (strategy ``class``); methods whose behaviour is not deterministic are left out."""
    path = data / FILE
    rows = [row for row in read_rows(path, COLUMNS) if is_used(row)]
    systems = tuple(sorted({row["system"] for row in rows}))
    cell = {(row["item_id"], row["system"]): row for row in rows}
    unsteady = {row["item_id"] for row in rows if row["deterministic"] != "1"}
    items = [item for item in dict.fromkeys(row["item_id"] for row in rows) if item not in unsteady]
    items = [item for item in items if all((item, system) in cell for system in systems)]
    if not items:
        raise DatasetError(f"{path}: no method was written by all {len(systems)} systems")
    shape = (len(items), len(systems))
    success, passed = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    signal, answer_class, chars = np.zeros(shape, np.int64), np.full(shape, NO_ANSWER), np.zeros(shape)
    for r, item in enumerate(items):
        classes: dict[str, int] = {}
        for m, system in enumerate(systems):
            row = cell[item, system]
            success[r, m], passed[r, m] = row["success"] == "1", row["visible_ok"] == "1"
            signal[r, m] = label(row)
            chars[r, m] = number(row, "class_output_chars", path)
            if row["status"] == "ok":
                answer_class[r, m] = classes.setdefault(row["visible_behaviour"], len(classes))
    outcomes = OutcomeTable(
        request_ids=tuple(items),
        systems=systems,
        success=success,
        signal=signal,
        labels=LABELS,
        passed=passed,
        answer_class=answer_class,
        cost_usd=np.zeros(shape),
        groups=tuple(item.split(".")[0] for item in items),
    )
    chosen = CHOICE if set(CHOICE) <= set(systems) else some_systems(systems, 0)
    choice: dict[str, UsdPer1000] = {"classeval": dict.fromkeys(chosen)}
    return Record("classeval", outcomes, choice, lambda picked: costs(outcomes, chars, picked), ABOUT)


COLUMNS = (
    *("item_id", "system", "strategy", "decoding", "sample", "visible_behaviour", "test_bits", "visible_ok", "success"),
    *("status", "class_output_chars", "deterministic"),
)


def is_used(row: dict[str, str]) -> bool:
    """Whether the row is a usable system's one greedy answer to a whole class."""
    is_first = row["strategy"] == "class" and row["decoding"] == "greedy" and row["sample"] == "0"
    return is_first and not row["system"].startswith(UNUSABLE)


def label(row: dict[str, str]) -> int:
    """How many of the visible tests failed, as an index into ``LABELS``. The first half of the tests is visible."""
    if row["status"] != "ok":
        return 0
    visible = row["test_bits"][: len(row["test_bits"]) // 2]
    return 1 + min(len(visible) - visible.count("1"), 3)


def costs(outcomes: OutcomeTable, chars: FloatArray, chosen: UsdPer1000) -> FloatArray:
    """The price of the system, times the length of this output over the system's mean length."""
    length = chars[:, outcomes.columns(tuple(chosen))]
    usd = np.array([price(name) if given is None else given for name, given in chosen.items()])
    return np.asarray(usd / 1000 * length / np.maximum(length.mean(axis=0), 1.0))


def price(system: str) -> float:
    """Assumed dollars per 1,000 calls by the class or size that the name tells."""
    text = system.lower()
    if "gpt-4" in text:
        return 15.0
    if "gpt" in text or "gemini" in text:  # ChatGPT is GPT-3.5
        return 1.5
    sizes = {"vicuna": 7.0, "chatglm": 6.0, "wizardcoder": 15.0, "starcoder": 15.0, "codegen": 16.0, "incoder": 6.0}
    found = re.search(r"(\d+(?:\.\d+)?)b\b", text)
    known = next((size for name, size in sizes.items() if name in text), 7.0)
    size = float(found.group(1)) if found else 1.1 if "santacoder" in text else known
    return 0.6 if size >= 10 else 0.3 if size >= 3 else 0.1

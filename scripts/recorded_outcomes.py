"""Make the tables of recorded outcomes that come with the package: python scripts/recorded_outcomes.py DATA_DIR

DATA_DIR holds outcomes/classeval.csv.gz and outcomes/exam_retries.csv.gz, as signals.py reads them.
Equal inputs give equal bytes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from signals_parts import classeval, exams
from signals_parts.record import read_rows

from vinelm.io.tables import write_csv
from vinelm.workflows.recorded import classeval as bundled_code
from vinelm.workflows.recorded import exam_answers as bundled_exams

OF_2024 = "@2024"
"""ClassEval has two systems of some names: the newer ones are bundled."""


def main(data: Path) -> None:
    names = [recorded for recorded, _, _ in bundled_code.PRICES.values()]
    rows = [
        row
        for row in read_rows(data / classeval.FILE, classeval.COLUMNS)
        if classeval.is_used(row) and row["system"].endswith(OF_2024) and row["system"].removesuffix(OF_2024) in names
    ]
    unsteady = {row["item_id"] for row in rows if row["deterministic"] != "1"}
    write_csv(
        bundled_code.TABLE,
        ("method", "model", "visible", "all", "chars"),
        [
            (
                row["item_id"].removeprefix("ClassEval_"),
                row["system"].removesuffix(OF_2024),
                row["visible_ok"],
                row["success"],
                row["class_output_chars"],
            )
            for row in rows
            if row["item_id"] not in unsteady
        ],
        is_gzipped=True,
    )
    columns = ("dataset", "question_id", "model", "round", "answer", "correct_answer", "tokens_in", "tokens_out", "cost_usd")
    write_csv(
        bundled_exams.TABLE,
        ("question", "model", "answer", "correct", "tokens_in", "tokens_out", "cost_usd", "latency_s"),
        [
            (
                f"{row['dataset'].removesuffix('-100')}/{row['question_id']}",
                row["model"],
                row["answer"] if re.fullmatch("[A-J]", row["answer"]) else "",
                row["correct_answer"],
                *(row[name] for name in ("tokens_in", "tokens_out", "cost_usd", "latency_s")),
            )
            for row in read_rows(data / exams.FILE, (*columns, "latency_s"))
            if row["round"] == "1"
        ],
        is_gzipped=True,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))

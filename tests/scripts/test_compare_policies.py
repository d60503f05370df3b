"""All policies are compared at equal spend, on the record's own dollars and seconds."""

import csv
import gzip
import json
import random
import sys
from argparse import Namespace

import compare_policies as script
import numpy as np
import pytest

COLUMNS = ("dataset", "question_id", "model", "round", "answer", "correct", "cost_usd", "latency_s", "error")
MODELS = (("small", 0.4, 0.0004, 1.0), ("middle", 0.6, 0.002, 6.0), ("large", 0.8, 0.02, 3.0))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """80 exam questions answered by three models; one answer of the second model has no seconds."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "outcomes").mkdir()
    rng = random.Random(1)
    with gzip.open(folder / "outcomes" / "exam_retries.csv.gz", "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for model, share, usd, seconds in MODELS:
            for i in range(80):
                right = rng.random() < share
                answer = "A" if right else rng.choice("BC")
                took = "" if (model, i) == ("middle", 3) else seconds
                writer.writerow(("sat", i, model, "1", answer, int(right), usd, took, ""))
                writer.writerow(("sat", i, model, "2", answer, int(right), usd, 99.0, ""))
    return folder


@pytest.fixture(scope="module")
def found(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["signals_parts.equal_spend"], "N_BUDGETS", 5)
        return script.run(Namespace(data=data, tables="exams", splits=1, depth=2, coverage=0.3))


def test_every_method_spends_what_is_asked_where_it_can(found):
    assert set(found["tables"]["exams"]["bounds"]) == {"dollars", "seconds"}
    for rows in found["tables"]["exams"]["bounds"].values():
        assert len(rows) == 5
        for row in rows:
            assert tuple(row["methods"]) == script.METHODS
            assert all(one["spent"] <= row["cap"] * (1 + 1e-9) for one in row["methods"].values())
        spent = [one["spent"] / rows[0]["cap"] for one in rows[0]["methods"].values()]
        assert spent == pytest.approx([1.0] * len(spent))  # all methods have a cheaper and a dearer plan than the smallest cap


def test_no_path_beats_hindsight(found):
    for rows in found["tables"]["exams"]["bounds"].values():
        for row in rows:
            best = row["methods"]["hindsight"]["accuracy"]["value"]
            assert all(row["methods"][name]["accuracy"]["value"] <= best + 1e-9 for name in ("path_only", "static", "single"))


def test_leads_are_differences_and_lie_in_their_intervals(found):
    for row in found["tables"]["exams"]["bounds"]["dollars"]:
        ours = row["methods"]["vinelm"]["accuracy"]["value"]
        for name, one in row["methods"].items():
            lead = one.get("vinelm_over_it")
            assert (lead is None) == (name == "vinelm")
            if lead is not None:
                assert lead["value"] == pytest.approx(ours - one["accuracy"]["value"])
                assert lead["low"] <= lead["value"] <= lead["high"]


def test_seconds_are_the_record_s_and_means_where_there_are_none(data):
    from signals_parts.systems import load_tables

    table = load_tables(data, None, ("exams",))["exams"].table
    seconds = script.seconds_of(data, table)
    assert np.unique(seconds[:, table.column["middle"]]).tolist() == [6.0]
    assert seconds.mean(axis=0)[[table.column[name] for name, *_ in MODELS]].tolist() == [1.0, 6.0, 3.0]


def test_the_text_fits_eighty_columns_and_bad_input_is_one_line(found, data, monkeypatch, capsys):
    text = script.of_equal_spend(found)
    assert max(map(len, text.splitlines())) <= 80
    assert "accuracy in percent at equal seconds" in text
    json.dumps(found)
    for options in (("--depth", "9"), ("--splits", "0"), ("--tables", "none")):
        monkeypatch.setattr(sys, "argv", ["compare_policies.py", "--data", str(data), *options])
        assert script.main() == 2
        assert capsys.readouterr().err.strip().splitlines()[-1].startswith("error: ")

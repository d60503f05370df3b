"""The paper's evaluation is measured, written and drawn; here on tiny tables whose truth is known."""

import csv
import json
import sys
import xml.etree.ElementTree as ET
from importlib import import_module

import numpy as np
import pytest
from kit.optional import needs

pytest.importorskip("simpy")
needs("xgboost")
script = import_module("reproduce")

NAMES = ("table1", "table2", "table3", "figure7", "figure8", "figure9", "figure10")
SEEDS = (0, 1)


@pytest.fixture(scope="module")
def case():
    """A retry loop over four models and three turns, as bench_slo.py simulates it."""
    from slo_workloads import simulated_requests

    return script.Case("NL2SQL-8", "tiny", simulated_requests(150, seed=5))


@pytest.fixture(scope="module")
def fits(case):
    return [script.fit_all(case, SEEDS, (0.02, 0.2))]


@pytest.fixture(scope="module")
def result(case, fits):
    """Every figure and table of that case, as the script lays them out."""
    slo = {"about": "", "slos_s": [1.0, 2.0], "largest_cut": 0.5, "policies": {}, "mean": {}}
    for name in ("static", "ours"):
        slo["policies"][name] = {"violation_rate": [0.2, 0.1], "in_slo_accuracy": [0.5, 0.6]}
        slo["mean"][name] = {"violation_rate": 0.15, "in_slo_accuracy": 0.55}
    found = {
        "table1": script.table_1(fits), "table2": script.table_2(fits), "table3": script.table_3([case], 5, 100.0),
        "figure7": script.figure_7(fits, SEEDS), "figure8": script.figure_8(fits), "figure9": script.figure_9(fits),
        "figure10": {"simulated": slo},
    }  # fmt: skip
    made = {name: {"paper": script.PAPER[name], "simulated": found[name]} for name in NAMES}
    for name in NAMES:
        made[name]["line"] = script.line(name, made[name])
    return made


def test_errors_are_against_the_complete_table_and_fall_with_coverage(case, fits, result):
    rows = result["table1"]["simulated"]["NL2SQL-8"]
    assert set(rows) == {"average", "prefix-average", "prefix-impute", "prefix-xgboost", "cascade", "cascade-svd", "latent"}
    for row in rows.values():
        assert abs(row["signed"]) <= row["mae"] <= row["max_abs"]
    assert rows["average"]["signed"] < -0.1  # only hard requests reach deep paths
    points = result["figure8"]["simulated"]["NL2SQL-8"]["latent"]
    assert points[1]["mae"] < points[0]["mae"]
    exact = case.table.annotate().accuracy[1:]
    fitted = [one.accuracy[1:] for one in fits[0].at_2_percent["latent"]]
    assert rows["latent"]["mae"] == pytest.approx(np.mean([np.abs(one - exact).mean() for one in fitted]))


def same_model_twice(trie):
    return [(trie.node((name,)), trie.node((name, name))) for name in trie.models]


def test_the_gain_is_over_the_best_plan_with_one_model_per_stage(case, result):
    from vinelm.evaluation.plans.path_plans import workflow_level_nodes

    one = result["figure7"]["simulated"]["NL2SQL-8"]
    truth = case.table.annotate()
    allowed = workflow_level_nodes(truth)
    assert one["workflow_level_plans"] == 36
    assert one["paths"] == 84
    again = [case.table.success[~case.table.success[:, a], b].mean() for a, b in same_model_twice(case.table.trie)]
    assert one["second_answer"]["same_model"] == pytest.approx(np.mean(again))
    assert one["second_answer"]["another_model"] > one["second_answer"]["same_model"]
    for cap, static, gain in zip(one["caps_usd"], one["static_accuracy"], one["gain"]["full"], strict=True):
        fits = truth.trie.answerable & (truth.path_cost_usd <= cap)
        assert static == pytest.approx(truth.accuracy[fits & allowed].max())
        assert static + gain == pytest.approx(truth.accuracy[fits].max())


def test_plans_on_the_truth_promise_what_they_achieve(result):
    one = result["figure9"]["simulated"]["NL2SQL-8"]
    for objective in ("max_accuracy", "min_cost"):
        for point in one[objective]["lines"]["ground truth"]:
            assert point["promised_accuracy"] == point["achieved_accuracy"]
            assert point["promised_usd"] == point["achieved_usd"]
    assert one["max_accuracy"]["summary"]["ground truth"]["overspent"] == 0
    assert one["min_cost"]["summary"]["ground truth"]["missed"] == 0
    assert one["max_accuracy"]["summary"]["latent"]["plans_found"] > 0


def test_dollars_of_the_three_regimes(case, result):
    row = result["table2"]["simulated"]["NL2SQL-8"]
    trie = case.table.trie
    naive = sum(
        case.table.cost_usd[r, node]
        for leaf in np.flatnonzero(trie.is_leaf)
        for node in trie.path(int(leaf))
        for r in np.flatnonzero(case.table.reached[:, node])
    )
    assert row["naive_usd"] == pytest.approx(naive)
    assert row["sparse_usd"] < row["checkpointed_usd"] < row["naive_usd"]
    assert row["ratio"] == pytest.approx(row["naive_usd"] / row["sparse_usd"])


def test_replanning_is_timed_step_by_step(case, result):
    row = result["table3"]["simulated"]["NL2SQL-8"]
    assert row["steps"] >= 5
    assert 0 < row["median_us"] <= row["p99_us"]
    assert row["overhead"] == pytest.approx(row["mean_us"] / 1e6 / row["fastest_call_s"])
    assert script.table_3([script.Case("x", "no seconds", case.table, False)], 5) == {}


@pytest.mark.long
def test_late_requests_are_counted_under_load():
    from dataclasses import replace

    from reproduce_parts import latency

    whole = latency.workload_of("simulated", None, "oracle")
    small = replace(whole, slos_s=(2.0,), split=lambda seed: [part.rows(range(20)) for part in whole.split(seed)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latency, "workload_of", lambda name, data, stop: small)
        patch.setattr(sys.modules["slo_rivals"], "TRIALS", 1)
        found = script.figure_10("simulated", None, (0,))
    assert set(found["policies"]) == set(latency.POLICIES)
    for one in found["policies"].values():
        assert 0 <= one["violation_rate"][0] <= 1 - one["in_slo_accuracy"][0] + 1e-9


def test_everything_is_written_and_drawn(result, tmp_path):
    script.write({"command": "x", **result}, tmp_path)
    found = json.loads((tmp_path / "reproduce.json").read_text())
    assert set(NAMES) < set(found)
    for name in NAMES:
        assert found[name]["line"].startswith("paper ")
        assert " / ours " in found[name]["line"]
        rows = list(csv.DictReader((tmp_path / f"{name}.csv").read_text().splitlines()))
        assert {row["part"] for row in rows} >= {"simulated"}
        picture = ET.parse(tmp_path / f"{name}.svg").getroot()
        marks = [one for one in picture.iter() if one.tag.endswith(("polyline", "rect"))]
        assert len(marks) > 1
        assert "nan" not in (tmp_path / f"{name}.svg").read_text()
    drawn = (tmp_path / "figure8.svg").read_text()
    assert all(f">{name}<" in drawn for name in ("latent", "cascade-svd", "prefix-xgboost"))


def test_mathqa_is_executed_to_the_first_right_answer():
    pytest.importorskip("math_verify")
    from reproduce_parts.mathqa_table import mathqa_table
    from reproduce_parts.tables import spread

    from vinelm.backends import simulated_catalog
    from vinelm.workflows.mathqa.workflow import bundled_requests

    chosen = spread(bundled_requests(), 3)
    assert len({request.data["topic"] for request in chosen}) == 3
    table = mathqa_table(simulated_catalog("paper-math"), chosen)
    assert table.trie.n_nodes == 5460
    reached = table.reached[:, 1:]
    assert (table.cost_usd[:, 1:][reached] > 0).all()
    assert not table.cost_usd[:, 1:][~reached].any()
    assert table.success.any()


def test_one_stage_keeps_the_outcomes(case):
    from reproduce_parts.tables import one_stage

    from vinelm.evaluation.plans.path_plans import workflow_level_nodes

    table = one_stage(case.table)
    old, new = case.table.annotate(), table.annotate()
    for node in range(1, len(new.trie)):
        assert new.accuracy[node] == old.accuracy[old.trie.node(new.trie.prefix(node))]
    assert workflow_level_nodes(new).sum() == 4 * 3  # one model for all turns, and how many


def test_more_requests_are_more_rows_and_a_smaller_error():
    found = script.more_rows(script.more_requests(1_500, (0,)))
    small, large = found["500"], found["1500"]
    assert large["rows"] > 2 * small["rows"]
    assert large["cascade"]["mae"] < small["cascade"]["mae"]


def test_without_data_every_figure_has_its_simulated_part(case, result, monkeypatch, tmp_path, capsys):
    few = script.Settings(seeds=1, replans=3)
    monkeypatch.setattr(script, "QUICK", few)
    monkeypatch.setattr(script, "simulated_cases", lambda requests: [case])
    monkeypatch.setattr(script, "more_requests", lambda count, seeds: [])
    monkeypatch.setattr(script, "stage_overhead", lambda rounds: {"stage_overhead_us": 100.0})
    monkeypatch.setattr(script, "figure_10", lambda *asked: result["figure10"]["simulated"]["simulated"])
    monkeypatch.delenv("VINELM_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "--quick", "--json", "-o", str(tmp_path)])
    assert script.main() == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((tmp_path / "reproduce.json").read_text())
    for name in NAMES:
        assert found[name]["paper"]
        assert len(found[name]["simulated"]) == 1
        assert "recorded" not in found[name]
    assert found["table2"]["paper"]["MathQA-4"]["naive_usd"] == 15073.67


def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    for options in (["-o", str(tmp_path / "file")], ["-o", str(tmp_path / "out"), "--data", str(tmp_path / "none")]):
        monkeypatch.setattr(sys, "argv", ["reproduce.py", *options])
        assert script.main() == 2
        told = capsys.readouterr().err.strip().splitlines()
        assert len(told) == 1
        assert told[0].startswith("error: ")


def test_the_command_names_no_path_of_the_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "--quick", "--data", str(tmp_path), "-o", str(tmp_path)])
    found = script.about(script.parsed(), script.QUICK)
    assert found["command"] == "python scripts/reproduce.py --quick --data DIR -o DIR"
    assert len(found["commit"].split(" ")[0]) in (7, 40)

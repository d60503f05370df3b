"""The benchmark of signals reads its three kinds of files, executes what it must, and says what comes out."""

import csv
import gzip
import json
import random
import sqlite3
import sys
from contextlib import closing

import numpy as np
import pytest
import signals as script

from vinelm.errors import ConfigError

ROUTED = {"kind_table", "knn"}
METHODS = {"path_only", "static", "single", "mixed_single", "vote", "two_agree", "scored_cascade", "oracle"}
QUICK = ("--coverage", "0.3", "--quick", "--json")
SHARES = {"GPT-4@2024": 0.8, "santacoder-1.1B@2024": 0.3, "CodeGeeX@2023": 0.0, "deepseek-coder-6.7b@2024": 0.5}
N = 24


def write(path, columns, rows):
    path.parent.mkdir(exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerows([columns, *rows])


def write_spider(folder):
    (folder / "nl2sql" / "databases").mkdir(parents=True)
    with closing(sqlite3.connect(folder / "nl2sql" / "databases" / "shop.sqlite")) as database, database:
        database.execute("CREATE TABLE item (id INTEGER, price REAL, name TEXT)")
        database.executemany("INSERT INTO item VALUES (?, ?, ?)", [(i, i / 2, f"n{i % 5}") for i in range(N + 1)])
    database.close()
    with gzip.open(folder / "nl2sql" / "questions.jsonl.gz", "wt", encoding="utf-8") as file:
        for i in range(N):
            gold = f"SELECT price FROM item WHERE id = {i}"
            question = {"question_id": str(i), "db_id": "shop", "question": "the price?", "gold_sql": gold}
            file.write(json.dumps(question) + "\n")
    forms = {
        "gpt-4__x": "SELECT T.price FROM item AS T WHERE T.id = {i}",
        "codes-7b__y": "SELECT price FROM item WHERE id = {i} + {i} % 2",  # wrong for odd ids, right rows for the others
        "llama-3b__z": "SELECT price FROM item WHERE id = -1",  # no rows
        "mistral-7b__w": "SELECT cost FROM item",  # an error
    }
    rows = [(i, "shop", model, model.split("__")[0], form.format(i=i)) for model, form in forms.items() for i in range(N)]
    write(folder / "outcomes" / "spider_sql.csv.gz", ("question_id", "db_id", "model", "base_model", "prediction"), rows)


def write_exams(folder):
    rng = random.Random(1)
    rows = []
    for model, share, usd in (("small", 0.4, 0.0004), ("middle", 0.6, 0.002), ("large", 0.8, 0.02)):
        for i in range(60):
            right = rng.random() < share
            answer = "A" if right else rng.choice(["B", "C", ""])
            error = "" if answer else "no response"
            rows += [("sat", i, model, round_, answer, int(right), usd, error) for round_ in ("1", "2")]
    columns = ("dataset", "question_id", "model", "round", "answer", "correct", "cost_usd", "error")
    write(folder / "outcomes" / "exam_retries.csv.gz", columns, rows)


def write_classeval(folder):
    rng = random.Random(2)
    rows = []
    for system, share in SHARES.items():
        for i in range(40):
            runs = rng.random() < 0.9
            bits = "".join("1" if runs and rng.random() < share else "0" for _ in range(4))
            seen, status = (bits[:2], "ok") if runs else ("-", "SyntaxError")
            results = (seen, bits, int(bits[:2] == "11"), int(bits == "1111"), status, 1000 + 10 * i, int(i != 7))
            rows += [(f"C_{i // 4}.m{i % 4}", system, "class", decoding, 0, *results) for decoding in ("greedy", "t0.2")]
    columns = ("item_id", "system", "strategy", "decoding", "sample", "visible_behaviour", "test_bits", "visible_ok", "success")
    write(folder / "outcomes" / "classeval.csv.gz", (*columns, "status", "class_output_chars", "deterministic"), rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    write_spider(folder)
    write_exams(folder)
    write_classeval(folder)
    return folder


@pytest.fixture(scope="module")
def tables(data):
    from signals_parts.systems import load_tables

    return {name: one.table for name, one in load_tables(data, None).items()}


def test_statements_are_executed_and_equal_rows_agree(tables):
    assert [*tables] == ["spider-1", "exams", "classeval"]  # not the development systems; four systems are one choice
    table = tables["spider-1"]
    column = table.column
    odd = np.arange(N) % 2 == 1
    assert table.success[:, column["gpt-4__x"]].all()
    assert np.array_equal(table.success[:, column["codes-7b__y"]], ~odd)
    kind = table.answer_class
    assert np.array_equal(kind[:, column["codes-7b__y"]] == kind[:, column["gpt-4__x"]], ~odd)
    assert (kind[:, column["mistral-7b__w"]] == -1).all()
    labels = [[table.labels[i] for i in np.unique(table.signal[:, column[name]])] for name in sorted(column)]
    assert labels == [["rows"], ["rows"], ["empty"], ["error"]]
    assert table.passed.sum(axis=0)[column["llama-3b__z"]] == 0


def test_prices_are_assumed_by_class_and_size(tables):
    mean = {name: 1000 * tables["spider-1"].cost_usd[:, m].mean() for name, m in tables["spider-1"].column.items()}
    assert mean["gpt-4__x"] == pytest.approx(15.0, rel=0.4)
    assert mean["llama-3b__z"] == pytest.approx(0.15, rel=0.4)
    code = tables["classeval"]
    assert 1000 * code.cost_usd.mean(axis=0)[code.column["GPT-4@2024"]] == pytest.approx(15.0)
    assert 1000 * code.cost_usd.mean(axis=0)[code.column["santacoder-1.1B@2024"]] == pytest.approx(0.1)


def test_an_exam_answer_passes_and_equal_letters_agree(tables):
    table = tables["exams"]
    assert len(table) == 60  # the second round is no first answer
    assert np.array_equal(table.passed, table.answer_class >= 0)
    assert not (table.success & ~table.passed).any()
    right = table.answer_class[table.success]
    assert (right == 0).all()
    assert np.allclose(table.cost_usd.mean(axis=0), [table.cost_usd[0, m] for m in range(3)])


def test_code_shows_how_many_visible_tests_failed(tables):
    table = tables["classeval"]
    assert "CodeGeeX@2023" not in table.systems
    assert len(table) == 39  # without the method whose behaviour differs between runs
    assert len(set(table.groups)) == 10
    assert np.array_equal(table.passed, table.signal == 1)
    assert np.array_equal(table.signal == 0, table.answer_class == -1)
    assert (table.success <= table.passed).all()


def test_a_split_keeps_groups_together_and_depends_on_the_seed(tables):
    from signals_parts.protocol import split

    groups = tables["classeval"].groups
    training, held_out = split(groups, 0.5, 3)
    assert sorted(training + held_out) == list(range(len(groups)))
    assert not {groups[i] for i in training} & {groups[i] for i in held_out}
    assert split(groups, 0.5, 3) == (training, held_out)
    assert split(groups, 0.5, 4) != (training, held_out)
    assert split(groups, 0.5, 2) == (held_out, training)  # what makes one half harder cancels over a pair of seeds


@pytest.mark.parametrize("sampler", ["cascade", "exhaustive", "priced"])
def test_no_more_is_bought_than_the_budget_allows(tables, sampler):
    from science.complete_tables import as_recorded_table
    from signals_parts.buying import bought, catalog_of, template_of

    table = tables["exams"]
    catalog = catalog_of(table)
    template = template_of(2).bind(tuple(catalog))
    rows = bought(table, template, catalog, sampler=sampler, budget_usd=0.2, seed=1)
    spent = sum(row.cost_usd for row in rows)
    assert 0.2 - 0.02 <= spent <= 0.2
    assert len({(row.request_id, row.prefix) for row in rows}) == len(rows)
    everything = as_recorded_table(table, template, catalog).exhaustive_cost_usd
    whole = bought(table, template, catalog, sampler="exhaustive", budget_usd=2 * everything, seed=1)
    assert sum(row.cost_usd for row in whole) == pytest.approx(everything)


def test_differences_are_paired_and_their_interval_is_that_of_the_groups(tables):
    from signals_parts.figures import Comparison, Pooled, differences
    from signals_parts.protocol import MethodResult, Settings, SplitResult

    table = tables["classeval"]
    settings = Settings(budgets=(0.001,), extra_budgets=())
    rng = np.random.default_rng(0)
    ones = []
    for _ in range(3):
        rows = tuple(int(row) for row in np.flatnonzero(rng.random(len(table)) < 0.5))
        unknown = np.zeros(1)
        served = {
            name: MethodResult(
                success=table.success[list(rows), m][None, :].astype(float),
                cost_usd=table.cost_usd[list(rows), m][None, :],
                promised_accuracy=unknown,
                promised_cost_usd=unknown,
            )
            for name, m in (("one", 0), ("other", 2))
        }
        ones.append(SplitResult(held_out=rows, n_rows=0, n_continued=0, spent_usd=0.0, served=served))
    one, other = (Pooled.of(ones, name, len(table)) for name in ("one", "other"))
    found = differences(one, other, Comparison.of(table, ones), settings)
    every = [row for split in ones for row in split.held_out]
    gap = table.success[every, 0].astype(float) - table.success[every, 2]
    assert found["value"] == pytest.approx(gap.mean())
    assert found["low"] < found["value"] < found["high"]
    assert found["by_budget"][0]["value"] == pytest.approx(found["value"])


def test_the_calibration_error_is_that_of_ten_bins_of_equal_weight():
    from signals_parts.calibration import Said

    rng = np.random.default_rng(0)
    said = rng.random(40_000)
    weight = rng.random(40_000)
    exact = Said(said, (rng.random(40_000) < said).astype(float), weight)
    assert exact.ece_points() < 1.0
    assert Said(said, said - 0.1, weight).ece_points() == pytest.approx(10.0)
    high = said > np.median(said)
    assert Said(said, np.where(high, said - 0.2, said + 0.1), np.ones(40_000)).ece_points() == pytest.approx(15.0, abs=0.1)
    assert np.isnan(Said(said[:0], said[:0], said[:0]).ece_points())


def test_what_is_said_is_that_of_every_history_of_the_requests(tables):
    """Against each sequence of models, one request at a time; a policy that is served says the same."""
    from itertools import permutations

    from signals_parts.buying import bought, catalog_of, template_of
    from signals_parts.calibration import Calibration
    from signals_parts.protocol import Settings, estimated
    from signals_parts.vinelm_signals import SignalPolicy, said_right

    from vinelm.controller import Planner
    from vinelm.estimator import estimate_signals
    from vinelm.objective import Objective
    from vinelm.signals import Outcome

    table = tables["exams"]
    catalog = catalog_of(table)
    template = template_of(2).bind(tuple(catalog))
    rows = bought(table, template, catalog, sampler="exhaustive", budget_usd=1.0, seed=1)
    signals = estimate_signals(estimated(rows, template, catalog, Settings(is_checked=False)), rows)
    policy = SignalPolicy(Planner(signals), Objective(maximize="accuracy", max_cost_usd=0.005))
    found = Calibration.of([policy], table)
    trie, outcomes, expected = signals.trie, signals.outcomes, []

    def shown(row, m, kind):
        label = int(table.signal[row, m])
        return Outcome(None if label < 0 else table.labels[label], kind), bool(table.passed[row, m])

    for row in range(len(table)):
        column = table.column
        for first in column.values():
            kind = None if table.answer_class[row, first] < 0 else 0
            outcome, passed = shown(row, first, kind)
            node = trie.child(0, [*column][first])
            expected.append((said_right(outcomes, outcomes.seen(node, outcome, passed=passed).place), 1 / 3))
        for first, second in permutations(column.values(), 2):
            kind = None if table.answer_class[row, first] < 0 else 0
            outcome, passed = shown(row, first, kind)
            node = trie.child(0, [*column][first])
            arm = int(outcomes.arm[outcomes.seen(node, outcome, passed=passed).place])
            if arm < 0:
                continue
            below = trie.child(node, [*column][second], trie.stages[arm])
            own, earlier = table.answer_class[row, second], table.answer_class[row, first]
            later = None if own < 0 else 0 if own == earlier or kind is None else 1
            outcome, passed = shown(row, second, later)
            expected.append((said_right(outcomes, outcomes.seen(below, outcome, passed=passed).place), 1 / 6))
    got = np.column_stack((found.histories.probability, found.histories.weight))
    np.testing.assert_allclose(got[np.lexsort(got.T)], np.array(expected)[np.lexsort(np.array(expected).T)], atol=1e-12)
    assert len(found.returned.right) == len(table)
    assert set(found.returned.probability.round(9)) <= set(found.histories.probability.round(9))


def run(script, monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["signals.py", *map(str, arguments)])
    code = script.main()
    found = capsys.readouterr()
    return code, found.out, found.err


@pytest.mark.long
def test_every_method_is_measured_on_every_table(data, monkeypatch, capsys):
    code, out, _ = run(script, monkeypatch, capsys, "--data", data, "--tables", "exams,classeval", *QUICK)
    assert code == 0
    result = json.loads(out)
    assert [*result["tables"]] == ["exams", "classeval"]
    for table in result["tables"].values():
        found = table["depths"]["3"]["cascade"]
        assert {*found["methods"]} >= METHODS
        oracle = found["methods"]["oracle"]
        for name, one in found["methods"].items():
            assert len(one["budgets"]) == 4
            assert 0 < one["budgets"][-1]["accuracy"] <= oracle["budgets"][-1]["accuracy"]  # every budget is enough for it
            assert (one["promised_less_achieved"] is None) == (name == "oracle")
            assert (one["ece_points"] is None) == (name != "vinelm")
        assert all(0.0 <= points < 50.0 for points in found["methods"]["vinelm"]["ece_points"].values())
        gap = found["differences"]["static"]["two_agree"]
        accuracy = found["methods"]["two_agree"]["accuracy"] - found["methods"]["static"]["accuracy"]
        assert gap["value"] == pytest.approx(accuracy)
        equal = found["equal_dollars"]
        assert {*equal["over"]["mixed"]} == {*found["methods"]} - {"vinelm", "oracle"}
        assert all(one["low"] <= one["value"] <= one["high"] for one in equal["over"]["mixed"].values())
        assert equal["over_in_hindsight"]["static"]["value"] <= equal["over"]["mixed"]["static"]["value"] + 1e-9
    text = script.as_text(result)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.long
def test_systems_and_their_prices_come_from_a_file(data, tmp_path, monkeypatch, capsys):
    file = tmp_path / "systems.csv"
    file.write_text("name,usd_per_1000\nsmall,3\nlarge,\nGPT-4@2024,7\n")
    code, out, err = run(script, monkeypatch, capsys, "--data", data, "--systems", file, *QUICK)
    assert code == 0
    found = json.loads(out)["tables"]
    assert [*found] == ["exams"]
    prices = {name: one["usd_per_1000"] for name, one in found["exams"]["systems"].items()}
    assert prices == {"small": pytest.approx(3.0), "large": pytest.approx(20.0)}
    assert "classeval: 1 of the named systems, left out" in err


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        (None, [], "say where the recorded data is"),
        (None, ["--data", "{empty}"], "none of outcomes/spider_sql.csv.gz"),
        (None, ["--data", "{data}", "--samplers", "best"], "--samplers 'best'"),
        (None, ["--data", "{data}", "--depths", "x"], "--depths 'x'"),
        (None, ["--data", "{data}", "--coverage", "0"], "--coverage 0.0"),
        (None, ["--data", "{data}", "--splits", "0"], "at least 1"),
        (None, ["--data", "{data}", "--tables", "nothing"], "nothing to measure"),
        ("name,price\na,1\n", ["--data", "{data}"], "the columns are"),
        ("name,usd_per_1000\nsmall,-1\n", ["--data", "{data}"], "dollars >= 0"),
        ("name,usd_per_1000\nsmall,1\nnobody,1\nlarge,1\n", ["--data", "{data}"], "no table has the system 'nobody'"),
    ],
)
def test_bad_input_is_one_line(data, tmp_path, monkeypatch, capsys, text, arguments, says):
    monkeypatch.delenv("VINELM_DATA", raising=False)
    arguments = [one.format(data=data, empty=tmp_path) for one in arguments]
    if text is not None:
        (tmp_path / "systems.csv").write_text(text)
        arguments += ["--systems", str(tmp_path / "systems.csv")]
    code, out, err = run(script, monkeypatch, capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: ")
    assert says in err


def test_a_damaged_file_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "outcomes").mkdir()
    (tmp_path / "outcomes" / "exam_retries.csv.gz").write_bytes(b"no gzip")
    code, _, err = run(script, monkeypatch, capsys, "--data", tmp_path)
    assert code == 2
    assert "exam_retries.csv.gz: cannot read the recorded answers" in err


def test_the_results_of_the_readme_are_those_of_the_run():
    over = {"value": 0.013, "low": -0.002, "high": 0.03}
    said = {"promised_less_achieved": 0.01, "spent_over_promised": 0.9, "spent_over_bound": 0.8, "covered_at_90": 0.9}
    leads = {"static": over, "mixed_single": over}
    equal = {
        "over": {"mixed": leads, "unmixed": leads},
        "over_in_hindsight": leads,
        "best_rival": "static",
        "by_budget": [{"accuracy": 0.4}, {"accuracy": 0.6}],
        "mixed_less_unmixed_at_the_same_bound": over,
        "kinds_over": leads | {"mixed": over, "kind_table": over},
        "promises": {"mixed": said, "vinelm_kinds": said},
        "saved": {"strongest": {"mixed": {"value": 0.4, "low": None, "high": 0.5}}},
    }
    found = {"methods": {"vinelm": {"ece_points": {"returned": 2.0}}}, "rows": 9.0, "spent_usd": 1.0, "equal_dollars": equal}
    tables = {
        "exams": {"depths": {"3": {"priced": found, "scored-300": found}}},
        "llmrouter": {"depths": {"1": {"priced": found}}},
    }
    pages = script.page_figures({"tables": tables})
    assert [one["title"].split(",")[0] for one in pages["tables"]] == ["nine models", "nine models"]
    assert len(pages["scored-300"]) == 1
    one = pages["tables"][0]
    assert one["right"] == {"vinelm": 50.0, "static": pytest.approx(48.7), "mixed_single": pytest.approx(48.7)}
    assert (one["best_rival"], one["over_best"]) == ("static plan", "+1.3 [-0.2, +3.0]")
    assert one["kinds"]["over_no_kinds"] == "+1.3 [-0.2, +3.0]"
    assert one["kinds"]["promised_less_achieved"] == pytest.approx(1.0)
    assert one["saved_text"] == {"strongest": "40 % [below -100, 50]"}


@pytest.mark.parametrize(("depths", "samplers"), [("4", "priced"), ("3,4", "cascade")])
def test_results_need_what_they_quote(depths, samplers):
    with pytest.raises(ConfigError, match="--results has the figures of depth 3 and sampler 'priced'"):
        script.require_measured(depths, samplers)

"""Somebody's table of recorded outcomes becomes a store that says the same."""

import csv
import gzip
import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest
from kit.catalogs import make_catalog
from science.recorded_table import RecordedTable

from vinelm import estimate
from vinelm.catalog import Catalog, Model, Price
from vinelm.errors import ConfigError, DatasetError
from vinelm.template import Loop, Stage, Template
from vinelm.traces import Condition, LogColumns, LogImport, ObservationStore, check_store, import_log
from vinelm.traces.imports.export_import import export_store, import_export
from vinelm.traces.store.shown import ShownRows

DATA = Path(os.environ.get("VINELM_DATA", Path(__file__).parents[4] / "shared" / "data")) / "outcomes"
HEAD = "id,model,right,usd,secs\n"
ANSWERS = HEAD + "7,a,0,0.1,1\n7,b,1,0.4,2\n8,a,1,0.1,3\n8,b,0,0.5,4\n"
COLUMNS = {"request": ("id",), "model": "model", "success": "right", "cost_usd": "usd", "latency_s": "secs"}


def imported(folder, text, *, name="log.csv", columns=None, **how):
    table = folder / name
    table.write_text(text)
    settings = {"columns": LogColumns(**{**COLUMNS, **(columns or {})}), "workflow": "ours", "stop": "oracle", **how}
    found = import_log(table, folder / "log.db", LogImport(**settings))
    with ObservationStore.open(folder / "log.db") as store:
        rows, identity, requests = store.observations(), store.identity, store.request_ids()
    assert check_store(folder / "log.db").findings == ()
    return found, rows, identity, requests


def cells(rows):
    return {(row.request_id, row.prefix): row for row in rows}


def test_first_answers_are_a_cascade_of_one(tmp_path):
    found, rows, identity, requests = imported(tmp_path, ANSWERS)
    assert (found.rows, found.requests, found.models, found.depth) == (4, 2, ("a", "b"), 1)
    assert (found.paid_usd, found.stop) == (pytest.approx(1.1), "oracle")
    assert [note[:66] for note in found.notes] == ["a request ends when its answer is right (oracle stop), which no se"]
    assert [(r.request_id, r.prefix, r.success, r.stopped, r.cost_usd, r.latency_s) for r in rows] == [
        ("7", ("a",), False, None, 0.1, 1.0), ("7", ("b",), True, None, 0.4, 2.0),
        ("8", ("a",), True, None, 0.1, 3.0), ("8", ("b",), False, None, 0.5, 4.0),
    ]  # fmt: skip
    assert requests == ["7", "8"]
    assert identity.workflow == "ours"
    assert not identity.is_simulated
    assert identity.models()["b"].price.call == pytest.approx(0.45)
    assert "mean of usd in log.csv" in identity.models()["b"].price.source


def test_a_model_that_is_asked_again_repeats_itself_and_ends_end(tmp_path):
    found, rows, identity, _ = imported(tmp_path, ANSWERS, depth=3, stages=("generate", "repair"))
    assert cells(rows).keys() == {
        ("7", ("a",)), ("7", ("a", "a")), ("7", ("a", "a", "a")), ("7", ("a", "a", "b")), ("7", ("a", "b")), ("7", ("b",)),
        ("8", ("a",)), ("8", ("b",)), ("8", ("b", "a")), ("8", ("b", "b")), ("8", ("b", "b", "a")), ("8", ("b", "b", "b")),
    }  # fmt: skip
    assert [s.name for s in identity.bound_template().invocations] == ["generate", "repair", "repair"]
    assert "repeats its answer" in found.notes[-1]


ROUNDS = "id,model,right,usd,secs,round\n7,a,0,0.1,1,1\n7,a,1,0.2,2,2\n7,b,0,0.4,3,1\n7,b,0,0.8,4,2\n"


def test_a_model_that_is_asked_again_gives_its_next_round(tmp_path):
    found, rows, _, _ = imported(tmp_path, ROUNDS, columns={"round": "round"})
    assert found.depth == 2
    assert {prefix: (row.success, row.cost_usd) for (_, prefix), row in cells(rows).items()} == {
        ("a",): (False, 0.1), ("a", "a"): (True, 0.2), ("a", "b"): (False, 0.4),
        ("b",): (False, 0.4), ("b", "a"): (False, 0.1), ("b", "b"): (False, 0.8),
    }  # fmt: skip


RUNS = (
    "id,run,step,node,model,right,usd,secs,error\n"
    "7,r1,2,repair,b,1,0.4,2,\n7,r1,1,generate,a,0,0.1,1,\n7,r2,1,generate,b,1,0.2,1,\n"
    "8,r3,1,generate,a,0,0.1,1,\n8,r3,2,repair,a,,0.3,9,timeout\n8,r4,1,generate,b,,0.1,1,sk-secret in a message\n"
)
RUN_COLUMNS = {"run": "run", "round": "step", "stage": "node", "failure": "error"}


def test_runs_become_paths(tmp_path):
    found, rows, identity, _ = imported(tmp_path, RUNS, columns=RUN_COLUMNS, stop=None)
    assert (found.depth, found.notes) == (2, ())
    assert {key: (r.stage, r.success, r.stopped, r.failure) for key, r in cells(rows).items()} == {
        ("7", ("a",)): ("generate", False, False, None), ("7", ("a", "b")): ("repair", True, True, None),
        ("7", ("b",)): ("generate", True, True, None), ("8", ("a",)): ("generate", False, False, None),
        ("8", ("a", "a")): ("repair", None, None, "timeout"), ("8", ("b",)): ("generate", None, None, "unknown"),
    }  # fmt: skip
    assert [s.name for s in identity.bound_template().invocations] == ["generate", "repair"]
    assert b"sk-secret" not in (tmp_path / "log.db").read_bytes()


def test_json_lines_and_the_workflows_own_check(tmp_path):
    lines = [
        {"id": 1, "model": "a", "right": True, "usd": 0.1, "secs": 1, "status": "ok", "n": 3},
        {"id": 1, "model": "b", "right": False, "usd": 0.1, "secs": 1, "status": "ok", "n": 0},
        {"id": 2, "model": "a", "right": False, "usd": 0.1, "secs": 1, "status": "error", "n": None},
    ]
    conditions = (Condition.parse("status = ok"), Condition.parse("n>0"))
    text = "\n".join(map(json.dumps, lines))
    _, rows, _, _ = imported(tmp_path, text, name="log.jsonl", columns={"stopped_if": conditions}, stop=None, depth=2)
    assert {key: row.stopped for key, row in cells(rows).items()} == {
        ("1", ("a",)): True, ("1", ("b",)): False, ("1", ("b", "a")): True, ("1", ("b", "b")): False,
        ("2", ("a",)): False, ("2", ("a", "a")): False,
    }  # fmt: skip


def test_prices_of_a_catalog(tmp_path):
    price = {"source": "a page", "as_of": "2026-01-01"}
    catalog = Catalog(
        Model(name=n, provider="p", model_id=n, engine="e", price=Price(input=i, output=2 * i, call=c, **price))
        for n, i, c in (("b", 1e6, 0.0), ("z", 0.0, 1.0), ("a", 0.0, 0.125))
    )
    text = "id,model,right,in,out\n1,a,1,,\n1,b,0,3,4\n1,unlisted,0,3,4\n"
    columns = {"cost_usd": None, "latency_s": None, "tokens_in": "in", "tokens_out": "out"}
    found, rows, _, _ = imported(tmp_path, text, columns=columns, catalog=catalog)
    assert found.models == ("b", "a")
    assert [(r.model, r.cost_usd, r.tokens_in) for r in rows] == [("b", 11.0, 3), ("a", 0.125, None)]
    assert "latency is unknown" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "change", "words"),
    [
        (ANSWERS + "7,a,1,9,9\n", {}, r":6: 'a' answers request '7' twice \(first on line 2\).*keep one of them"),
        (ANSWERS, {"columns": {"request": ("nr",)}}, r":2: no column 'nr': the table has id, model, right, usd, secs"),
        (ANSWERS.replace("7,a,0", "7,a,perhaps"), {}, ":2: right is 'perhaps': it must be 0 or 1"),
        (ANSWERS.replace("0.5", "nan"), {}, ":5: usd is 'nan': it must be a finite number >= 0"),
        (ANSWERS.replace("0.5", "-1"), {}, ":5: usd is '-1'"),
        (ANSWERS.replace(",0.1,3\n", ",,3\n"), {}, ":4: usd is empty: fix the row, or exclude"),
        (ANSWERS + ",a,1,1,1\n", {}, ":6: id is empty"),
        (HEAD, {}, "no row is left"),
        (ANSWERS, {"models": ("ghost",)}, "no row is left"),
        (ANSWERS, {"models": ("a", "ghost")}, "no row of the model 'ghost'"),
        (ANSWERS, {"columns": {"cost_usd": None}}, "the cost of a call is unknown: name the cost column"),
        (
            ANSWERS,
            {"columns": {"cost_usd": None}, "catalog": make_catalog(2)},
            "'m0' is priced by token: name both token columns",
        ),
        (ANSWERS, {"stop": None}, "it is unknown when a request ends"),
        (ANSWERS, {"columns": {"stage": "model"}}, "a stage column needs a run column"),
        (
            ROUNDS,
            {"columns": {"round": "round"}, "depth": 3},
            "depth 3 needs 3 rounds of answers, but the table has 2: use depth 2",
        ),
        (ROUNDS.replace("4,2", "4,0"), {"columns": {"round": "round"}}, ":5: round is '0': it must be a whole number >= 1"),
        (
            RUNS.replace("r1,2", "r1,3"),
            {"columns": RUN_COLUMNS},
            "run 'r1' of request '7' does not have exactly one invocation 2",
        ),
        (
            RUNS.replace("r2", "r5") + "7,r6,1,generate,b,1,0.2,1,\n",
            {"columns": RUN_COLUMNS},
            ":8: request '7', prefix b .*line 4",
        ),
        (
            RUNS.replace("1,repair", "x").replace("2,repair,a", "2,polish,a"),
            {"columns": RUN_COLUMNS},
            "each position must have one stage",
        ),
    ],
)
def test_what_is_wrong_is_one_line_and_no_store_is_left(tmp_path, text, change, words):
    with pytest.raises((DatasetError, ConfigError), match=words) as caught:
        imported(tmp_path, text, **change)
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["log.csv"]


@pytest.mark.parametrize("text", ["", "=ok", "n>many", "a<>b"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ConfigError):
        Condition.parse(text)


def test_conditions_compare_text_numbers_and_gaps():
    row = {"n": "10", "s": "ok", "e": None, "f": "true", "x": 3.0}
    true = ["n>9", "n>=10", "n!=9", "n=10", "s=ok", "s != no", "e=", "f", "x=3", "n<11", "s!="]
    false = ["n>10", "n<10", "s=no", "e!=", "e", "e>0", "e<5", "n=010"]
    assert [t for t in true if not Condition.parse(t).holds(row, "here")] == []
    assert [t for t in false if Condition.parse(t).holds(row, "here")] == []


# -- real tables -----------------------------------------------------------------------------------------------

needs_data = pytest.mark.skipif(not DATA.exists(), reason="real data not at hand")
SPIDER = ("gpt-4__dea_sql", "gpt-3.5__c3", "codes-1b__sft", "codex__few_shot")


def flat_catalog(names):
    price = {"source": "assumed", "as_of": "2026-01-01"}
    return Catalog(
        Model(name=n, provider="recorded", model_id=n, engine=n, price=Price(input=0, output=0, call=0.001 * (i + 1), **price))
        for i, n in enumerate(names)
    )


@needs_data
def test_the_real_exam_table_is_exact_to_its_second_round(tmp_path):
    columns = LogColumns(
        request=("dataset", "question_id"), model="model", success="correct", cost_usd="cost_usd", latency_s="latency_s",
        tokens_in="tokens_in", tokens_out="tokens_out", round="round", where=(Condition("latency_s", "!=", ""),),
    )  # fmt: skip
    how = LogImport(columns=columns, workflow="exams", stop="oracle")
    found = import_log(DATA / "exam_retries.csv.gz", tmp_path / "e.db", how)
    with ObservationStore.open(tmp_path / "e.db") as store:
        rows = cells(store.observations())
    with gzip.open(DATA / "exam_retries.csv.gz", "rt") as text:
        recorded = [row for row in csv.DictReader(text) if row["latency_s"]]
    known = {(f"{r['dataset']}/{r['question_id']}", r["model"], int(r["round"])): r for r in recorded}
    wanted = {}
    for (request, model, turn), row in known.items():
        if turn == 1:
            wanted[request, (model,)] = row
    for (request, (model,)), row in list(wanted.items()):
        for other in found.models:
            below = known.get((request, other, 2 if other == model else 1))
            if row["correct"] == "0" and below is not None:
                wanted[request, (model, other)] = below
    assert rows.keys() == wanted.keys()
    assert all(
        (row.success, row.cost_usd) == (wanted[key]["correct"] == "1", float(wanted[key]["cost_usd"]))
        for key, row in rows.items()
    )
    assert found.depth == 2
    assert len(found.models) == 9


@needs_data
def test_estimate_takes_it(tmp_path):
    from vinelm.api.estimation import estimate_store

    columns = LogColumns(request=("question_id",), model="model", success="correct")
    how = LogImport(columns=columns, workflow="spider", catalog=flat_catalog(SPIDER[:3]), depth=2, stop="oracle")
    import_log(DATA / "spider_sql.csv.gz", tmp_path / "s.db", how)
    annotated = estimate_store(tmp_path / "s.db", estimator="cascade-svd")
    with ObservationStore.open(tmp_path / "s.db") as store:
        rows = store.observations()
    right = {r.request_id: r.success for r in rows if r.prefix == (SPIDER[0],)}
    assert float(annotated.accuracy[annotated.trie.node((SPIDER[0],))]) == pytest.approx(
        np.mean(list(right.values())), abs=0.02
    )
    assert annotated.meta["workflow"] == "spider"
    assert not annotated.meta["is_simulated"]


def test_a_random_table_is_laid_out_like_the_exact_one(tmp_path):
    rng = np.random.default_rng(3)
    models, requests = ("m0", "m1", "m2"), tuple(f"r{i}" for i in range(12))
    success, stopped = rng.random((2, 12, 3)) < 0.4
    cost = rng.random((12, 3))
    lines = ["id,model,right,usd,secs,done"]
    for (i, r), (j, m) in itertools.product(enumerate(requests), enumerate(models)):
        lines.append(f"{r},{m},{int(success[i, j])},{float(cost[i, j])!r},1,{int(stopped[i, j])}")
    for stop in ("workflow", "oracle"):
        folder = tmp_path / stop
        folder.mkdir()
        columns = {"stopped_if": (Condition.parse("done"),)}
        _, rows, _, _ = imported(folder, "\n".join(lines), columns=columns, stop=stop, depth=3, stages=("g", "r"))
        template = Template((Stage("g"), Loop((Stage("r"),), 2)), stop).bind(models)
        exact = RecordedTable.from_answers(
            template, make_catalog(3), requests, success=success, stopped=stopped, cost_usd=cost, latency_s=np.ones((12, 3))
        )
        wanted = [exact.observation(int(r), int(n)) for r, n in zip(*np.nonzero(exact.reached), strict=True) if n]
        assert rows == wanted


def ledger(path):
    with ObservationStore.open(path) as store:
        return store.committed_usd()


@pytest.mark.parametrize(
    ("text", "how", "paid_usd"),
    [
        (ANSWERS, {"depth": 3}, 1.1),
        (ROUNDS, {"columns": {"round": "round"}}, 1.5),
        (ROUNDS.replace("7,a,0", "7,a,1"), {"columns": {"round": "round"}}, 1.5),  # nothing comes to the second answers of a
        (RUNS, {"columns": RUN_COLUMNS, "stop": None}, 1.2),
    ],
)
def test_a_recorded_call_was_paid_once_however_many_paths_use_it(tmp_path, text, how, paid_usd):
    found, rows, _, _ = imported(tmp_path, text, **how)
    path = tmp_path / "log.db"
    assert found.paid_usd == ledger(path) == pytest.approx(paid_usd)
    assert len({(row.request_id, row.prefix) for row in rows}) == len(rows)
    with ObservationStore.open(path) as store:
        export_store(store, tmp_path / "rows.csv")
    import_export(tmp_path / "rows.csv", tmp_path / "again.db")
    assert ledger(tmp_path / "again.db") == pytest.approx(paid_usd)
    with ObservationStore.open(tmp_path / "again.db") as again:
        assert again.observations() == rows


def test_the_dollars_that_were_spent_are_those_that_were_paid(tmp_path):
    text = HEAD + "".join(f"{i},{m},{(i + k) % 2},{0.1 * (k + 1)},1\n" for i in range(40) for k, m in enumerate("ab"))
    imported(tmp_path, text, depth=3)
    meta = estimate(tmp_path / "log.db").meta
    assert meta["paid_usd"] == pytest.approx(12.0) == pytest.approx(ledger(tmp_path / "log.db"))
    assert meta["spent_usd"] > 20.0


def test_an_empty_latency_is_unknown(tmp_path):
    found, rows, _, _ = imported(tmp_path, ANSWERS.replace(",3\n", ",\n"), depth=2, stop="oracle")
    untimed = {(row.request_id, row.prefix) for row in rows if not row.is_timed}
    assert untimed == {("8", ("a",)), ("8", ("b", "a"))}
    assert "latency is unknown of 1 recorded calls" in found.notes
    text = HEAD + "".join(f"{i},{m},{(i + k) % 2},0.1,{'' if i % 3 else 4}\n" for i in range(40) for k, m in enumerate("ab"))
    (tmp_path / "log.db").unlink()
    imported(tmp_path, text, depth=1)
    annotated = estimate(tmp_path / "log.db", check=False)
    assert annotated.knows_latency
    assert annotated.latency_s[1:] == pytest.approx([4.0, 4.0])


def test_without_a_column_of_seconds_none_is_known(tmp_path):
    text = HEAD + "".join(f"{i},{m},{(i + k) % 2},0.1,\n" for i in range(40) for k, m in enumerate("ab"))
    _, rows, _, _ = imported(tmp_path, text, columns={"latency_s": None})
    assert not any(row.is_timed for row in rows)
    assert not estimate(tmp_path / "log.db", check=False).knows_latency


def test_answers_of_a_column_are_compared_as_a_profile_compares_them(tmp_path):
    text = "id,model,right,usd,passed,said\n7,a,0,0.1,0,x\n7,b,1,0.4,1,y\n7,c,0,0.2,0,x\n8,a,1,0.1,1,\n"
    columns = {"latency_s": None, "answer": "said", "stopped_if": (Condition.parse("passed"),)}
    _, rows, _, _ = imported(tmp_path, text, columns=columns, stop=None, depth=2)
    found = cells(rows)
    assert {prefix: found["7", prefix].answer_class for prefix in [("a",), ("b",), ("c",), ("a", "b"), ("c", "a")]} == {
        ("a",): 0, ("b",): 1, ("c",): 0, ("a", "b"): 1, ("c", "a"): 0,
    }  # fmt: skip
    assert (found["7", ("a",)].answer, found["8", ("a",)].answer, found["8", ("a",)].answer_class) == ('"x"', None, None)
    with ObservationStore.open(tmp_path / "log.db") as store:
        assert ShownRows(store).record.answer == ("said",)


def test_imported_answers_are_planned_over(tmp_path):
    lines = [f"{i},{m},{int(i % (k + 2) > 0)},{0.1 * (k + 1)},{i % 2},{'r' if i % (k + 2) else m}" for i in range(60)
             for k, m in enumerate("abc")]  # fmt: skip
    columns = {"latency_s": None, "answer": "said", "stopped_if": (Condition.parse("passed"),)}
    text = "id,model,right,usd,passed,said\n" + "\n".join(lines)
    imported(tmp_path, text, columns=columns, stop=None, depth=2)
    assert estimate(tmp_path / "log.db").signals is not None

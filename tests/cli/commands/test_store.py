"""``vinelm store``: what a user types, and what bad input says."""

import json
import random
import resource
import shutil
import sqlite3

import pytest

from vinelm.cli.main import main
from vinelm.requests.workflow import Request
from vinelm.traces import ObservationStore
from vinelm.traces.testing import a_row, an_identity

LOG = "id,model,right,usd\n7,a,0,0.1\n7,b,1,0.4\n8,a,1,0.1\n8,b,0,0.5\n"
MAPPED = [
    "--column", "request=id", "--column", "model=model", "--column", "success=right", "--column", "cost_usd=usd",
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working folder with a small store, another one of the same workflow, and a log."""
    monkeypatch.chdir(tmp_path)
    for name, request in (("a.db", "q1"), ("b.db", "q2")):
        with ObservationStore.create(tmp_path / name, an_identity()) as store:
            store.register([Request("q1", {}), Request("q2", {})])
            store.add(a_row(request), b"state", reservation=store.reserve(request, ("small",), 9.0))
            store.add(a_row(request, ("small", "large"), success=None, stopped=None, failure="timeout"))
    (tmp_path / "log.csv").write_text(LOG)
    return tmp_path


def run(capsys, *args, code=0):
    group = () if args[0] == "export" else ("store",)
    assert main([*group, *args]) == code
    said = capsys.readouterr()
    return said.out if code in (0, 1) else said.err


def refused(capsys, folder, *args):
    """Exit code 2, one line, nothing written; the line."""
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    line = run(capsys, *args, code=2)
    assert line.count("\n") == 1
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    return line


def change(path, sql):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(sql)
    connection.close()


def test_info_says_whose_how_many_and_how_much(capsys):
    text = run(capsys, "info", "a.db")
    for words in ("toy: 2 rows of simulated models", "1 of 2 observed", "small", "Coverage", "Ledger"):
        assert words in text
    facts = json.loads(run(capsys, "info", "a.db", "--json"))
    assert facts["rows_per_depth"] == {"1": 1, "2": 1}
    assert facts["failures"] == {"timeout": 1}
    assert facts["spend"]["model"]["small"] == {"rows": 1, "calls": 1, "cost_usd": 0.25, "failures": 0}
    assert facts["committed_usd"] == 0.25
    assert 0 < facts["coverage"] <= 1
    assert (facts["requests"], facts["requests_observed"], facts["checkpoints"]) == (2, 1, 1)
    assert facts["held_by"] is None


def test_info_of_a_store_that_a_run_holds_names_the_run(capsys, folder):
    with ObservationStore.open(folder / "a.db") as store, store.exclusive():
        assert json.loads(run(capsys, "info", "a.db", "--json"))["held_by"].startswith("pid ")


def test_info_of_an_empty_store(capsys, folder):
    ObservationStore.create(folder / "empty.db", an_identity()).close()
    assert "0 rows" in run(capsys, "info", "empty.db")
    assert json.loads(run(capsys, "info", "empty.db", "--json"))["coverage"] is None


def test_info_of_a_store_with_a_row_that_does_not_fit_still_answers(capsys):
    change("a.db", "UPDATE observations SET model = 'ghost', prefix = '[\"ghost\"]' WHERE depth = 1")
    assert json.loads(run(capsys, "info", "a.db", "--json"))["rows"] == 2
    assert "'ghost'" in run(capsys, "check", "a.db", code=1)


def test_check_of_a_whole_store_and_of_a_damaged_one(capsys):
    assert "a.db: no damage (2 rows, 1 checkpoints, 1 ledger entries)" in run(capsys, "check", "a.db")
    change("a.db", "UPDATE blobs SET content = x'00'")
    text = run(capsys, "check", "a.db", code=1)
    assert "DAMAGE" in text
    assert "'q1'" in text
    found = json.loads(run(capsys, "check", "a.db", "--json", code=1))
    assert not found["is_whole"]
    assert [item["count"] for item in found["findings"] if item["is_damage"]] == [1]


def test_a_copy_of_a_live_run_is_refused_until_accepted(capsys, folder):
    with ObservationStore.open(folder / "a.db") as store, store.exclusive():
        store.add(a_row("q2"))
        shutil.copy(folder / "a.db", folder / "copy.db")
    line = refused(capsys, folder, "check", "copy.db")
    assert "copy.db-wal" in line
    assert "vinelm store check --accept STORE" in line
    assert "no damage (2 rows" in run(capsys, "check", "--accept", "copy.db")
    assert "2 rows" in run(capsys, "info", "copy.db")
    assert "no damage (3 rows" in run(capsys, "check", "a.db")


@pytest.mark.parametrize("table", ["rows.csv", "rows.csv.gz", "rows.parquet"])
def test_export_and_import_again(capsys, folder, table):
    if table.endswith("parquet"):
        pytest.importorskip("pyarrow")
    assert f"wrote 2 rows to {table}" in run(capsys, "export", "a.db", "-o", table)
    assert "wrote back.db. Next: vinelm estimate back.db" in run(capsys, "import", table, "-o", "back.db")
    with ObservationStore.open(folder / "a.db") as one, ObservationStore.open(folder / "back.db", an_identity()) as two:
        assert one.observations() == two.observations()


def test_merge(capsys, folder):
    text = run(capsys, "merge", "a.db", "b.db", "-o", "m.db")
    assert "b.db: 2 new rows" in text
    assert "wrote 4 rows to m.db" in text
    assert "no damage (4 rows, 2 checkpoints" in run(capsys, "check", "m.db")
    assert "exists already" in refused(capsys, folder, "merge", "a.db", "b.db", "-o", "m.db")


def test_a_log_becomes_a_store_that_estimate_takes(capsys, folder):
    text = " ".join(run(capsys, "import", "log.csv", "-o", "log.db", *MAPPED, "--stop", "oracle", "--depth", "2").split())
    assert "8 rows: 2 requests, 2 models, paths of up to 2 invocations" in text
    assert "latency is unknown" in text
    assert main(["estimate", "log.db", "-o", "log.vine", "--no-check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["observations"] == 8
    assert main(["plan", "log.vine", "--maximize", "accuracy"]) == 0
    assert "Latency: unknown" in " ".join(capsys.readouterr().out.split())
    assert main(["plan", "log.vine", "--maximize", "accuracy", "--max-latency-s", "5"]) == 2
    assert "--max-latency-s needs latencies" in capsys.readouterr().err
    assert main(["report", "log.db", "log.vine", "-o", "report"]) == 0
    page = (folder / "report" / "report.html").read_text()
    assert "latency cap" not in page
    assert "accuracy–cost frontier" in page
    assert main(["trie", "show", "log.vine", "--json"]) == 0
    assert '"latency_s": null' in capsys.readouterr().out


def test_a_log_with_conditions_subsets_and_names(capsys, folder):
    facts = json.loads(
        run(
            capsys, "import", "log.csv", "-o", "log.db", *MAPPED, "--where", "id!=8", "--only-model", "b", "--workflow", "ours",
            "--stage", "solve", "--stopped-if", "right=1", "--json",
        )
    )  # fmt: skip
    assert (facts["rows"], facts["models"]) == (1, ["b"])
    info = json.loads(run(capsys, "info", "log.db", "--json"))
    assert (info["workflow"], info["invocations"], info["stop"]) == ("ours", ["solve"], "workflow")
    assert info["sources"][0]["name"] == "log.csv"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["info", "none.db"], ("none.db: no such store",)),
        (["info", "log.csv"], ("log.csv: this is a table in CSV, not a store",)),
        (["check", "none.db"], ("no such store",)),
        (["export", "none.db", "-o", "x.csv"], ("no such store",)),
        (["export", "a.db", "-o", "x.xlsx"], ("x.xlsx", ".csv", ".parquet")),
        (["export", "a.db", "-o", "no/x.csv"], ("the folder no does not exist",)),
        (["import", "none.csv", "-o", "x.db"], ("none.csv: no such file",)),
        (["import", "log.txt", "-o", "x.db"], ("log.txt: unknown table format",)),
        (["import", "none.csv", "-o", "x.db", *MAPPED, "--stop", "oracle"], ("none.csv: cannot read the table",)),
        (
            ["import", "log.csv", "-o", "x.db"],
            ("with --column request=COLUMN, --column model=COLUMN, --column success=COLUMN", "log.csv.store.json"),
        ),
        (
            ["import", "log.csv", "-o", "x.db", "--column", "request=id"],
            ("with --column model=COLUMN, --column success=COLUMN",),
        ),
        (["import", "log.csv", "-o", "a.db", *MAPPED, "--stop", "oracle"], ("a.db: exists already",)),
        (["import", "log.csv", "-o", "x.db", *MAPPED], ("it is unknown when a request ends", "--stopped-if", "--stop oracle")),
        (["import", "log.csv", "-o", "x.db", *MAPPED, "--stopped-if", "=1"], ("'=1' is not a condition",)),
        (["import", "log.csv", "-o", "x.db", *MAPPED, "--stop", "oracle", "--models", "no.toml"], ("no.toml: cannot read",)),
        (["merge", "a.db", "-o", "x.db"], ("at least two stores",)),
        (["merge", "a.db", "a.db", "-o", "x.db"], ("a.db: named twice",)),
        (["merge", "a.db", "none.db", "-o", "x.db"], ("none.db: no such store",)),
        (["frobnicate"], ("No such command 'frobnicate'", "vinelm store --help")),
    ],
)
def test_bad_input_is_one_line_with_code_2_and_nothing_is_written(capsys, folder, args, words):
    line = refused(capsys, folder, *args)
    assert [word for word in words if word not in line] == [], line


@pytest.fixture
def full_disk():
    """Makes a disk on which no file can be longer than 40 kB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "args",
    [
        ["import", "big.csv", "-o", "x.db"],
        ["import", "log.csv", "-o", "x.db", *MAPPED, "--stop", "oracle"],
        ["merge", "big.db", "a.db", "-o", "x.db"],
        ["export", "big.db", "-o", "x.csv"],
        ["export", "big.db", "-o", "x.csv.gz"],
        ["export", "big.db", "-o", "x.parquet"],
    ],
    ids=" ".join,
)
def test_on_a_full_disk_nothing_is_left(capsys, folder, full_disk, args):
    if "x.parquet" in args:
        pytest.importorskip("pyarrow")
    with ObservationStore.create(folder / "big.db", an_identity()) as store:
        store.register([Request(f"q{i}", {}) for i in range(200)])
        store.add_many(a_row(f"q{i}", ("large",), detail=random.Random(i).randbytes(300).hex()) for i in range(200))
    run(capsys, "export", "big.db", "-o", "big.csv")
    before = sorted(p.name for p in folder.iterdir())
    full_disk()
    code, said = main(args if args[0] == "export" else ["store", *args]), capsys.readouterr()
    assert (code, said.out) == (2, ""), said.err
    assert said.err.count("\n") == 1
    assert "x." in said.err
    assert ".draft" not in said.err
    assert sorted(p.name for p in folder.iterdir()) == before


@pytest.mark.parametrize("name", ["info", "check", "import", "merge"])
def test_every_subcommand_has_an_example(capsys, name):
    assert f"vinelm store {name}" in run(capsys, name, "--help").partition("Example:")[2]


def test_a_key_in_the_catalog_never_reaches_a_store(capsys, folder):
    (folder / "models.toml").write_text(
        '[[model]]\nname = "a"\nprovider = "p"\nmodel = "a"\noptions = { api_key = "sk-canary-1" }\n'
        'price = { input = 0.0, output = 0.0, call = 0.1, source = "a page", as_of = 2026-01-01 }\n'
    )
    line = refused(
        capsys, folder, "import", "log.csv", "-o", "x.db", *MAPPED[:6], "--stop", "oracle", "--models", "models.toml"
    )
    assert "'api_key' holds a secret" in line
    assert "api_key_env" in line
    assert "canary" not in line

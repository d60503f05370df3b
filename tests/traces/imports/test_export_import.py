"""Out of a store and back: nothing changes on the way, and nothing is left half-written."""

import gzip
import json
import math
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vinelm.errors import ConfigError, DatasetError, StoreError
from vinelm.requests.workflow import Request
from vinelm.traces import ObservationStore, check_store, export_store, import_export
from vinelm.traces.imports.export_import import is_export, side_file
from vinelm.traces.store.shown import ShownRows, SignalRecord
from vinelm.traces.testing import a_row, an_identity

NAMES = ["r.csv", "r.csv.gz", "r.parquet"]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
AMOUNT = st.floats(0, 1e6) | st.sampled_from([0.1, 1 / 3, 5e-324, 1e-12])
MAYBE_INT = st.none() | st.integers(0, 2**40)


@st.composite
def rows(draw):
    """Rows of the small workflow, one per cell."""
    found = {}
    for request in draw(st.lists(TEXT, min_size=1, max_size=4, unique=True)):
        prefix = tuple(draw(st.lists(st.sampled_from(["small", "large"]), min_size=1, max_size=3)))
        failure = draw(st.none() | st.sampled_from(["timeout", "crash"]))
        verdicts = st.none() if failure else st.none() | st.booleans()
        found[request, prefix] = a_row(
            request, prefix, success=draw(verdicts), stopped=draw(verdicts), cost_usd=draw(AMOUNT), latency_s=draw(AMOUNT),
            tool_cost_usd=draw(AMOUNT), tool_latency_s=draw(AMOUNT), tokens_in=draw(MAYBE_INT), tokens_out=draw(MAYBE_INT),
            tokens_cached=draw(MAYBE_INT), tokens_estimated=draw(st.booleans()), ttft_s=draw(st.none() | AMOUNT),
            calls=draw(st.integers(0, 9)), retries=draw(st.integers(0, 9)), in_flight=draw(st.integers(0, 9)),
            failure=failure, detail=draw(st.none() | TEXT), signal=draw(st.none() | TEXT),
            answer=draw(st.none() | TEXT.map(json.dumps)), answer_digest=draw(st.none() | TEXT),
            answer_class=draw(st.none() | st.integers(0, 9)), is_continued=draw(st.booleans()), sampler=draw(st.none() | TEXT),
            round=draw(st.none() | st.integers(0, 9)), probability=draw(st.none() | st.floats(1e-300, 1.0)),
        )  # fmt: skip
    return list(found.values())


def filled(path, observations):
    store = ObservationStore.create(path, an_identity())
    store.register([Request("never run", {}), *(Request(r, {}) for r in {o.request_id for o in observations} - {"never run"})])
    for row in observations:
        store.add(row, reservation=store.reserve(row.request_id, row.prefix, 1e7))
    return store


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(observations=rows())
def test_what_goes_out_comes_back(tmp_path_factory, name, observations):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("x")
    with filled(folder / "a.db", observations) as store:
        store.reserve("never run", ("small",), 3.0)
        store.settle(store.reserve("never run", ("large",), 2.0), 0.5)
        committed = store.committed_usd()
        assert export_store(store, folder / name) == len(observations)
        requests = store.request_ids()
    assert is_export(folder / name)
    assert import_export(folder / name, folder / "b.db") == len(observations)
    with ObservationStore.open(folder / "b.db", an_identity()) as back:
        assert back.observations() == observations
        assert back.request_ids() == requests
        assert back.committed_usd() == pytest.approx(committed, rel=1e-12)
        assert back.abandon_open() == 1
    assert check_store(folder / "b.db").is_whole


@pytest.mark.parametrize("name", NAMES)
def test_the_same_store_gives_the_same_bytes(tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    with filled(tmp_path / "a.db", [a_row()]) as store:
        export_store(store, tmp_path / name)
        first = (tmp_path / name).read_bytes()
        export_store(store, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    found = {path.name for path in tmp_path.iterdir()}
    assert found <= {"a.db", name, f"{name}.store.json"}


def exported(folder, observations=None):
    with filled(folder / "a.db", observations or [a_row("q1"), a_row("q2", ("small", "large"), detail="a\nb")]) as store:
        export_store(store, folder / "r.csv")
    return folder / "r.csv"


def edit(table, change):
    """Change the table's text as an editor would, and own up to it."""
    table.write_text(change(table.read_text()))
    side = side_file(table)
    side.write_text(json.dumps({k: v for k, v in json.loads(side.read_text()).items() if k != "sha256"}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace('""large""', '""ghost""'), r"r\.csv:4: request 'q2', prefix small/ghost: .*does not allow"),
        (lambda t: t.replace("repair", "polish"), r":4: .*invocation 2 is of stage 'repair', not 'polish'"),
        (lambda t: t.replace("q2", "q9"), ":4: .*the exported store has no such request"),
        (lambda t: t.replace("0.25", "nan", 1), ":2: .*cost_usd is nan"),
        (lambda t: t.replace("0.25", "free", 1), ":2: cost_usd is 'free': expected float"),
        (lambda t: t.replace("0.25", "", 1), ":2: cost_usd is empty"),
        (lambda t: t.replace(",0,1,", ",2,1,", 1), ":2: success is '2': expected bool"),
        (lambda t: t.replace("latency_s", "seconds", 1), "no column 'latency_s'"),
        (lambda t: t + t.splitlines()[1] + "\n", ":5: .*this cell is on line 2 too"),
        (lambda t: t + "q1,x\n", ":5: the line does not have the header's 29 fields"),
    ],
)
def test_a_bad_line_is_named_and_no_store_is_left(tmp_path, change, words):
    table = exported(tmp_path)
    edit(table, change)
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(DatasetError, match=words) as caught:
        import_export(table, tmp_path / "b.db")
    assert "\n" not in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_table_and_a_companion_that_do_not_belong_together_are_refused(tmp_path):
    table = exported(tmp_path)
    table.write_text(table.read_text() + "\n")
    with pytest.raises(DatasetError, match=r"not the table that r\.csv\.store\.json was written with"):
        import_export(table, tmp_path / "b.db")
    side_file(table).write_text("{")
    with pytest.raises(DatasetError, match="not an export of a store"):
        import_export(table, tmp_path / "b.db")
    side_file(table).write_text('{"format": 99}')
    with pytest.raises(DatasetError, match="export format 99"):
        import_export(table, tmp_path / "b.db")


def test_nothing_is_overwritten_and_folders_must_be_there(tmp_path):
    table = exported(tmp_path)
    before = (tmp_path / "a.db").read_bytes()
    with pytest.raises(StoreError, match="exists already"):
        import_export(table, tmp_path / "a.db")
    assert (tmp_path / "a.db").read_bytes() == before
    with pytest.raises(StoreError, match="does not exist: create it first"):
        import_export(table, tmp_path / "no" / "b.db")
    with ObservationStore.open(tmp_path / "a.db") as store:
        with pytest.raises(StoreError, match="does not exist: create it first"):
            export_store(store, tmp_path / "no" / "r.csv")
        with pytest.raises(ConfigError, match=r"\.csv, \.parquet or \.csv\.gz"):
            export_store(store, tmp_path / "r.xlsx")


def test_an_export_that_fails_leaves_the_old_table(tmp_path, monkeypatch):
    table = exported(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    monkeypatch.setattr("vinelm.traces.imports.export_import._flat", lambda row: 1 / 0)
    with ObservationStore.open(tmp_path / "a.db") as store, pytest.raises(ZeroDivisionError):
        export_store(store, table)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_what_a_dead_import_left_behind_is_removed(tmp_path, monkeypatch):
    table = exported(tmp_path)
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    (tmp_path / ".b.db.here.999999999.draft.db").write_text("half")
    (tmp_path / ".b.db.elsewhere.999999999.draft.db").write_text("another machine's")
    import_export(table, tmp_path / "b.db")
    assert not (tmp_path / ".b.db.here.999999999.draft.db").exists()
    assert (tmp_path / ".b.db.elsewhere.999999999.draft.db").exists()


def test_parquet_without_pyarrow_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with filled(tmp_path / "a.db", [a_row()]) as store, pytest.raises(ConfigError, match=r"pip install 'vinelm\[parquet\]'"):
        export_store(store, tmp_path / "r.parquet")
    assert not (tmp_path / "r.parquet").exists()


def test_a_damaged_parquet_or_gzip_is_one_line(tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "r.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(DatasetError, match="cannot read the table") as caught:
        is_export(tmp_path / "r.parquet")
    assert "\n" not in str(caught.value)
    table = exported(tmp_path)
    packed = tmp_path / "r.csv.gz"
    packed.write_bytes(gzip.compress(table.read_bytes())[:-20])
    side = json.loads(side_file(table).read_text())
    side_file(packed).write_text(json.dumps({k: v for k, v in side.items() if k != "sha256"}))
    with pytest.raises(DatasetError, match="cannot read the table"):
        import_export(packed, tmp_path / "b.db")
    assert not (tmp_path / "b.db").exists()


def test_what_rows_showed_goes_along(tmp_path):
    record = SignalRecord(signal="status", answer=("sql",), rows=1, intransitive=2)
    with filled(tmp_path / "s.db", [a_row("q1", signal="passed", answer="1", answer_digest="d", answer_class=0)]) as store:
        ShownRows(store).set_classes({}, record)
        export_store(store, tmp_path / "r.csv")
    import_export(tmp_path / "r.csv", tmp_path / "back.db")
    with ObservationStore.open(tmp_path / "back.db") as store:
        assert ShownRows(store).record == record
        assert store.observations()[0].answer_class == 0


@pytest.mark.parametrize("name", NAMES)
def test_seconds_that_are_not_known_stay_so(tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    row = a_row(cost_usd=0.5, list_usd=1.0, latency_s=math.nan)
    with filled(tmp_path / "s.db", [row]) as store:
        export_store(store, tmp_path / name)
    import_export(tmp_path / name, tmp_path / "new.db")
    with ObservationStore.open(tmp_path / "new.db") as store:
        (found,) = store.observations()
        assert (found.list_usd, found.is_timed) == (1.0, False)

"""Two stores become one: every row, every checkpoint, every dollar, or a line that says why not."""

import shutil

import pytest

from vinelm.errors import StoreError
from vinelm.requests.workflow import Request
from vinelm.signals.declaration import canonical, digest_of_text
from vinelm.traces import ObservationStore, check_store, merge_stores
from vinelm.traces.store.shown import ShownRows, SignalRecord
from vinelm.traces.testing import a_row, an_identity


def buy(store, row, checkpoint=b"state"):
    store.add(row, checkpoint, reservation=store.reserve(row.request_id, row.prefix, 9.0))


def made(path, *observations, **identity):
    with ObservationStore.create(path, an_identity(**identity)) as store:
        store.register([Request(r, {}) for r in dict.fromkeys(o.request_id for o in observations)])
        for row in observations:
            buy(store, row, b"after " + row.request_id.encode())
    return path


def refused(inputs, folder, words):
    before = {p.name: p.read_bytes() for p in inputs}
    with pytest.raises(StoreError, match=words) as caught:
        merge_stores(inputs, folder / "m.db")
    assert "\n" not in str(caught.value)
    assert {p.name: p.read_bytes() for p in inputs} == before
    assert not [p for p in folder.iterdir() if "m.db" in p.name]


def test_everything_is_there_once(tmp_path):
    one = made(tmp_path / "a.db", a_row("q1"), a_row("q1", ("small", "large")))
    two = made(tmp_path / "b.db", a_row("q2"), a_row("q1", ("large",)))
    merged = merge_stores([one, two], tmp_path / "m.db")
    assert (merged.rows, merged.added) == (4, (2, 2))
    with ObservationStore.open(tmp_path / "m.db", an_identity()) as store:
        assert store.observations() == [
            a_row("q1"), a_row("q1", ("small", "large")), a_row("q2"), a_row("q1", ("large",)),
        ]  # fmt: skip
        assert store.request_ids() == ["q1", "q2"]
        assert store.checkpoint("q1", ("large",)) == b"after q1"
        assert store.checkpoint("q2", ("small",)) == b"after q2"
        assert store.committed_usd() == 1.0
    assert check_store(tmp_path / "m.db").findings == ()


def test_copies_that_went_on_apart_share_their_past(tmp_path):
    """Rows, open entries and lost calls of the common past count once; what came after counts for each."""
    one = made(tmp_path / "a.db", a_row("q1"))
    with ObservationStore.open(one) as store:
        store.reserve("q1", ("large",), 2.0)
        store.abandon_open()
    two = tmp_path / "b.db"
    shutil.copy(one, two)
    for path, row in ((one, a_row("q1", ("small", "small"))), (two, a_row("q1", ("small", "large")))):
        with ObservationStore.open(path) as store:
            buy(store, row)
            store.reserve("q1", ("small",) * 3, 4.0)
    merged = merge_stores([one, two], tmp_path / "m.db")
    assert merged.added == (2, 1)
    with ObservationStore.open(tmp_path / "m.db") as store:
        assert len(store) == 3
        assert store.committed_usd() == 3 * 0.25 + 2.0 + 4.0 + 4.0
    assert merge_stores([one, tmp_path / "m.db"], tmp_path / "again.db").rows == 3


def test_calls_that_left_no_row_count_for_each(tmp_path):
    paths = [made(tmp_path / "a.db", a_row("q1")), made(tmp_path / "b.db", a_row("q2"))]
    for path in paths:
        with ObservationStore.open(path) as store:
            store.reserve("q3", ("large",), 2.0)
    merge_stores(paths, tmp_path / "m.db")
    with ObservationStore.open(tmp_path / "m.db") as store:
        assert store.committed_usd() == 2 * 0.25 + 2 * 2.0


def test_a_cell_with_two_different_rows_is_named(tmp_path):
    one = made(tmp_path / "a.db", a_row("q1"), a_row("q2"), a_row("q3"))
    two = made(tmp_path / "b.db", a_row("q3"), a_row("q2", latency_s=1.25), a_row("q1", cost_usd=1.0))
    refused([one, two], tmp_path, r"hold different rows of request 'q2', prefix small \(latency_s is 1\.25 and 1\.5\)")


def test_strangers_and_changed_requests_are_refused(tmp_path):
    one = made(tmp_path / "a.db", a_row("q1"))
    other = made(tmp_path / "b.db", a_row("q1"), workflow="other")
    refused([one, other], tmp_path, "cannot be merged with .*a.db: it belongs to the workflow 'toy', not 'other'")
    changed = tmp_path / "c.db"
    with ObservationStore.create(changed, an_identity()) as store:
        store.register([Request("q1", {"question": "another"})])
    refused([one, changed], tmp_path, "c.db cannot be merged with .*a.db: the request 'q1' changed")
    refused([one], tmp_path, "at least two stores")
    refused([one, one], tmp_path, "named twice")


def test_a_store_in_a_runs_hands_and_a_taken_place_are_refused(tmp_path):
    one, two = made(tmp_path / "a.db", a_row("q1")), made(tmp_path / "b.db", a_row("q2"))
    with (
        ObservationStore.open(two) as store,
        store.exclusive(),
        pytest.raises(StoreError, match=r"b\.db: another run is writing"),
    ):
        merge_stores([one, two], tmp_path / "m.db")
    before = two.read_bytes()
    with pytest.raises(StoreError, match=r"b\.db: exists already"):
        merge_stores([one, one.with_name("b.db")], two)
    assert two.read_bytes() == before


def answered(model, answer, **changes):
    return a_row("q1", (model,), answer=canonical(answer), answer_digest=digest_of_text(canonical(answer)), **changes)


def declared(path, **record):
    with ObservationStore.open(path) as store:
        ShownRows(store).set_classes({}, SignalRecord(**{"answer": ("sql",), "rows": len(store), **record}))
    return path


def test_classes_of_requests_in_both_stores_are_computed_anew(tmp_path):
    """By JSON at once; by the workflow's own comparison at the next profile."""
    for agree in (None, "digest of code"):
        folder = tmp_path / str(agree)
        folder.mkdir()
        two = made(folder / "b.db", answered("large", 1, answer_class=0))
        one = made(folder / "a.db", answered("small", 1, answer_class=0), a_row("q2", answer_class=0, answer_digest="d"))
        inputs = [declared(path, agree=agree) for path in (one, two)]
        merge_stores(inputs, folder / "m.db")
        with ObservationStore.open(folder / "m.db") as store:
            rows, record = {row.request_id + row.model: row for row in store.observations()}, ShownRows(store).record
        if agree is None:
            assert (rows["q1small"].answer_class, rows["q1large"].answer_class, record.rows) == (0, 0, 3)
        else:
            assert (rows["q1small"].answer_class, rows["q1large"].answer_class, rows["q2small"].answer_class) == (None, None, 0)
            assert record.rows == -1


def test_stores_that_declare_other_signals_lose_what_was_shown(tmp_path):
    one = declared(made(tmp_path / "a.db", answered("small", "sk-canary", signal="x")), signal="s1")
    two = declared(made(tmp_path / "b.db", answered("large", 1, signal="y")), signal="s2")
    merge_stores([one, two], tmp_path / "m.db")
    with ObservationStore.open(tmp_path / "m.db") as store:
        assert {(row.signal, row.answer, row.answer_class) for row in store.observations()} == {(None, None, None)}
        assert ShownRows(store).record is None


def test_who_bought_a_shared_row_may_differ_and_its_answer_may_not(tmp_path):
    one = declared(made(tmp_path / "a.db", answered("small", 1, sampler="cascade", round=0, probability=0.5)))
    two = declared(made(tmp_path / "b.db", answered("small", 1, sampler="priced", round=1)))
    merge_stores([one, two], tmp_path / "m.db")
    with ObservationStore.open(tmp_path / "m.db") as store:
        assert [(row.sampler, row.round, row.probability) for row in store.observations()] == [("cascade", 0, 0.5)]
    three = declared(made(tmp_path / "c.db", answered("small", "sk-canary")))
    with pytest.raises(StoreError, match="their answers differ") as caught:
        merge_stores([one, three], tmp_path / "n.db")
    assert "canary" not in str(caught.value)

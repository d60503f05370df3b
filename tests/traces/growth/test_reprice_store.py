"""A repriced copy counts rows at other prices; the store, the charges and the ledger stay as they were."""

import datetime
import hashlib
import math
import sqlite3

import pytest

from vinelm.catalog import Catalog, Price
from vinelm.errors import ConfigError, StoreError
from vinelm.requests.workflow import Request
from vinelm.traces import ObservationStore, check_store, reprice_store
from vinelm.traces.databases.lock import run_lock
from vinelm.traces.testing import a_row, an_identity

TOKENS = {"tokens_in": 100_000, "tokens_out": 75_000}  # 0.1 + 0.15 dollars at the store's prices


@pytest.fixture
def source(tmp_path):
    """Four rows: two of each model, of which one failed for nothing and without tokens; one has dollars of tools."""
    path = tmp_path / "s.db"
    with ObservationStore.create(path, an_identity()) as store:
        store.register([Request("q1", {}), Request("q2", {})])
        store.add(a_row("q1", **TOKENS), b"state", reservation=store.reserve("q1", ("small",), 9.0))
        store.add(a_row("q1", ("small", "large"), tool_cost_usd=0.5, **TOKENS))
        store.add(a_row("q2", **TOKENS))
        store.add(a_row("q2", ("small", "large"), success=None, stopped=None, failure="timeout", cost_usd=0.0))
    return path


def prices(**input_and_output):
    """The store's catalog with other prices."""
    found = []
    for model in an_identity().models().models:
        rates = input_and_output.get(model.name, (1.0, 2.0))
        price = Price(input=rates[0], output=rates[1], source="what if", as_of=datetime.date(2026, 2, 2))
        found.append(model.model_copy(update={"price": price, "max_tokens": 7}))
    return Catalog(found)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_dollars_follow_tokens_and_what_was_paid_stays(source, tmp_path):
    before = digest(source)
    found = reprice_store(source, tmp_path / "new.db", prices(large=(2.0, 6.0)))
    assert digest(source) == before
    with ObservationStore.open(tmp_path / "new.db") as store, ObservationStore.open(source) as old:
        assert [row.cost_usd for row in store.observations()] == pytest.approx([0.25, 0.2 + 0.45, 0.25, 0.0])
        assert [row.tool_cost_usd for row in store.observations()] == [0.0, 0.5, 0.0, 0.0]
        assert store.committed_usd() == old.committed_usd() == found.paid_usd
        models = store.identity.models()
        assert (models["large"].price.output, models["large"].max_tokens) == (6.0, old.identity.models()["large"].max_tokens)
        assert store.checkpoint("q1", ("small",)) == b"state"
    connection = sqlite3.connect(tmp_path / "new.db")
    assert connection.execute("SELECT recorded_usd FROM observations ORDER BY row_id").fetchall() == [
        (None,),
        (0.25,),
        (None,),
        (None,),
    ]
    assert connection.execute("SELECT kind, name, row_count FROM sources").fetchall() == [("reprice", "s.db", 1)]
    connection.close()
    assert check_store(tmp_path / "new.db").is_whole
    small, large = found.models
    assert (small.has_new_price, small.rows, small.before_usd, small.after_usd) == (False, 2, 0.5, 0.5)
    assert (large.has_new_price, large.rows, large.before_usd) == (True, 2, 0.25)
    assert (found.rows, found.repriced, large.after_usd) == (4, 1, pytest.approx(0.65))


def test_going_back_to_the_old_prices_gives_the_charges_back(source, tmp_path):
    reprice_store(source, tmp_path / "new.db", prices(large=(2.0, 6.0), small=(0.1, 0.1)))
    reprice_store(tmp_path / "new.db", tmp_path / "old.db", prices())
    with ObservationStore.open(tmp_path / "old.db") as store, ObservationStore.open(source) as old:
        assert store.observations() == old.observations()
        assert store.committed_usd() == old.committed_usd()


@pytest.mark.parametrize(
    ("catalog", "words"),
    [
        (prices, "there is nothing to reprice"),
        (lambda: Catalog(prices(small=(9.0, 9.0)).models[:1]), "no price for the model 'large'"),
    ],
)
def test_prices_that_cannot_be_applied_are_refused(source, tmp_path, catalog, words):
    with pytest.raises(ConfigError, match=words):
        reprice_store(source, tmp_path / "new.db", catalog())
    assert not (tmp_path / "new.db").exists()


def test_a_row_without_tokens_is_named(source, tmp_path):
    with ObservationStore.open(source) as store:
        store.add(a_row("q1", ("small", "small")))
    with pytest.raises(StoreError, match=r"1 rows recorded no tokens.*q1.*model 'small'"):
        reprice_store(source, tmp_path / "new.db", prices(small=(2.0, 2.0)))
    assert not list(tmp_path.glob("*new.db*"))
    assert reprice_store(source, tmp_path / "new.db", prices(large=(2.0, 2.0))).repriced == 1  # its price stays


def test_nothing_is_overwritten_and_no_running_profile_is_copied(source, tmp_path):
    (tmp_path / "new.db").write_bytes(b"mine")
    with pytest.raises(StoreError, match="exists already"):
        reprice_store(source, tmp_path / "new.db", prices(large=(2.0, 6.0)))
    assert (tmp_path / "new.db").read_bytes() == b"mine"
    with run_lock(source), pytest.raises(StoreError):
        reprice_store(source, tmp_path / "other.db", prices(large=(2.0, 6.0)))


def test_a_batch_costs_the_same_part_of_the_ordinary_price_at_other_prices(tmp_path):
    with ObservationStore.create(tmp_path / "s.db", an_identity()) as store:
        store.add(a_row("q1", cost_usd=0.125, list_usd=0.25, latency_s=math.nan, **TOKENS))
        store.add(a_row("q2", **TOKENS))
    reprice_store(tmp_path / "s.db", tmp_path / "new.db", prices(small=(2.0, 4.0)))
    with ObservationStore.open(tmp_path / "new.db") as store:
        batched, once = store.observations()
        assert (batched.cost_usd, batched.list_usd) == pytest.approx((0.25, 0.5))
        assert (once.cost_usd, once.list_usd) == (0.5, None)
        assert not batched.is_timed
